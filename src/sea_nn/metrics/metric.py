"""What a metric is: a computation that knows its name, its direction and its range."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal, ParamSpec

from torch import Tensor

from sea_nn.metrics.map_batch import MapBatch, MetricValues

P = ParamSpec("P")


@dataclass(frozen=True)
class Metric:
    """A way to score maps.

    Attributes:
        name: its name with perturbation and options, as ``get_metric`` takes it.
        direction: "higher" or "lower": which is better.
        range: the least and the greatest value it can have.
        measures: one sentence on what it measures.
        needs: of "model", "masks", "segments", "recompute", "without" and "image", what it lacks
            otherwise.
        compute: from a batch to its values.
        middle: how inputs are summed up: the "mean" of their values, or the "median" where single
            inputs can be off without limit.
    """

    name: str
    direction: Literal["higher", "lower"]
    range: tuple[float, float]
    measures: str
    needs: frozenset[str]
    compute: Callable[[MapBatch], MetricValues]
    middle: Literal["mean", "median"] = "mean"

    @property
    def arrow(self) -> str:
        """An arrow in the direction that is better."""
        return "↑" if self.direction == "higher" else "↓"


def named(make: Callable[P, Metric]) -> Callable[P, Metric]:
    """Add the perturbation, and the options that are not the defaults, to the metric's name."""
    signature = inspect.signature(make)

    @wraps(make)
    def make_named(*args: P.args, **kwargs: P.kwargs) -> Metric:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        metric, parts = make(*args, **kwargs), list[str]()
        for key, value in given.arguments.items():
            if key == "perturbation":
                parts.append("values" if isinstance(value, Tensor) else value)
            elif value != signature.parameters[key].default:
                parts.append(f"{key}={value}")
        return replace(metric, name=f"{metric.name}:{','.join(parts)}" if parts else metric.name)

    return make_named
