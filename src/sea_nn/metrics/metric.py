"""What a metric is: a computation that knows its name, its direction and its range."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sea_nn.config import check_whole
from sea_nn.errors import InputError
from sea_nn.metrics.map_batch import MapBatch, MetricValues

WHOLE = {"steps": 1, "size": 1, "points": 2}
"""The least value of options that are whole numbers."""
SCORES = ("probability", "logit")


@dataclass(frozen=True)
class Metric:
    """A way to score maps.

    Attributes:
        name: its name with perturbation and options, as ``get_metric`` takes it.
        direction: "higher" or "lower": which is better.
        range: the least and the greatest value it can have.
        measures: one sentence on what it measures.
        needs: of "model", "masks", "recompute", "without" and "image", what it lacks otherwise.
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


def check_option(key: str, value: object) -> None:
    """Refuse a value that no metric can use, whatever the inputs are."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in WHOLE:
        check_whole(key, value, WHOLE[key])
    elif key == "score" and value not in SCORES:
        raise InputError(f"score must be one of {', '.join(map(repr, SCORES))}; got {value!r}")
    elif key == "k" and not (
        number and (value >= 1 if isinstance(value, int) else 0 < value < 1)  # type: ignore[operator]
    ):
        raise InputError(
            f"{key} must be a whole number from 1, or a share between 0 and 1; got {value!r}"
        )
    elif key == "amplitude" and not (number and 0 <= value < float("inf")):  # type: ignore[operator]
        raise InputError(f"amplitude must be a number from 0; got {value!r}")
    elif key == "ks" and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise InputError(
            f"ks must be a list of counts or shares, as jaccard(ks=[...]); got {value!r}"
        )
