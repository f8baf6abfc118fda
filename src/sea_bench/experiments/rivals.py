"""Rivals in their plainest form: functions of sets learned from answers, and orders of features.

All of them see answers of a model about sets and nothing else, so that every method of a table
has asked as often and by the same way of being absent. ``FUNCTIONS`` predict unseen sets;
``values_by_*`` give each feature a value, the largest first in an order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.asking import ScoreSets, to_log_odds

PENALTIES = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # tried by leaving answers out
LENGTHS, NOISES = (0.05, 0.15, 0.5, 1.5), (1e-3, 1e-2, 1e-1)  # tried by marginal likelihood


@dataclass(frozen=True)
class Known:
    """What a function is learned from.

    Attributes:
        sets: what was left, bool [N, R, n].
        answers: the model's probabilities, [N, R].
        none: with nothing left, [N].
        all: of the whole input, [N].
        layout: the cells' (rows, columns), where features are cells of a grid.
    """

    sets: Tensor
    answers: Tensor
    none: Tensor
    all: Tensor
    layout: tuple[int, int] | None = None


Predict = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, n], to the probability of the class, [N, R]."""


def predict_mean(known: Known) -> Predict:
    """The mean answer, whatever the set: what any function has to beat."""
    mean = known.answers.mean(1, keepdim=True)
    return lambda sets: mean.expand(-1, sets.shape[1])


def predict_lime(known: Known) -> Predict:
    """A linear function by LIME's weights: sets near the whole input count most."""
    slopes = _fit_line(known, known.answers, _weigh_by_lime(known), PENALTIES)
    return lambda sets: (_add_one(sets) @ slopes)[..., 0].clamp(0, 1)


def predict_shap(known: Known) -> Predict:
    """A linear function by Kernel SHAP's weights, exact at the empty and the whole set."""
    slopes = _fit_shap(known, PENALTIES)
    low, high = known.none[:, None], known.all[:, None]

    def predict(sets: Tensor) -> Tensor:
        share = sets.double().mean(2, keepdim=True)
        level = low + share[..., 0] * (high - low)
        return (level + ((sets.double() - share) @ slopes)[..., 0]).clamp(0, 1)

    return predict


def predict_log_odds(known: Known) -> Predict:
    """A function that is linear in log-odds."""
    weight = torch.ones_like(known.answers.double())
    slopes = _fit_line(known, to_log_odds(known.answers), weight, PENALTIES)
    return lambda sets: (_add_one(sets) @ slopes)[..., 0].sigmoid()


def predict_process(known: Known) -> Predict:
    """A Gaussian process on log-odds whose kernel sees masks blurred over the grid of cells.

    Length and noise are those of a small grid with the largest marginal likelihood.
    """
    blur, n = _make_blur(known), known.sets.shape[2]
    seen = known.sets.double() @ blur
    answers = to_log_odds(known.answers)
    mean = answers.mean(1, keepdim=True)
    rows = []
    for x, y in zip(seen, answers - mean, strict=True):
        far = torch.cdist(x, x).square() / n
        best: tuple[float, float, Tensor] | None = None
        for length in LENGTHS:
            kernel = torch.exp(-far / length)
            for noise in NOISES:
                root = torch.linalg.cholesky(kernel + noise * torch.eye(len(y)).to(kernel))
                weight = torch.cholesky_solve(y[:, None], root)[:, 0]
                spread = (y @ weight / len(y)).clamp_min(1e-12)
                evidence = -0.5 * len(y) * spread.log() - root.diagonal().log().sum()
                if best is None or float(evidence) > best[0]:
                    best = float(evidence), length, weight
        assert best is not None  # there are lengths and noises
        rows.append(best[1:])

    def predict(sets: Tensor) -> Tensor:
        tried = sets.double() @ blur
        found = [
            torch.exp(-torch.cdist(z, x).square() / n / length) @ weight
            for z, x, (length, weight) in zip(tried, seen, rows, strict=True)
        ]
        return (torch.stack(found) + mean).sigmoid()

    return predict


def predict_trees(known: Known, odds: bool) -> Predict:
    """LightGBM's regression on log-odds or on probabilities, with its defaults for few rows."""
    import lightgbm  # type: ignore[import-not-found]

    answers = to_log_odds(known.answers) if odds else known.answers
    fitted: list[Any] = []
    for sets, y in zip(known.sets, answers, strict=True):
        model = lightgbm.LGBMRegressor(min_child_samples=5, random_state=0, n_jobs=1, verbose=-1)
        fitted.append(model.fit(sets.double().cpu().numpy(), y.cpu().numpy()))

    def predict(sets: Tensor) -> Tensor:
        found = [
            torch.as_tensor(model.predict(own.double().cpu().numpy()))
            for model, own in zip(fitted, sets, strict=True)
        ]
        said = torch.stack(found).to(known.answers.device, torch.float64)
        return said.sigmoid() if odds else said.clamp(0, 1)

    return predict


def list_functions() -> dict[str, Callable[[Known], Predict]]:
    """The rivals that can be learned here, by name; LightGBM where it is installed."""
    from importlib.util import find_spec

    found: dict[str, Callable[[Known], Predict]] = {
        "linear in log-odds": predict_log_odds,
        "LIME": predict_lime,
        "Kernel SHAP": predict_shap,
        "plain process, blurred masks": predict_process,
    }
    if find_spec("lightgbm") is not None:
        found["LightGBM, log-odds"] = partial(predict_trees, odds=True)
        found["LightGBM, probability"] = partial(predict_trees, odds=False)
    return {**found, "constant": predict_mean}


def draw_sets(count: int, n: int, seed: int) -> Tensor:
    """Random sets of every size, half of them the complements of the others: bool [count, n]."""
    generator = torch.Generator().manual_seed(seed)
    half = (count + 1) // 2
    size = torch.randint(1, max(2, n), (half, 1), generator=generator)
    sets = torch.rand(half, n, generator=generator).argsort(1).argsort(1) < size
    return torch.cat([sets, ~sets])[:count]


def ask_known(score: ScoreSets, sets: Tensor, layout: tuple[int, int] | None = None) -> Known:
    """The model's answers about sets [N, R, n], and about none and all of the features."""
    ends = torch.tensor([False, True])[:, None].expand(len(sets), 2, sets.shape[2])
    low, high = score(ends.to(sets.device)).double().unbind(1)
    return Known(sets, score(sets).double(), low, high, layout)


def values_by_lime(score: ScoreSets, count: int, n: int, budget: int, seed: int) -> Tensor:
    """LIME's weights of features after so many answers, [count, n]."""
    known = ask_known(score, _draw_each(count, budget - 2, n, seed))
    return _fit_line(known, known.answers, _weigh_by_lime(known), (1.0,))[:, :n, 0]


def values_by_shap(score: ScoreSets, count: int, n: int, budget: int, seed: int) -> Tensor:
    """Kernel SHAP's values after so many answers, [count, n]; exact where all sets are as many."""
    if 2**n <= budget:
        return shapley(score, count, n)
    known = ask_known(score, _draw_each(count, budget - 2, n, seed))
    slopes = _fit_shap(known, (1e-6,))[..., 0]
    share = (known.all - known.none)[:, None] / n
    return slopes - slopes.mean(1, keepdim=True) + share


def values_by_permutations(score: ScoreSets, count: int, n: int, budget: int, seed: int) -> Tensor:
    """Shapley values by what features add in random orders and in their reverses, [count, n]."""
    generator = torch.Generator().manual_seed(seed)
    many = max(1, (budget - 2) // (n - 1))
    orders = torch.rand((many + 1) // 2, n, generator=generator).argsort(1)
    orders = torch.stack([orders, orders.flip(1)], 1).flatten(0, 1)[:many]
    sets = orders.argsort(1)[:, None] < torch.arange(n + 1)[:, None]  # [many, n + 1, n]
    answers = score(sets.flatten(0, 1).expand(count, -1, -1)).double().view(count, many, n + 1)
    added = answers.diff(dim=2).flatten(1) / many
    return torch.zeros(count, n).double().index_add_(1, orders.flatten(), added)


def values_by_svarm(score: ScoreSets, count: int, n: int, budget: int, seed: int) -> Tensor:
    """SVARM: the mean answer of sets with a feature less that of sets without, [count, n].

    Sets of s features are drawn in proportion to 1 / s for the first mean, to 1 / (n - s) for the
    second, and each counts for every feature in it, or out of it.
    """
    generator = torch.Generator().manual_seed(seed)
    inverse = 1 / torch.arange(1, n + 1)
    means = []
    for inside in (True, False):
        size = inverse.multinomial(budget // 2, replacement=True, generator=generator) + 1
        place = torch.rand(budget // 2, n, generator=generator).argsort(1).argsort(1)
        counts = place < size[:, None]  # the features that a set counts for
        answers = score((counts == inside).expand(count, -1, -1)).double()
        means.append(answers @ counts.double() / counts.sum(0).clamp(min=1))
    return means[0] - means[1]


def shapley(score: ScoreSets, count: int, n: int) -> Tensor:
    """Shapley values from the answers about every set, [count, n]."""
    codes = torch.arange(2**n)
    sets = (codes[:, None] >> torch.arange(n) & 1).bool()
    answers = torch.cat([score(part.expand(count, -1, -1)).double() for part in sets.split(256)], 1)
    size = sets.sum(1)
    values = []
    for k in range(n):
        without = codes[~sets[:, k]]
        gain = answers[:, without + (1 << k)] - answers[:, without]
        weight = torch.tensor([1 / (n * math.comb(n - 1, int(s))) for s in size[without]])
        values.append(gain @ weight.double())
    return torch.stack(values, 1)


def greedy(score: ScoreSets, count: int, n: int, both: bool = False) -> Tensor:
    """The order by asking the model itself which feature to keep next: [count, n].

    It costs n (n + 1) / 2 questions an input, and is what insertion can reach by greed; with
    ``both`` twice as many, and goes by what a set keeps less what is left without it.
    """
    taken = torch.zeros(count, n, dtype=torch.bool)
    order = []
    for k in range(n):
        free = (~taken).nonzero()[:, 1].view(count, n - k)
        sets = taken[:, None] | torch.eye(n, dtype=torch.bool)[free]
        found = score(sets) - score(~sets) if both else score(sets)
        best = free.gather(1, found.cpu().argmax(1, keepdim=True))
        taken = taken.scatter(1, best, True)
        order.append(best)
    return torch.cat(order, 1)


def random_order(count: int, n: int, seed: int) -> Tensor:
    """A random map's order, [count, n]."""
    return torch.rand(count, n, generator=torch.Generator().manual_seed(seed)).argsort(1)


def rank(values: Tensor) -> Tensor:
    """Values [N, n] as orders, the largest first, ties by place."""
    return values.double().argsort(dim=1, descending=True, stable=True)


def _draw_each(count: int, budget: int, n: int, seed: int) -> Tensor:
    return torch.stack([draw_sets(budget, n, seed + 1000 * row) for row in range(count)])


def _make_blur(known: Known) -> Tensor:
    """What spreads a cell over its neighbours, [n, n]; nothing without a grid."""
    n = known.sets.shape[2]
    if known.layout is None:
        return torch.eye(n).to(known.answers)
    columns = known.layout[1]
    place = torch.stack([torch.arange(n) // columns, torch.arange(n) % columns], 1).double()
    near = torch.exp(-torch.cdist(place, place).square() / (2 * 0.6**2))
    return (near / near.sum(1, keepdim=True)).T.to(known.answers)


def _fit_shap(known: Known, penalties: Sequence[float]) -> Tensor:
    """Slopes by Kernel SHAP's weights beyond the straight line from none to all, [N, n, 1]."""
    inside = known.sets.sum(2)
    n = known.sets.shape[2]
    size = inside.double().clamp(1, n - 1)
    weight = (n - 1) / (size * (n - size))  # the kernel, summed over the sets of a size
    weight = weight / weight.mean(1, keepdim=True)
    share = known.sets.double().mean(2, keepdim=True)
    level = known.none[:, None] + share[..., 0] * (known.all - known.none)[:, None]
    return _solve(known.sets.double() - share, known.answers - level, weight, penalties)


def _weigh_by_lime(known: Known) -> Tensor:
    distance = 1 - known.sets.double().mean(2).sqrt()
    return torch.exp(-(distance / 0.25).square())


def _add_one(sets: Tensor) -> Tensor:
    return torch.cat([sets.double(), torch.ones_like(sets[..., :1]).double()], 2)


def _fit_line(known: Known, y: Tensor, weight: Tensor, penalties: Sequence[float]) -> Tensor:
    """Slopes of features and, last, a constant: [N, n + 1, 1]."""
    return _solve(_add_one(known.sets), y, weight, penalties, free=1)


def _solve(
    x: Tensor, y: Tensor, weight: Tensor, penalties: Sequence[float], free: int = 0
) -> Tensor:
    """Slopes of weighted ridge regression, [N, n, 1]; the last ``free`` are not held back.

    Each input has the penalty that says its answers best when they are left out one by one.
    """
    found, missed = [], []
    for ridge in penalties:
        penalty = torch.full((x.shape[2],), ridge, dtype=x.dtype, device=x.device)
        penalty[x.shape[2] - free :] = 1e-6
        inverse = (x.mT @ (weight[..., None] * x) + penalty.diag()).inverse()
        slopes = inverse @ (x.mT @ (weight * y)[..., None])
        pull = weight * ((x @ inverse) * x).sum(2)  # of an answer on what is said of its own set
        left_out = (y - (x @ slopes)[..., 0]) / (1 - pull).clamp_min(1e-9)
        found.append(slopes)
        missed.append((weight * left_out.square()).sum(1))
    best = torch.stack(missed).argmin(0)
    return torch.stack(found)[best, torch.arange(len(x), device=x.device)]
