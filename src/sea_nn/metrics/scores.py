"""The result of scoring: a number a metric, input and method; means with their uncertainty.

>>> scores = torch.tensor([[0.2, 0.5], [0.4, 0.6], [0.3, 0.7]])       # 3 inputs, 2 methods
>>> estimate = bootstrap_mean(scores)
>>> bool((estimate.low <= estimate.mean).all()), estimate.n_inputs
(True, 3)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from sea_nn.config import check_whole
from sea_nn.errors import InputError
from sea_nn.metrics.map_batch import Metric

_BLOCK = 1 << 24
Middle = Literal["mean", "median"]


@dataclass(frozen=True)
class Estimate:
    """A mean (or median) over inputs for each method, and the bounds of its interval, [m] each.

    Attributes:
        mean: the mean, or the median where that was asked for.
        low: the interval's lower bound.
        high: its upper bound.
        n_inputs: the inputs used; those with nan for any method are left out for all.
    """

    mean: Tensor
    low: Tensor
    high: Tensor
    n_inputs: int


def bootstrap_mean(
    scores: Tensor, *, resamples: int = 2000, seed: int = 0, middle: Middle = "mean"
) -> Estimate:
    """Return the mean (or median) of scores [N, m] over inputs with its 95 % percentile interval.

    N inputs are drawn ``resamples`` times, with replacement, the same ones for all methods.
    """
    if scores.ndim != 2:
        raise InputError(f"scores must be [inputs, methods]; got {list(scores.shape)}")
    check_whole("resamples", resamples, 1)
    values = scores.detach().to("cpu", torch.float64)
    values = values[values.isfinite().all(1)]
    n = len(values)
    if n == 0:
        nothing = torch.full((scores.shape[1],), torch.nan, dtype=torch.float64)
        return Estimate(nothing, nothing, nothing, 0)
    generator, found = torch.Generator().manual_seed(seed), []
    sum_up: Any = partial(torch.quantile, q=0.5) if middle == "median" else torch.mean
    for size in torch.arange(resamples).split(max(1, _BLOCK // max(1, values.numel()))):
        drawn = torch.randint(n, (len(size), n), generator=generator)
        found.append(sum_up(values[drawn], dim=1))
    bounds = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.cat(found).quantile(bounds, dim=0)
    return Estimate(sum_up(values, dim=0), low, high, n)


def bootstrap_difference(scores: Tensor, against: int, *, middle: Middle = "mean") -> Estimate:
    """Return each method's mean (or median) difference to the method ``against``, input by input.

    The differences are paired, so what makes an input easy or hard for all methods cancels: an
    interval without 0 is evidence that a method differs, even where those of the means overlap.
    What differs by no more than rounding is equal.
    """
    if scores.ndim != 2 or not 0 <= against < scores.shape[1]:
        raise InputError(
            f"against must be one of the methods 0 to {scores.shape[-1] - 1}; got {against}"
        )
    other = scores[:, against : against + 1]
    equal = torch.isclose(scores, other, rtol=1e-9, atol=0)
    return bootstrap_mean((scores - other).masked_fill(equal, 0), middle=middle)


@dataclass(frozen=True)
class Scores:
    """Scores of m methods on N inputs, on the CPU.

    Attributes:
        methods: the m names, in the order of the columns.
        metrics: the metrics by name; each knows its direction and range.
        values: by metric, float64 [N, m]; nan where a metric is undefined.
        curves: by metric that has them, the points behind its values, [N, m, points].
        evaluations: by metric, the rows that the model saw. Metrics share answers; the first to
            need them pays.
        notes: by metric, what a reader should know, such as why values are nan.
    """

    methods: tuple[str, ...]
    metrics: dict[str, Metric]
    values: dict[str, Tensor]
    curves: dict[str, Tensor] = field(default_factory=dict)
    evaluations: dict[str, int] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else 0

    def mean(self, metric: str) -> dict[str, float]:
        """Return each method's mean over the inputs on which all methods have a value."""
        middle = self._find(metric).middle
        means = bootstrap_mean(self.values[metric], resamples=1, middle=middle).mean
        return dict(zip(self.methods, means.tolist(), strict=True))

    def estimate(self, metric: str) -> Estimate:
        """Return each method's mean with its bootstrap interval; see ``bootstrap_mean``."""
        middle = self._find(metric).middle
        return bootstrap_mean(self.values[metric], middle=middle)

    def difference(self, metric: str, against: str) -> Estimate:
        """Return each method's paired difference to another; see ``bootstrap_difference``."""
        if against not in self.methods:
            raise InputError(f"there is no method {against!r}; scored: {', '.join(self.methods)}")
        middle, place = self._find(metric).middle, self.methods.index(against)
        return bootstrap_difference(self.values[metric], place, middle=middle)

    def best(self, metric: str, without: Sequence[str] = ()) -> str:
        """Return the method with the best mean, some left out; of equal ones the first."""
        found = self.mean(metric).items()
        means = {name: m for name, m in found if name not in without and math.isfinite(m)}
        if not means:
            raise InputError(f"no input has a value of {metric} for all methods; see notes")
        choose = max if self.metrics[metric].direction == "higher" else min
        return choose(means, key=lambda name: float(f"{means[name]:.9g}"))

    def table(self) -> str:
        """Return a Markdown table: methods down, metrics across, mean and half of the interval.

        The best method of each metric is bold; arrows say which direction is better.
        """
        head = ["method", *(f"{name} {metric.arrow}" for name, metric in self.metrics.items())]
        cells = [[method] for method in self.methods]
        for name in self.metrics:
            estimate = self.estimate(name)
            best = self.best(name) if estimate.n_inputs else None
            halves = (estimate.high - estimate.low) / 2
            for row, mean, half in zip(cells, estimate.mean, halves, strict=True):
                text = f"{float(mean):.3f} ± {float(half):.3f}"
                row.append(f"**{text}**" if row[0] == best else text)
        lines = [head, ["---"] * len(head), *cells]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    @classmethod
    def join(cls, parts: Sequence["Scores"]) -> "Scores":
        """Return the scores of several sets of inputs as one; methods and metrics must agree."""
        one = parts[0]
        if any((p.methods, *p.metrics) != (one.methods, *one.metrics) for p in parts):
            told = "; ".join(f"{part.methods} with {list(part.metrics)}" for part in parts)
            raise InputError(f"scores can be joined if methods and metrics agree; got {told}")
        return cls(
            methods=one.methods,
            metrics=one.metrics,
            values={k: torch.cat([part.values[k] for part in parts]) for k in one.values},
            curves={k: torch.cat([part.curves[k] for part in parts]) for k in one.curves},
            evaluations={k: sum(part.evaluations[k] for part in parts) for k in one.evaluations},
            notes={
                k: tuple(dict.fromkeys(note for part in parts for note in part.notes.get(k, ())))
                for k in one.metrics
            },
        )

    def _find(self, metric: str) -> Metric:
        if metric not in self.values:
            raise InputError(f"there is no score {metric!r}; scored: {', '.join(self.values)}")
        return self.metrics[metric]
