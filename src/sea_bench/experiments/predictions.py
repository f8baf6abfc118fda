"""Does a function learned from answers say what the model answers about other sets?

Every function has as many answers and is asked about sets that nobody asked about: random ones of
every size, and the first cells of the orders that other methods give, with their complements. SEA
chooses its own questions, as users have it; the others, and SEA's function once more, get random
sets.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.asking import explain, fill_all, make_score
from sea_bench.experiments.experiment import Rows
from sea_bench.experiments.inputs import Batch
from sea_bench.experiments.maps import Explainer
from sea_bench.experiments.rivals import Known, Predict, ask_known, draw_sets, list_functions, rank
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features
from sea_nn.function.function import read, to_answers, warp
from sea_nn.function.process import SetProcess

TRIED = 384  # sets that no function has seen, half of them random
GRID = (8, 8)
GRIDS = {"fashion/vit": (7, 7)}
"""Cells that are asked about, where a classifier has patches of its own."""
OURS, SAME = "SEA", "SEA's function, the same answers"


def measure_predictions(explainer: Explainer, batch: Batch) -> Rows:
    """Learn every function from several numbers of answers, and compare it with the model."""
    x, target, experiment = batch.x, batch.target, explainer.experiment
    grid = GRIDS.get(experiment.classifier, GRID)
    features = Features.of(x).on_grid(grid)
    model = explainer.inputs.loaded.model
    score = make_score(model, x, target, features, fill_all(x, features, "blur"))
    found = explainer.compute_members(x, target)
    heat = [features.sum(one) for one in found.to_heatmaps().double().unbind(1)]
    seeds = [explainer.seed + 10_000 * (batch.number + row) for row in range(len(x))]
    tried = torch.stack(
        [draw_tests([one[row] for one in heat], seed) for row, seed in enumerate(seeds)]
    ).to(x.device)
    truth = score(tried)
    rows: dict[str, dict[str, Tensor]] = {name: {} for name in (OURS, SAME, *list_functions())}
    for count in dict.fromkeys(int(name.partition("@")[2]) for name in experiment.metrics):
        known_sets = torch.stack([draw_sets(count, features.n, seed + count) for seed in seeds])
        known = ask_known(score, known_sets.to(x.device), grid)
        e = spend(model, x, target, count, seed=explainer.seed)
        ours = e.predict(features.expand(tried))
        for name, said in predict_all(known, tried, e, ours).items():
            rows[name] |= judge(said, truth, count)
    return rows


def spend(
    model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, count: int, **how: Any
) -> Explanation:
    """SEA's explanation with so many questions; what its members cost comes on top."""
    one = explain(model, x[:1], target[:1], budget=count, **how)
    extra = count - one.questions
    return explain(model, x, target, budget=count + extra, **how)


def learn_same(e: Explanation, known: Known) -> Predict:
    """SEA's function, with its members' heat, of the answers that the rivals have."""
    function: Any = e.function
    own, link = function.process.kernel, function.link
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None].expand(2, own.shares.shape[2])
    sets = torch.cat([known.sets.cpu().double(), ends.expand(len(known.sets), -1, -1)], 1)
    scores = torch.cat([known.answers, known.none[:, None], known.all[:, None]], 1).cpu()
    answers = warp(to_answers(scores, link), link)
    process = SetProcess.fit(sets, answers, shares=own.shares, near=own.near)
    return lambda sets: read(process.predict(sets.cpu()).mean, link).to(sets.device)


def predict_all(known: Known, tried: Tensor, e: Explanation, ours: Any) -> dict[str, Tensor]:
    """What every function says of sets it has not seen, [N, R] each; SEA's own is given."""
    rivals = {name: learn(known)(tried) for name, learn in list_functions().items()}
    return {OURS: ours, SAME: learn_same(e, known)(tried), **rivals}


def judge(said: Tensor, truth: Tensor, count: int) -> dict[str, Tensor]:
    """R² and mean error of probabilities [N, R], by metric, [N] each."""
    error = said.double().to(truth).clamp(0, 1) - truth.double()
    spread = truth.double().var(1, correction=0).clamp(min=1e-9)
    return {
        f"r2@{count}": 1 - error.square().mean(1) / spread,
        f"error@{count}": error.abs().mean(1),
    }


def draw_tests(heat: list[Tensor], seed: int) -> Tensor:
    """Random sets, and prefixes of the orders of one input's heat [n], with complements."""
    n = len(heat[0])
    prefixes = []
    for own in heat:
        place = rank(own[None]).argsort(1)
        kept = place < torch.arange(1, n, device=own.device)[:, None]
        prefixes += [kept, ~kept]
    every = torch.cat(prefixes).cpu()
    generator = torch.Generator().manual_seed(seed + 1)
    chosen = every[torch.randperm(len(every), generator=generator)[: TRIED // 2]]
    return torch.cat([draw_sets(TRIED - len(chosen), n, seed + 2), chosen])
