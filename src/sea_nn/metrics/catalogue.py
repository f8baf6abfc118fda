"""The metrics by name: what each measures, its range, and whether higher or lower is better.

>>> metric = get_metric("deletion:blur,steps=14")
>>> metric.name, metric.direction, metric.range
('deletion:blur,steps=14', 'lower', (0.0, 1.0))
"""

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches

import torch
from torch import Tensor

from sea_nn.config import check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.metrics import concentration
from sea_nn.metrics.curve import simpson, trapezoid
from sea_nn.metrics.map_batch import MapBatch, Metric, MetricValues, PerturbationKind, PointOutputs
from sea_nn.questions.absent import PERTURBATIONS

WINDOWS = 7
STEPS = 28
UNBOUNDED = (-math.inf, math.inf)


def deletion(perturbation: PerturbationKind = "blur", *, steps: int | None = None) -> Metric:
    """Hide the most relevant positions first; area under the class score over the share hidden.

    Args:
        perturbation: how positions are hidden.
        steps: equal steps to everything hidden; left out 28, or one a position where there are
            fewer.
    """
    measures = "How fast the class score falls as the most relevant positions are hidden."
    return _by_pixels("deletion", measures, perturbation, steps)


def insertion(perturbation: PerturbationKind = "blur", *, steps: int | None = None) -> Metric:
    """Show the most relevant positions first; area under the class score over the share shown.

    The arguments are those of ``deletion``.
    """
    measures = "How fast the class score rises as the most relevant positions are shown."
    return _by_pixels("insertion", measures, perturbation, steps)


def aupc_pixels(perturbation: PerturbationKind = "black") -> Metric:
    """Hide the top 1/28 of the pixels at a time; area under the score, steps 1 apart [M13].

    It is 28 times ``deletion``, in the unit the paper reports for brain tumours.
    """
    measures = (
        "How fast the class score falls as the most relevant pixels are hidden, in equal steps."
    )
    return _by_pixels("aupc_pixels", measures, perturbation, None)


def aupc_windows(perturbation: PerturbationKind = "noise", *, size: int | None = None) -> Metric:
    """Hide windows by mean relevance, none over another; area under the score [M13].

    The curve has 8 points: the intact input and 7 windows. Where greedy windows leave no room for
    another, the curve stays at its last value. The area is by the trapezoid rule, points 1 apart.

    Args:
        perturbation: how windows are hidden.
        size: side of a window; left out 16, or 8 for images under 64 pixels, as in the paper.
    """
    trace = _by_windows(perturbation, size, True, "their curves stay at the last value")

    def compute(batch: MapBatch) -> MetricValues:
        answers, _, notes = trace(batch)
        return MetricValues(trapezoid(answers.score), answers.score, notes)

    measures = (
        "How fast the class score falls as the windows of the largest mean relevance are hidden."
    )
    bounds = (0.0, float(WINDOWS))
    return _of_answers("aupc_windows", perturbation, measures, compute, bounds, "image")


def aupc_authors(perturbation: PerturbationKind = "noise", *, size: int | None = None) -> Metric:
    """AUPC as the authors' published code computes it [M13], to compare with the paper's figures.

    The score is the class's logit over its absolute value for the intact input (nan where that is
    0); windows are chosen by mean absolute relevance and never touch the lower and the right
    border; the area is by Simpson's rule over the intact input and the first 7 windows. Where fewer
    windows fit, the area is that of the shorter curve, so a map whose windows block each other
    looks better than it is: ``aupc_windows`` does not have this flaw. Their perturbation is uniform
    noise in [0, 1] of the pixel scale; on Fashion-MNIST, whose inputs ran to 255, that is black:
    use ``aupc_authors:black`` for inputs in [0, 1].
    """
    trace = _by_windows(perturbation, size, False, "their areas cover fewer points")

    def compute(batch: MapBatch) -> MetricValues:
        if bool((batch.maps < 0).any()):
            raise InputError("aupc_authors takes maps that are not negative; take maps.abs()")
        answers, found, notes = trace(batch)
        start = answers.logit[..., :1].abs()
        if bool((start[:, 0, 0] == 0).any()):
            notes += ("the intact input's score is 0, so the relative score is undefined (nan)",)
        curve = answers.logit / torch.where(start == 0, torch.nan, start)
        return MetricValues(simpson(curve, found + 1), curve, notes)

    measures = (
        "AUPC in the form of the paper's code: logit relative to the intact input's, by windows."
    )
    return _of_answers("aupc_authors", perturbation, measures, compute, UNBOUNDED, "image")


def jaccard(ks: Sequence[int | float] = concentration.SHARES) -> Metric:
    """Jaccard index of the map's top k positions and the human's choice, mean over k [M14]."""
    if isinstance(ks, str) or not isinstance(ks, Sequence):
        raise InputError(f"ks must be a list of counts or shares, as jaccard(ks=[...]); got {ks!r}")

    def compute(batch: MapBatch) -> MetricValues:
        curve = concentration.jaccard(batch.maps, batch.masks, ks, batch.seed, batch.first)
        return MetricValues(curve.mean(-1), curve)

    measures = "How far the most relevant positions are those that people marked."
    return Metric("jaccard", "higher", (0.0, 1.0), measures, frozenset({"masks"}), compute)


def _of_maps(
    name: str, measures: str, compute: Callable[[MapBatch], Tensor], *needs: str
) -> dict[str, Callable[..., Metric]]:
    """A metric of the maps alone, between 0 and 1, that has no options."""

    def run(batch: MapBatch) -> MetricValues:
        return MetricValues(compute(batch))

    return {name: lambda: Metric(name, "higher", (0.0, 1.0), measures, frozenset(needs), run)}


METRICS: dict[str, Callable[..., Metric]] = {
    "aupc_pixels": aupc_pixels,
    "aupc_windows": aupc_windows,
    "aupc_authors": aupc_authors,
    "deletion": deletion,
    "insertion": insertion,
    "jaccard": jaccard,
    **_of_maps(
        "relevance_mass",
        "Which share of the map's total lies on the object.",
        lambda batch: concentration.relevance_mass(batch.maps, batch.masks),
        "masks",
    ),
    **_of_maps(
        "rank_accuracy",
        "Which share of the most relevant positions, as many as the object has, lies on it.",
        lambda b: concentration.rank_accuracy(b.maps, b.masks, b.seed, b.first),
        "masks",
    ),
    **_of_maps(
        "pointing_game",
        "Whether the single most relevant position lies on the object.",
        lambda batch: concentration.pointing_game(batch.maps, batch.masks),
        "masks",
    ),
    **_of_maps(
        "gini",
        "How far the map concentrates on few positions (0: even, 1: a single one).",
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
        options[key] = value if key == "perturbation" else _read_number(value)
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


def _by_pixels(name: str, measures: str, how: PerturbationKind, steps: int | None) -> Metric:
    """A metric of what the model says as positions are hidden or shown in equal steps."""
    insert, summed = name == "insertion", name == "aupc_pixels"
    if steps is not None:
        check_whole("steps", steps, 1)

    def compute(batch: MapBatch) -> MetricValues:
        last = min(STEPS, batch.n) if steps is None else steps
        curve = batch.trace_pixels(how, last, insert).score
        notes = (f"{STEPS} steps were asked for, and there are {batch.n} positions: one a step",)
        short = summed and last < STEPS
        area = trapezoid(curve, 1.0 if summed else 1 / last)
        return MetricValues(area, curve, notes if short else ())

    bounds = (0.0, float(STEPS) if summed else 1.0)
    found = _of_answers(name, how, measures, compute, bounds)
    return replace(found, direction="higher") if insert else found


def _by_windows(
    how: PerturbationKind, size: int | None, edge: bool, then: str
) -> Callable[[MapBatch], tuple[PointOutputs, Tensor, tuple[str, ...]]]:
    """What the model says as windows go, how many there was room for, and what that means."""
    if size is not None:
        check_whole("size", size, 1)

    def trace(batch: MapBatch) -> tuple[PointOutputs, Tensor, tuple[str, ...]]:
        side = size if size is not None else 8 if min(batch.maps.shape[2:]) < 64 else 16
        answers, found = batch.trace_windows(how, side, WINDOWS, edge)
        said = f"fewer than {WINDOWS} windows fit into some maps; {then}"
        return answers, found, (said,) if bool((found < WINDOWS).any()) else ()

    return trace


def _of_answers(
    name: str,
    how: PerturbationKind,
    measures: str,
    compute: Callable[[MapBatch], MetricValues],
    bounds: tuple[float, float],
    *needs: str,
) -> Metric:
    """A metric of what the model answers, better the lower it is."""
    if isinstance(how, str) and how not in PERTURBATIONS:
        raise InputError(
            f"there is no perturbation {how!r}; choose from {', '.join(PERTURBATIONS)}"
        )
    label = f"{name}:{how if isinstance(how, str) else 'values'}"
    return Metric(label, "lower", bounds, measures, frozenset({"model", *needs}), compute)


def _read_number(text: str) -> object:
    """The number that an option's text is, if it is one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
