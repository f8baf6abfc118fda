"""The result of scoring: one number for each metric, input and method, and what they add up to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.metrics.bootstrap import Estimate, bootstrap_difference, bootstrap_mean
from sea_nn.metrics.metric import Metric


@dataclass(frozen=True)
class MetricCurve:
    """The curves behind a metric's values.

    Attributes:
        axis: the horizontal axis: a share of positions, or a number of steps, [points].
        values: [N, m, points].
    """

    axis: Tensor
    values: Tensor


@dataclass(frozen=True)
class Scores:
    """Scores of m methods on N inputs, on the CPU.

    Attributes:
        methods: the m names, in the order of the columns.
        metrics: the metrics by name; each knows its direction and range.
        values: by metric, float64 [N, m]; nan where a metric is undefined.
        curves: by metric that has them, the curves behind its values.
        seconds: by metric, the time it took. Metrics share work; the first to need it pays.
        evaluations: by metric, how often the model was asked about one input.
        notes: by metric, what a reader should know, such as why values are nan.
    """

    methods: tuple[str, ...]
    metrics: Mapping[str, Metric]
    values: Mapping[str, Tensor]
    curves: Mapping[str, MetricCurve] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    evaluations: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else 0

    def mean(self, metric: str) -> dict[str, float]:
        """Return each method's mean over the inputs on which all methods have a value."""
        means = self.estimate(metric, resamples=1).mean
        return dict(zip(self.methods, means.tolist(), strict=True))

    def estimate(self, metric: str, **options: Any) -> Estimate:
        """Return each method's mean with its bootstrap interval; see ``bootstrap_mean``."""
        return bootstrap_mean(self._find(metric), **self._sum_up(metric), **options)

    def difference(self, metric: str, against: str, **options: Any) -> Estimate:
        """Return each method's paired difference to another; see ``bootstrap_difference``."""
        column, how = self._column(against), self._sum_up(metric)
        return bootstrap_difference(self._find(metric), column, **how, **options)

    def best(self, metric: str, without: Sequence[str] = ()) -> str:
        """Return the method with the best mean, some left out; of equal ones the first."""
        found = self.mean(metric).items()
        means = {name: m for name, m in found if name not in without and math.isfinite(m)}
        if not means:
            raise InputError(f"no input has a value of {metric} for all methods; see notes")
        choose = max if self.metrics[metric].direction == "higher" else min
        return choose(means, key=lambda name: float(f"{means[name]:.9g}"))

    def table(self, digits: int = 3, **options: Any) -> str:
        """Return a Markdown table: methods down, metrics across, mean and half of the interval.

        The best method of each metric is bold; arrows say which direction is better.
        """
        head = ["method", *(f"{name} {metric.arrow}" for name, metric in self.metrics.items())]
        cells = [[method] for method in self.methods]
        for name in self.metrics:
            estimate = self.estimate(name, **options)
            best = self.best(name) if estimate.n_inputs else None
            for row, mean, low, high in zip(
                cells, estimate.mean, estimate.low, estimate.high, strict=True
            ):
                text = f"{float(mean):.{digits}f} ± {float(high - low) / 2:.{digits}f}"
                row.append(f"**{text}**" if row[0] == best else text)
        lines = [head, ["---"] * len(head), *cells]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    @classmethod
    def join(cls, parts: Sequence["Scores"]) -> "Scores":
        """Return the scores of several sets of inputs as one; methods and metrics must agree."""
        if not parts:
            raise InputError("there are no scores to join")
        one = parts[0]
        for other in parts[1:]:
            if other.methods != one.methods or list(other.metrics) != list(one.metrics):
                raise InputError(
                    "scores can be joined if methods and metrics agree; got "
                    f"{one.methods} with {list(one.metrics)} and "
                    f"{other.methods} with {list(other.metrics)}"
                )
        return cls(
            methods=one.methods,
            metrics=one.metrics,
            values={name: torch.cat([part.values[name] for part in parts]) for name in one.values},
            curves={
                name: MetricCurve(
                    curve.axis, torch.cat([part.curves[name].values for part in parts])
                )
                for name, curve in one.curves.items()
            },
            seconds={name: sum(part.seconds[name] for part in parts) for name in one.seconds},
            evaluations={k: sum(part.evaluations[k] for part in parts) for k in one.evaluations},
            notes={
                k: tuple(dict.fromkeys(note for part in parts for note in part.notes.get(k, ())))
                for k in one.metrics
            },
        )

    def _sum_up(self, metric: str) -> dict[str, Any]:
        known = self.metrics.get(metric)
        return {} if known is None else {"middle": known.middle}

    def _find(self, metric: str) -> Tensor:
        if metric not in self.values:
            raise InputError(f"there is no score {metric!r}; scored: {', '.join(self.values)}")
        return self.values[metric]

    def _column(self, method: str) -> int:
        if method not in self.methods:
            raise InputError(f"there is no method {method!r}; scored: {', '.join(self.methods)}")
        return self.methods.index(method)
