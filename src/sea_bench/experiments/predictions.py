"""Does a function learned from answers say what the model answers about other sets? [M12].

Every function sees the same answers about random sets of every size and their complements, and is
asked about sets that nobody asked about: random ones, and the first cells of the orders that other
methods give, with their complements.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.explainer import Explainer, select
from sea_bench.experiments.inputs import Batch
from sea_nn.errors import InputError
from sea_nn.features import Features
from sea_nn.function.answers_fit import fit_answers
from sea_nn.function.answers_function import AnswersFunction, place_units, prefixes
from sea_nn.function.answers_order import Correction, fit_and_check
from sea_nn.members.cheap import CONVOLUTIONAL
from sea_nn.members.checks import vote
from sea_nn.members.member_maps import MemberMaps, to_heatmaps
from sea_nn.metrics import Metric, Scores
from sea_nn.metrics.map_batch import MapBatch, MetricValues
from sea_nn.questions.ask import make_ask_only
from sea_nn.questions.designs import paired, spread_sets
from sea_nn.questions.learn import to_answers
from sea_nn.questions.search import smooth_cells

TRIED = 256  # random sets, and their complements, that no function has seen
ASKED_AT_ONCE = 256
ESTIMATE = "f, as answers left out say"
PREDICTED = {
    "r2_random": ("higher", "R² on random sets of every size and their complements; median."),
    "r2_prefixes": ("higher", "R² on the first cells of other methods' orders, kept or hidden."),
    "rms_random": ("lower", "Root mean square error of the probability on the random sets."),
    "rms_prefixes": ("lower", "The same error on the first cells of other methods' orders."),
}
# The penalties of the linear functions, by number of answers, chosen for each on tuning pictures.
RIDGES = {
    "lime": {30: 0.3, 128: 10.0, 378: 10.0, 1000: 10.0},
    "shap": {30: 10.0, 128: 10.0, 378: 30.0, 1000: 30.0},
    "log-odds": {30: 3.0, 128: 30.0, 378: 10.0, 1000: 0.01},
}


@dataclass(frozen=True)
class Known:
    """What a function is learned from.

    Attributes:
        sets: what was left, bool [N, R, n].
        answers: the model's log-odds, [N, R].
        none: the log-odds with nothing left, [N].
        all: those of the whole input, [N].
        heat: the members' evidence by cell, [N, n].
        layout: the cells' (rows, columns).
    """

    sets: Tensor
    answers: Tensor
    none: Tensor
    all: Tensor
    heat: Tensor
    layout: tuple[int, int]

    @property
    def n(self) -> int:
        """The number of cells."""
        return self.sets.shape[2]

    def check(self, *, heat: bool = True, one: bool = False) -> tuple[AnswersFunction, Tensor]:
        """The package's function, with or without heat, of eight units or of one, and its error."""
        return fit_and_check(*self._given, **self._know(heat, one))

    def fit(self, *, heat: bool = True, one: bool = False) -> AnswersFunction:
        """The same, but monotone whatever the answers say."""
        return fit_answers(*self._given, **self._know(heat, one))

    @cached_property
    def learned(self) -> tuple[AnswersFunction, Tensor]:
        """The package's function as it is, and its error."""
        return self.check()

    @property
    def _given(self) -> tuple[Tensor, ...]:
        return (self.sets, self.answers, self.none, self.all)

    def _know(self, heat: bool, one: bool) -> dict[str, Any]:
        places = torch.zeros(self.n, 1).double() if one else place_units(self.n, self.layout)
        return {"heat": self.heat if heat else None, "places": places}


Predict = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, n], to the probability of the class, [N, R]."""


def predict_mean(known: Known) -> Predict:
    """The mean answer, whatever the set: what any function has to beat."""
    mean = known.answers.sigmoid().mean(1, keepdim=True)
    return lambda sets: mean.expand(-1, sets.shape[1])


def predict_lime(known: Known) -> Predict:
    """A linear function by LIME's weights: sets near the whole input count most."""
    distance = 1 - known.sets.double().mean(2).sqrt()
    weight = torch.exp(-(distance / 0.25).square())
    return _fit_ridge(known, known.answers.sigmoid(), weight, "lime")


def predict_shap(known: Known) -> Predict:
    """A linear function by Kernel SHAP's weights, exact at the empty and the whole set."""
    n, size = known.n, known.sets.double().sum(2)
    weight = (n - 1) / (size * (n - size))  # the kernel, summed over the sets of a size
    weight = weight / weight.mean(1, keepdim=True)
    low, high = known.none.sigmoid()[:, None], known.all.sigmoid()[:, None]

    def level(sets: Tensor) -> Tensor:
        return low + sets.double().mean(2) * (high - low)

    def centre(sets: Tensor) -> Tensor:
        return sets.double() - sets.double().mean(2, keepdim=True)

    x, y = centre(known.sets), known.answers.sigmoid() - level(known.sets)
    slopes = _solve(x, y, weight, _find_ridge("shap", known))
    return lambda sets: (level(sets) + (centre(sets) @ slopes)[..., 0]).clamp(0, 1)


def predict_log_odds(known: Known) -> Predict:
    """A function that is linear in log-odds."""
    found = _fit_ridge(known, known.answers, torch.ones_like(known.answers), "log-odds", False)
    return lambda sets: found(sets).sigmoid()


def predict_corrected(known: Known) -> Predict:
    """f and what it leaves unsaid, smoothed over sets: not submodular."""
    near = smooth_cells(known.layout)
    predict: Predict = Correction(known.learned[0], known.sets, known.answers, near).score
    return predict


FUNCTIONS: dict[str, Callable[[Known], Predict]] = {
    "f": lambda known: known.learned[0].score,
    "f + correction": predict_corrected,
    "f, monotone": lambda known: known.fit().score,
    "f, no heat": lambda known: known.check(heat=False)[0].score,
    "one unit, heat": lambda known: known.check(one=True)[0].score,
    "one unit, no heat (collapsed form)": lambda known: known.fit(one=True, heat=False).score,
    "LIME": predict_lime,
    "Kernel SHAP": predict_shap,
    "additive in log-odds": predict_log_odds,
    "constant": predict_mean,
}


def measure_predictions(explainer: Explainer, batch: Batch) -> Scores:
    """Learn every function from several numbers of answers, and compare it with the model."""
    x, target, experiment = batch.x, batch.target, explainer.experiment
    features = Features.of(x).to_ask_about(device=x.device)
    n, layout = features.n, features.layout
    if layout is None or len(layout) != 2:
        raise InputError("predictions are measured on images")
    members = CONVOLUTIONAL
    found = explainer.compute_members(x, target, (*members, *experiment.members))
    ask_only = make_ask_only(explainer.inputs.loaded.model, x, target, outputs=found.outputs)

    def ask(sets: Tensor) -> Tensor:
        parts = (sets[:, i : i + ASKED_AT_ONCE] for i in range(0, sets.shape[1], ASKED_AT_ONCE))
        return torch.cat([to_answers(ask_only(features.expand(p)), "log-odds") for p in parts], 1)

    def draw(count: int, what: int) -> Tensor:
        """Random sets and their complements, each input's own, [N, 2 count, n]."""
        seeds = (explainer.seed + 10_000 * (batch.number + row) + what for row in range(len(x)))
        drawn = [spread_sets(count, n, torch.Generator().manual_seed(seed)) for seed in seeds]
        return paired(torch.stack(drawn)).to(x.device)

    pool = partial(pool_heat, found, features=features)
    orders = [pool((name,)).argsort(1, descending=True) for name in experiment.members]
    tests = {
        "random": draw(TRIED, 1),
        "prefixes": paired(torch.cat([prefixes(order) for order in orders], 1)),
    }
    truth = {name: ask(sets).sigmoid() for name, sets in tests.items()}
    ends = ask(torch.stack([torch.zeros(len(x), n), torch.ones(len(x), n)], 1).bool().to(x.device))
    heat = pool(members)
    values: dict[str, list[Tensor]] = {name: [] for name in experiment.metrics}
    for count in dict.fromkeys(int(name.partition("@")[2]) for name in experiment.metrics):
        sets = draw(count // 2, 10 + count)
        known = Known(sets, ask(sets), ends[:, 0], ends[:, 1], heat, layout)
        for make in FUNCTIONS.values():
            predict = make(known)
            for name, tried in tests.items():
                error = (predict(tried).clamp(0, 1) - truth[name]).square()
                _note(values, name, count, error.mean(1), truth[name])
        guess = known.learned[1]
        for name in tests:
            _note(values, name, count, guess.square(), known.answers.sigmoid())
    metrics = {name: describe_prediction(name) for name in experiment.metrics}
    stacked = {name: torch.stack(rows, 1).double().cpu() for name, rows in values.items()}
    return Scores((*FUNCTIONS, ESTIMATE), metrics, stacked)


def pool_heat(found: MemberMaps, members: tuple[str, ...], features: Features) -> Tensor:
    """The mean of some members' heat by cell, as SEA takes it, [N, n]."""
    some = select(found, members)
    weights, maps = vote(some), to_heatmaps(some)
    heat = torch.einsum("nm,nmhw->nhw", weights, maps.to(weights))
    return features.sum(heat) / features.count().to(heat)


def describe_prediction(name: str) -> Metric:
    """The metric of a name such as ``r2_random@128``: after 128 answers."""
    head = name.partition("@")[0]
    direction, measures = PREDICTED[head]
    return Metric(
        name,
        "higher" if direction == "higher" else "lower",
        (-math.inf, 1.0) if direction == "higher" else (0.0, 1.0),
        measures,
        frozenset(),
        _refuse,
        middle="median" if head.startswith("r2") else "mean",
    )


def _note(
    values: dict[str, list[Tensor]], name: str, count: int, square: Tensor, truth: Tensor
) -> None:
    """Keep R² and root of the mean square error, [N] each, where the experiment wants them."""
    spread = truth.var(1, correction=0).clamp(min=1e-9)
    for head, found in (("r2", 1 - square / spread), ("rms", square.sqrt())):
        if (column := values.get(f"{head}_{name}@{count}")) is not None:
            column.append(found)


def _fit_ridge(
    known: Known, y: Tensor, weight: Tensor, kind: str, probability: bool = True
) -> Predict:
    def add_one(sets: Tensor) -> Tensor:
        return torch.cat([sets.double(), torch.ones_like(sets[..., :1]).double()], 2)

    slopes = _solve(add_one(known.sets), y, weight, _find_ridge(kind, known), free=1)

    def predict(sets: Tensor) -> Tensor:
        found = (add_one(sets) @ slopes)[..., 0]
        return found.clamp(0, 1) if probability else found

    return predict


def _solve(x: Tensor, y: Tensor, weight: Tensor, ridge: float, free: int = 0) -> Tensor:
    """Weighted ridge regression; the last ``free`` slopes are not held back."""
    penalty = torch.full((x.shape[2],), ridge, dtype=x.dtype, device=x.device)
    penalty[x.shape[2] - free :] = 1e-6
    square = x.mT @ (weight[..., None] * x) + penalty.diag()
    slopes: Tensor = torch.linalg.solve(square, x.mT @ (weight * y)[..., None])
    return slopes


def _find_ridge(kind: str, known: Known) -> float:
    """The penalty chosen for the nearest number of answers."""
    by_count = RIDGES[kind]
    return by_count[min(by_count, key=partial(_distance, known.sets.shape[1]))]


def _distance(a: int, b: int) -> float:
    return abs(math.log(a / b))


def _refuse(batch: MapBatch) -> MetricValues:
    raise InputError("predictions are measured by their own experiment, not scored from maps")
