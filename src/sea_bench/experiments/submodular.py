"""``sea bench submodular``: what it costs that a function of sets is submodular.

The process says of any set what the model would answer. Here the paper's own kind of function, a
deep submodular one, is learned from the process, of as many sets as one likes: no answers are left
to overfit, so what it says worse, and orders worse, is the price of its form alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from sea_bench.data.games import optimum
from sea_bench.experiments.asking import ScoreSets, to_log_odds
from sea_bench.experiments.experiment import Findings, Run, experiment, quantity
from sea_bench.experiments.games import CHANCE, TRIED
from sea_bench.experiments.metrics import find_metric
from sea_bench.experiments.predictions import GRID, judge
from sea_bench.experiments.rivals import draw_sets, greedy, random_order
from sea_bench.experiments.subjects import Subject, compare_places
from sea_nn import DSF, maximize

BUDGETS = (64, 128)
PLACES = ("vit_16", "resnet18_14", "sentiment_14", "fmnist")
SETS, STEPS, BATCH = 4096, 1500, 256  # that the submodular function is learned from
WIDTHS, START, RATES = (64, 16), (0.0, 0.1), (0.02, 0.1)  # the better of two rates counts
LEAST = 1e-4  # of its weights: at 0 all of them could stay there
PROCESS, SUBMODULAR = "the process", "a submodular function of it"
ORDER = (
    "How good an order is: the mean over k of p(first k cells left) - p(first k hidden); of games "
    "0 is chance and 1 the best order there is."
)


def learn_submodular(sets: Tensor, chance: Tensor, seed: int) -> tuple[DSF, Tensor]:
    """The DSF f and the constant c whose c + f(S) are the log-odds of probabilities best.

    Args:
        sets: [R, n].
        chance: what the process says of each, [R].
        seed: of the first weights and of the batches.
    """
    found = [_descend(sets.double(), chance, seed, rate) for rate in RATES]
    return min(found, key=lambda one: one[0])[1:]


def _descend(x: Tensor, chance: Tensor, seed: int, rate: float) -> tuple[float, DSF, Tensor]:
    """The loss in the end, the function and the constant."""
    f = DSF(x.shape[1], WIDTHS, "log1p", init=START, seed=seed)
    constant = nn.Parameter(to_log_odds(chance.min()))
    adam = torch.optim.Adam([*f.parameters(), constant], lr=rate)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    generator = torch.Generator().manual_seed(seed)

    def miss(rows: Tensor) -> Tensor:
        said = constant + f(x[rows])
        return nn.functional.binary_cross_entropy_with_logits(said, chance[rows])

    for _ in range(STEPS):
        adam.zero_grad()
        miss(torch.randint(len(x), (BATCH,), generator=generator)).backward()
        adam.step()
        slower.step()
        with torch.no_grad():
            for weight in f.parameters():
                weight.clamp_(min=LEAST)
    f.requires_grad_(False)
    constant.requires_grad_(False)
    return float(miss(torch.arange(len(x)))), f, constant


def measure_quality(score: ScoreSets, order: Tensor) -> float:
    """Mean over k of p(only the first k of an order [n] left) - p(the first k removed)."""
    kept = order.argsort() < torch.arange(1, len(order))[:, None]
    left, removed = score(torch.cat([kept, ~kept])[None])[0].chunk(2)
    return float((left - removed).mean())


def compare_forms(one: Subject, seed: int) -> dict[str, Tensor]:
    """Quality of orders and R² of predictions of both forms, [1] each, under "metric row"."""
    n, found = one.features.n, dict[str, Tensor]()
    tried = draw_sets(TRIED, n, seed + 1)[None]
    truth, many = one.score(tried), draw_sets(SETS, n, seed + 2)[None]
    mixed = [random_order(1, n, seed + k)[0] for k in range(CHANCE)]
    chance = sum(measure_quality(one.score, order) for order in mixed) / CHANCE
    best = None if one.table is None else optimum(one.table, n)
    how = {"grid": GRID} if one.x.ndim == 4 else {}
    for budget in BUDGETS:
        e = one.spend(budget, seed, **how)

        def process(sets: Tensor) -> Tensor:
            found: Tensor = torch.as_tensor(e.predict(one.expand(sets)))  # noqa: B023
            return found.double().cpu()

        f, constant = learn_submodular(many[0], process(many)[0], seed)

        def submodular(sets: Tensor) -> Tensor:
            odds: Tensor = constant + f(sets.double())  # noqa: B023
            return odds.sigmoid()

        said: dict[str, Callable[[Tensor], Tensor]] = {PROCESS: process, SUBMODULAR: submodular}
        for name, predict in said.items():
            found[f"r2@{budget} {name}"] = judge(predict(tried), truth, budget)[f"r2@{budget}"]
        asked = one.score(draw_sets(budget, n, seed + budget)[None])
        mean = asked.mean(1, keepdim=True).expand_as(truth)
        found[f"r2@{budget} constant"] = judge(mean, truth, budget)[f"r2@{budget}"]
        orders = {
            PROCESS: e.order[0].cpu(),
            SUBMODULAR: greedy(submodular, 1, n, both=True)[0],
            f"{PROCESS}, greedily": greedy(process, 1, n, both=True)[0],
            f"{SUBMODULAR}, Algorithm 1": maximize(f, n).order,
            "random order": mixed[0],
        }
        for name, order in orders.items():
            value = measure_quality(one.score, order)
            value = value if best is None else (value - chance) / (best - chance)
            found[f"order@{budget} {name}"] = torch.tensor([value], dtype=torch.float64)
    return {key: value.double().cpu() for key, value in found.items()}


@experiment(
    "submodular", "What does submodular cost?", "games, fashion_sample", n_inputs=16, quick=2
)
def submodular(run: Run) -> Findings:
    """A function that is submodular can be read by Algorithm 1 and says nothing twice.

    How much worse are its order and its predictions than those of the process that it is learned
    from?
    """
    tables = {
        ": orders": [quantity(f"order@{budget}", "higher", ORDER) for budget in BUDGETS],
        ": unseen sets": [find_metric(f"r2@{budget}") for budget in BUDGETS],
    }
    notes = [
        f"the submodular function: a deep one of widths {WIDTHS} and log(1 + x) as in the paper, "
        f"its weights above 0, learned from what the process says of {SETS} random sets; "
        "its values and a constant are log-odds",
        "orders: the process's own is SEA's; the submodular function's takes next what adds most "
        "to f(kept) - f(the rest), and by Algorithm 1 what adds most to f(kept) alone",
        f"R²: of {TRIED} random sets of every size that nobody asked about",
    ]
    work = partial(compare_forms, seed=run.seed)
    return compare_places(run, PLACES, work, tables, PROCESS, notes)
