"""What a metric is: a computation that knows its name, its direction and its range."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sea_nn.metrics.map_batch import MapBatch, MetricValues, PerturbationKind


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
    """

    name: str
    direction: Literal["higher", "lower"]
    range: tuple[float, float]
    measures: str
    needs: frozenset[str]
    compute: Callable[[MapBatch], MetricValues]

    @property
    def arrow(self) -> str:
        """An arrow in the direction that is better."""
        return "↑" if self.direction == "higher" else "↓"


def label_metric(name: str, kind: PerturbationKind | None, **options: tuple[object, object]) -> str:
    """The name with the perturbation and the options that differ from their defaults."""
    parts = [] if kind is None else [kind if isinstance(kind, str) else "values"]
    parts += [f"{key}={value}" for key, (value, default) in options.items() if value != default]
    return f"{name}:{','.join(parts)}" if parts else name
