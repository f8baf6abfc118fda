"""Metrics that ask the model: does hiding what the map calls relevant change its answer? [M13]."""

import math

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.metrics.curve import ScoreKind, simpson, trapezoid
from sea_nn.metrics.map_batch import MapBatch, Metric, MetricValues, PerturbationKind

POINTS = 8
STEPS = 28


def deletion(
    perturbation: PerturbationKind = "blur",
    *,
    steps: int | None = None,
    score: ScoreKind = "probability",
) -> Metric:
    """Hide the most relevant positions first; area under the class score over the share hidden.

    Args:
        perturbation: how positions are hidden.
        steps: equal steps to everything hidden; left out 28, or one a position where there are
            fewer.
        score: the class's "probability", or its "logit": the model's output as it is.
    """
    return _curve_metric("deletion", False, perturbation, steps, score)


def insertion(
    perturbation: PerturbationKind = "blur",
    *,
    steps: int | None = None,
    score: ScoreKind = "probability",
) -> Metric:
    """Show the most relevant positions first; area under the class score over the share shown.

    The arguments are those of ``deletion``.
    """
    return _curve_metric("insertion", True, perturbation, steps, score)


def aupc_pixels(
    perturbation: PerturbationKind = "black",
    *,
    steps: int = STEPS,
    score: ScoreKind = "probability",
) -> Metric:
    """Hide the top 1/28 of the pixels at a time; area under the score, steps 1 apart [M13].

    It is ``steps`` times ``deletion``, in the unit the paper reports for brain tumours.
    """

    def compute(batch: MapBatch) -> MetricValues:
        step_maps, last = batch.pixel_steps(min(steps, batch.n))
        answers = batch.trace(("pixels", last), perturbation, step_maps, last)
        curve = answers.read_as(score)
        notes = (f"{steps} steps were asked for, and there are {batch.n} positions: one a step",)
        axis = tuple(map(float, range(last + 1)))
        return MetricValues(trapezoid(curve), curve, axis, notes if last < steps else ())

    return Metric(
        _name("aupc_pixels", perturbation),
        "lower",
        (0.0, float(steps)) if score == "probability" else (-math.inf, math.inf),
        "How fast the class score falls as the most relevant pixels are hidden, in equal steps.",
        frozenset({"model"}),
        compute,
    )


def aupc_windows(
    perturbation: PerturbationKind = "noise",
    *,
    size: int | None = None,
    points: int = POINTS,
    score: ScoreKind = "probability",
) -> Metric:
    """Hide windows by mean relevance, none over another; area under the score [M13].

    The curve has 8 points: the intact input and 7 windows. Where greedy windows leave no room for
    another, the curve stays at its last value. The area is by the trapezoid rule, points 1 apart.

    Args:
        perturbation: how windows are hidden.
        size: side of a window; left out 16, or 8 for images under 64 pixels, as in the paper.
        points: points of the curve.
        score: the class's "probability" or its "logit".
    """

    def compute(batch: MapBatch) -> MetricValues:
        curve, found = _window_curve(batch, perturbation, size, points, True, score)
        notes = _note_room(found, points - 1, "their curves stay at the last value")
        return MetricValues(trapezoid(curve), curve, tuple(map(float, range(points))), notes)

    return Metric(
        _name("aupc_windows", perturbation),
        "lower",
        (0.0, points - 1.0) if score == "probability" else (-math.inf, math.inf),
        "How fast the class score falls as the windows of the largest mean relevance are hidden.",
        frozenset({"model", "image"}),
        compute,
    )


def aupc_authors(
    perturbation: PerturbationKind = "noise", *, size: int | None = None, points: int = POINTS
) -> Metric:
    """AUPC as the authors' published code computes it [M13], to compare with the paper's figures.

    The score is the class's logit over its absolute value for the intact input (nan where that is
    0); windows are chosen by mean absolute relevance and never touch the lower and the right
    border; the area is by Simpson's rule over the intact input and the first 7 windows. Where fewer
    windows fit, the area is that of the shorter curve, so a map whose windows block each other
    looks better than it is: ``aupc_windows`` does not have this flaw. Their perturbation is uniform
    noise in [0, 1] of the pixel scale; on Fashion-MNIST, whose inputs ran to 255, that is black:
    use ``aupc_authors:black`` for inputs in [0, 1].
    """

    def compute(batch: MapBatch) -> MetricValues:
        if bool((batch.maps < 0).any()):
            raise InputError("aupc_authors takes maps that are not negative; take maps.abs()")
        curve, found = _window_curve(batch, perturbation, size, points, False, "logit")
        notes = _note_room(found, points - 1, "their areas cover fewer points")
        curve, more = _relative(curve)
        area = simpson(curve, found + 1)
        return MetricValues(area, curve, tuple(map(float, range(points))), notes + more)

    return Metric(
        _name("aupc_authors", perturbation),
        "lower",
        (-math.inf, math.inf),
        "AUPC in the form of the paper's code: logit relative to the intact input's, by windows.",
        frozenset({"model", "image"}),
        compute,
    )


def _curve_metric(
    name: str,
    insert: bool,
    kind: PerturbationKind,
    steps: int | None,
    score: ScoreKind,
) -> Metric:
    def compute(batch: MapBatch) -> MetricValues:
        step_maps, last = batch.pixel_steps(min(STEPS, batch.n) if steps is None else steps)
        curve = batch.trace(("pixels", last), kind, step_maps, last, insert).read_as(score)
        axis = tuple(step / last for step in range(last + 1))
        return MetricValues(trapezoid(curve, 1 / last), curve, axis)

    return Metric(
        _name(name, kind),
        "higher" if insert else "lower",
        (0.0, 1.0) if score == "probability" else (-math.inf, math.inf),
        "How fast the class score rises as the most relevant positions are shown."
        if insert
        else "How fast the class score falls as the most relevant positions are hidden.",
        frozenset({"model"}),
        compute,
    )


def _name(name: str, kind: PerturbationKind) -> str:
    return f"{name}:{kind if isinstance(kind, str) else 'values'}"


def _window_curve(
    batch: MapBatch,
    kind: PerturbationKind,
    size: int | None,
    points: int,
    edge: bool,
    score: ScoreKind,
) -> tuple[Tensor, Tensor]:
    side = size if size is not None else 8 if min(batch.shape) < 64 else 16
    step_maps, found = batch.window_steps(side, points - 1, edge)
    answers = batch.trace(("windows", side, points, edge), kind, step_maps, points - 1)
    return answers.read_as(score), found


def _relative(curve: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """Divide by the intact input's absolute score; undefined, so nan, where that is 0."""
    start = curve[..., :1].abs()
    undefined = int((start[:, 0, 0] == 0).sum())
    notes = ("the intact input's score is 0, so the relative score is undefined (nan)",)
    divided = curve / torch.where(start == 0, torch.nan, start)
    return divided, notes if undefined else ()


def _note_room(found: Tensor, wanted: int, then: str) -> tuple[str, ...]:
    short = int((found < wanted).sum())
    return (f"fewer than {wanted} windows fit into some maps; {then}",) if short else ()
