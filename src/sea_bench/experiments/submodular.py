"""``sea bench submodular``: what it costs that a function of sets is submodular.

The process says of any set what the model would answer. Here the paper's own kind of function, a
deep submodular one, is learned from the process, of as many sets as one likes: no answers are left
to overfit, so what it says worse, and orders worse, is the price of its form alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sea_bench.data.games import KINDS, optimum
from sea_bench.experiments.asking import ScoreSets, to_log_odds
from sea_bench.experiments.experiment import (
    Compared,
    Findings,
    Measurement,
    Run,
    quantity,
    score_rows,
)
from sea_bench.experiments.games import CHANCE, SHARE, TRIED
from sea_bench.experiments.predictions import GRID, describe_prediction, judge, spend
from sea_bench.experiments.rivals import draw_sets, greedy, random_order
from sea_bench.experiments.subjects import Subject, list_subjects, remember_all
from sea_nn import DSF, maximize

BUDGETS = (64, 128)
PLACES = ("vit_16", "resnet18_14", "sentiment_14", "fmnist")
SETS, STEPS, BATCH = 4096, 1500, 256  # that the submodular function is learned from
WIDTHS, START, RATES = (64, 16), (0.0, 0.1), (0.02, 0.1)  # the better of two rates counts
LEAST = 1e-4  # of its weights: at 0 all of them could stay there
PROCESS, SUBMODULAR = "the process", "a submodular function of it"
GAIN = "Mean over k of p(first k cells left) - p(first k hidden): how good an order is."


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
        e = spend(one.model, one.x, one.target, budget, output=one.output, seed=seed, **how)

        def process(sets: Tensor) -> Tensor:
            positions = one.features.expand(sets.to(one.x.device))
            found: Tensor = torch.as_tensor(e.predict(positions))  # noqa: B023
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


def measure_submodular(run: Run) -> Findings:
    """Compare the two forms on games and on pictures."""
    parts, skipped = [], list[str]()
    for name, title, subjects in list_subjects(run, PLACES, skipped):
        found = remember_all(run, title, subjects, lambda one: compare_forms(one, run.seed))
        said = SHARE if name in KINDS else GAIN
        orders = [quantity(f"order@{budget}", "higher", said) for budget in BUDGETS]
        unseen = [describe_prediction(f"r2@{budget}") for budget in BUDGETS]
        for metrics, what in ((orders, "orders"), (unseen, "unseen sets")):
            rows: dict[str, dict[str, Tensor]] = {}
            for key, values in found.items():
                metric, _, row = key.partition(" ")
                if metric in {one.name for one in metrics}:
                    rows.setdefault(row, {})[metric] = values
            about = f"{len(subjects)} inputs."
            parts.append(Compared(score_rows(rows, metrics), PROCESS, f"{title}: {what}", about))
    notes = [
        f"the submodular function: a deep one of widths {WIDTHS} and log(1 + x) as in the paper, "
        f"its weights above 0, learned from what the process says of {SETS} random sets; "
        "its values and a constant are log-odds",
        "orders: the process's own is SEA's; the submodular function's takes next what adds most "
        "to f(kept) - f(the rest), and by Algorithm 1 what adds most to f(kept) alone",
        f"R²: of {TRIED} random sets of every size that nobody asked about",
    ]
    return Findings(parts, [*notes, *skipped])


SUBMODULAR_COST = Measurement(
    "submodular",
    "What does submodular cost?",
    "A function that is submodular can be read by Algorithm 1 and says nothing twice. How much "
    "worse are its order and its predictions than those of the process that it is learned from?",
    "games, fashion_sample",
    n_inputs=16,
    quick=2,
    work=measure_submodular,
)
