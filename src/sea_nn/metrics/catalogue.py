"""The metrics by name: what each measures, its range, and whether higher or lower is better.

>>> metric = get_metric("deletion:blur,steps=14")
>>> metric.name, metric.direction, metric.range
('deletion:blur,steps=14', 'lower', (0.0, 1.0))
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from torch import Tensor

from sea_nn.config import check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.metrics import concentration, order
from sea_nn.metrics.faithfulness import (
    aupc_authors,
    aupc_pixels,
    aupc_windows,
    deletion,
    insertion,
)
from sea_nn.metrics.map_batch import MapBatch, Metric, MetricValues
from sea_nn.questions.absent import PERTURBATIONS

WHOLE = {"steps": 1, "size": 1, "points": 2}
"""The least value of options that are whole numbers."""
SCORES = ("probability", "logit")


def jaccard(ks: Sequence[int | float] = concentration.SHARES) -> Metric:
    """Jaccard index of the map's top k positions and the human's choice, mean over k [M14]."""

    def compute(batch: MapBatch) -> MetricValues:
        masks = _need_masks(batch)
        curve = concentration.jaccard(batch.maps, masks, ks, batch.seed, batch.first)
        axis = tuple(order.count_top(k, batch.n) / batch.n for k in ks)
        return MetricValues(curve.mean(-1), curve, axis)

    return Metric(
        "jaccard",
        "higher",
        (0.0, 1.0),
        "How far the most relevant positions are those that people marked.",
        frozenset({"masks"}),
        compute,
    )


def _map_metric(
    name: str, measures: str, needs: tuple[str, ...], function: Callable[[MapBatch], Tensor]
) -> Callable[[], Metric]:
    """A metric of the maps alone, between 0 and 1, that has no options."""
    metric = Metric(
        name,
        "higher",
        (0.0, 1.0),
        measures,
        frozenset(needs),
        lambda batch: MetricValues(function(batch)),
    )
    return lambda: metric


METRICS: dict[str, Callable[..., Metric]] = {
    "aupc_pixels": aupc_pixels,
    "aupc_windows": aupc_windows,
    "aupc_authors": aupc_authors,
    "deletion": deletion,
    "insertion": insertion,
    "jaccard": jaccard,
    "relevance_mass": _map_metric(
        "relevance_mass",
        "Which share of the map's total lies on the object.",
        ("masks",),
        lambda batch: concentration.relevance_mass(batch.maps, _need_masks(batch)),
    ),
    "rank_accuracy": _map_metric(
        "rank_accuracy",
        "Which share of the most relevant positions, as many as the object has, lies on it.",
        ("masks",),
        lambda batch: concentration.rank_accuracy(
            batch.maps, _need_masks(batch), batch.seed, batch.first
        ),
    ),
    "pointing_game": _map_metric(
        "pointing_game",
        "Whether the single most relevant position lies on the object.",
        ("masks",),
        lambda batch: concentration.pointing_game(batch.maps, _need_masks(batch)),
    ),
    "gini": _map_metric(
        "gini",
        "How far the map concentrates on few positions (0: even, 1: a single one).",
        (),
        lambda batch: concentration.gini(batch.maps),
    ),
}


def get_metric(name: str | Metric) -> Metric:
    """Return a metric by name: ``NAME[:PERTURBATION][,OPTION=VALUE ...]``.

    The metric keeps the name it was asked for by.

    >>> get_metric("insertion").name, insertion().name
    ('insertion', 'insertion:blur')
    """
    if isinstance(name, Metric):
        return name
    if not isinstance(name, str):
        raise KindError(f"a metric is a name or a Metric, not {type(name).__name__}")
    head, _, rest = name.partition(":")
    if head not in METRICS:
        near = get_close_matches(head, METRICS, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"there is no metric {head!r}; {hint}metrics: {', '.join(METRICS)}")
    factory = METRICS[head]
    known = inspect.signature(factory).parameters
    options: dict[str, object] = {}
    for number, part in enumerate(rest.split(",") if rest else []):
        key, equals, value = part.strip().partition("=")
        if not equals and number == 0 and "perturbation" in known:
            key, value = "perturbation", key
        elif not equals or key not in known:
            takes = ", ".join(known) or "none"
            raise InputError(f"{part!r} in {name!r} is no option of {head}; its options: {takes}")
        options[key] = _read(value)
        _check_option(key, options[key])
    kind = options.get("perturbation", "black")
    if kind not in PERTURBATIONS:
        raise InputError(
            f"there is no perturbation {kind!r} (in {name!r}); choose from "
            f"{', '.join(PERTURBATIONS)}"
        )
    return replace(factory(**options), name=name)


def describe_metrics() -> str:
    """Return a table of all metrics: name, direction, range, what it measures and needs.

    >>> print(describe_metrics().splitlines()[0])
    | metric | better | range | measures | needs |
    """
    lines = ["| metric | better | range | measures | needs |", "|---|---|---|---|---|"]
    for factory in METRICS.values():
        metric = factory()
        low, high = (f"{bound:g}" for bound in metric.range)
        needs = ", ".join(sorted(metric.needs)) or "maps only"
        lines.append(
            f"| {metric.name} | {metric.direction} {metric.arrow} | {low} to {high} | "
            f"{metric.measures} | {needs} |"
        )
    return "\n".join(lines)


def _need_masks(batch: MapBatch) -> Tensor:
    """Return the masks of a batch; ``score_maps`` has checked its own before."""
    if batch.masks is None:
        raise InputError("this metric needs masks=, and the batch has none")
    return batch.masks


def _read(text: str) -> object:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_option(key: str, value: object) -> None:
    """Refuse a value that no metric can use, whatever the inputs are."""
    if key in WHOLE:
        check_whole(key, value, WHOLE[key])
    elif key == "score" and value not in SCORES:
        raise InputError(f"score must be one of {', '.join(map(repr, SCORES))}; got {value!r}")
    elif key == "ks" and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise InputError(
            f"ks must be a list of counts or shares, as jaccard(ks=[...]); got {value!r}"
        )
