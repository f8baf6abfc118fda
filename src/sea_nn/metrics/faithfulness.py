"""Metrics that ask the model: does hiding what the map calls relevant change its answer? [M13]."""

import math
from typing import Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.metrics import order
from sea_nn.metrics.curve import simpson, trapezoid
from sea_nn.metrics.map_batch import MapBatch, MetricValues, PerturbationKind, ask_sets
from sea_nn.metrics.metric import Metric, named
from sea_nn.questions.points import ScoreKind

Unit = Literal["pixel", "grid", "superpixel"]
POINTS = 8
STEPS = 28


@named
def deletion(
    perturbation: PerturbationKind = "blur",
    *,
    steps: int | None = None,
    by: Unit = "pixel",
    cells: int = 14,
    score: ScoreKind = "probability",
) -> Metric:
    """Hide the most relevant positions first; area under the class score over the share hidden.

    Args:
        perturbation: how positions are hidden.
        steps: equal steps to everything hidden; left out 28 by pixel, else one for each segment.
        by: "pixel", "grid" (squares by mean relevance) or "superpixel" (the segments given).
        cells: squares along each side of the grid.
        score: the class's "probability", or its "logit": the model's output as it is.
    """
    return _curve_metric("deletion", False, perturbation, steps, by, cells, score)


@named
def insertion(
    perturbation: PerturbationKind = "blur",
    *,
    steps: int | None = None,
    by: Unit = "pixel",
    cells: int = 14,
    score: ScoreKind = "probability",
) -> Metric:
    """Show the most relevant positions first; area under the class score over the share shown.

    The arguments are those of ``deletion``.
    """
    return _curve_metric("insertion", True, perturbation, steps, by, cells, score)


@named
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
        "aupc_pixels",
        "lower",
        (0.0, float(steps)) if score == "probability" else (-math.inf, math.inf),
        "How fast the class score falls as the most relevant pixels are hidden, in equal steps.",
        frozenset({"model"}),
        compute,
    )


@named
def aupc_windows(
    perturbation: PerturbationKind = "noise",
    *,
    size: int | None = None,
    points: int = POINTS,
    score: ScoreKind = "probability",
    relative: bool = False,
) -> Metric:
    """Hide windows by mean relevance, none over another; area under the score [M13].

    The curve has 8 points: the intact input and 7 windows. Where greedy windows leave no room for
    another, the curve stays at its last value. The area is by the trapezoid rule, points 1 apart.

    Args:
        perturbation: how windows are hidden.
        size: side of a window; left out 16, or 8 for images under 64 pixels, as in the paper.
        points: points of the curve.
        score: the class's "probability" or its "logit".
        relative: divide by the intact input's absolute score; nan where that is 0.
    """

    def compute(batch: MapBatch) -> MetricValues:
        curve, found = _window_curve(batch, perturbation, size, points, True, score)
        notes = _note_room(found, points - 1, "their curves stay at the last value")
        if relative:
            curve, more = _relative(curve)
            notes += more
        return MetricValues(trapezoid(curve), curve, tuple(map(float, range(points))), notes)

    bounded = score == "probability" and not relative
    return Metric(
        "aupc_windows",
        "lower",
        (0.0, points - 1.0) if bounded else (-math.inf, math.inf),
        "How fast the class score falls as the windows of the largest mean relevance are hidden.",
        frozenset({"model", "image"}),
        compute,
    )


@named
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
        "aupc_authors",
        "lower",
        (-math.inf, math.inf),
        "AUPC in the form of the paper's code: logit relative to the intact input's, by windows.",
        frozenset({"model", "image"}),
        compute,
    )


@named
def keep(perturbation: PerturbationKind = "blur", *, share: float = 0.1) -> Metric:
    """1 where the explained class is still predicted with only the top share of positions kept."""
    return _set_metric("keep", perturbation, share)


@named
def remove(perturbation: PerturbationKind = "blur", *, share: float = 0.1) -> Metric:
    """1 where the explained class is no longer predicted with the top share of positions hidden."""
    return _set_metric("remove", perturbation, share)


def _curve_metric(
    name: str,
    insert: bool,
    kind: PerturbationKind,
    steps: int | None,
    by: str,
    cells: int,
    score: ScoreKind,
) -> Metric:
    def compute(batch: MapBatch) -> MetricValues:
        key: tuple[object, ...]
        if by == "pixel":
            last = min(STEPS, batch.n) if steps is None else steps
            key = ("pixels", last)
            step_maps, last = batch.pixel_steps(last)
        else:
            key = (f"grid {cells}" if by == "grid" else "superpixels", steps)
            segments = batch.segments
            if by == "grid":
                segments = order.grid_segments(batch.shape, cells, batch.x.device)
            elif segments is None:
                raise InputError(f"{name} by superpixel needs segments=, whole numbers [N, H, W]")
            else:
                own = segments.shape != batch.shape  # one for each input
                segments = segments.flatten(1 if own else 0)
            step_maps, last = batch.segment_steps(segments, steps, str(key[0]))
        curve = batch.trace(key, kind, step_maps, last, insert).read_as(score)
        axis = tuple(step / last for step in range(last + 1))
        return MetricValues(trapezoid(curve, 1 / last), curve, axis)

    needs = {"pixel": {"model"}, "grid": {"model", "image"}, "superpixel": {"model", "segments"}}
    return Metric(
        name,
        "higher" if insert else "lower",
        (0.0, 1.0) if score == "probability" else (-math.inf, math.inf),
        "How fast the class score rises as the most relevant positions are shown."
        if insert
        else "How fast the class score falls as the most relevant positions are hidden.",
        frozenset(needs[by]),
        compute,
    )


def _set_metric(name: str, kind: PerturbationKind, share: float) -> Metric:
    def compute(batch: MapBatch) -> MetricValues:
        sets = order.top_sets(batch.maps.flatten(2), share, batch.seed, batch.first)
        batch.need_model().meaning().check_class()
        answers = ask_sets(batch, kind, sets.view(batch.maps.shape), keep=name == "keep")
        same = answers.predicted
        return MetricValues((same if name == "keep" else ~same).to(batch.maps.dtype))

    return Metric(
        name,
        "higher",
        (0.0, 1.0),
        "Whether the most relevant positions alone keep the prediction."
        if name == "keep"
        else "Whether the prediction breaks without the most relevant positions.",
        frozenset({"model"}),
        compute,
    )


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
