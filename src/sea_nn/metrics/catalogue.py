"""The metrics by name: what each measures, its range, and whether higher or lower is better.

>>> metric = get_metric("deletion:mean")
>>> metric.name, metric.direction, metric.range
('deletion:mean', 'lower', (0.0, 1.0))
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.metrics import positions
from sea_nn.metrics.map_batch import MapBatch, Metric, MetricValues, PerturbationKind
from sea_nn.questions.absent import PERTURBATIONS

STEPS, WINDOWS = 28, 7
SIDE, SMALL_SIDE, SMALL = 16, 8, 64  # of a window; for images under so many pixels, as in the paper
UNBOUNDED = (-math.inf, math.inf)


def score_pixels(
    batch: MapBatch, how: PerturbationKind, insert: bool = False, summed: bool = False
) -> MetricValues:
    """The area under the score as positions are hidden, or inserted, in 28 equal steps.

    Where there are fewer positions, each is a step. Points are 1 apart where the area is
    ``summed``, which is the paper's unit for brain tumours [M13], else a share of all.
    """
    steps = min(STEPS, batch.n)
    curve = batch.trace_pixels(how, steps, insert).score
    notes = (f"{STEPS} steps were asked for, and there are {batch.n} positions: one a step",)
    area = torch.trapezoid(curve, dx=1.0 if summed else 1 / steps)
    return MetricValues(area, curve, notes if summed and steps < STEPS else ())


def score_windows(batch: MapBatch, how: PerturbationKind) -> MetricValues:
    """The area under the score as windows of the largest mean relevance are hidden.

    No window lies over another [M13]. The curve has 8 points: the intact input and 7 windows. Where
    greedy windows leave no room for another, it stays at its last value; points are 1 apart.
    """
    steps, found = _choose_windows(batch, edge=True)
    curve = batch.trace(how, steps, WINDOWS).score
    short = f"fewer than {WINDOWS} windows fit into some maps; their curves stay at the last value"
    notes = (short,) if bool((found < WINDOWS).any()) else ()
    return MetricValues(torch.trapezoid(curve), curve, notes)


def score_as_authors(batch: MapBatch, how: PerturbationKind) -> MetricValues:
    """AUPC in the form of the paper's code, with which the paper's figures are to be compared.

    The score is the class's logit over its absolute value for the intact input (nan where that is
    0); windows are chosen by mean absolute relevance and never touch the lower and the right
    border; the area is by Simpson's rule over the intact input and the first 7 windows. Where fewer
    windows fit, the area is that of the shorter curve, so a map whose windows block each other
    looks better than it is: ``score_windows`` does not have this flaw. The paper's perturbation is
    uniform noise in [0, 1] of the pixel scale; on Fashion-MNIST, whose inputs ran to 255, that is
    black.
    """
    if bool((batch.maps < 0).any()):
        raise InputError("aupc_authors takes maps that are not negative; take maps.abs()")
    steps, found = _choose_windows(batch, edge=False)
    answers, notes = batch.trace(how, steps, WINDOWS), []
    if bool((found < WINDOWS).any()):
        short = f"fewer than {WINDOWS} windows fit into some maps; their areas cover fewer points"
        notes.append(short)
    start = answers.logit[..., :1].abs()
    if bool((start[:, 0, 0] == 0).any()):
        notes.append("the intact input's score is 0: the relative score is undefined (nan)")
    curve = answers.logit / torch.where(start == 0, torch.nan, start)
    return MetricValues(simpson(curve, found + 1), curve, tuple(notes))


def _choose_windows(batch: MapBatch, edge: bool) -> tuple[Tensor, Tensor]:
    side = SMALL_SIDE if min(batch.maps.shape[2:]) < SMALL else SIDE
    draws: Any = {"edge": edge, "seed": batch.seed, "first": batch.first}
    return positions.window_steps(batch.maps, side, WINDOWS, **draws)


_FALL, _RISE = "How fast the class score falls as", "How fast the class score rises as"
ASKING: dict[str, tuple[Any, ...]] = {
    "aupc_pixels": (
        "black", (0.0, float(STEPS)), partial(score_pixels, summed=True),
        f"{_FALL} the most relevant pixels are hidden, in equal steps.",
    ),
    "aupc_windows": (
        "noise", (0.0, float(WINDOWS)), score_windows,
        f"{_FALL} the windows of the largest mean relevance are hidden.",
    ),
    "aupc_authors": (
        "noise", UNBOUNDED, score_as_authors,
        "AUPC in the form of the paper's code: logit relative to the intact input's, by windows.",
    ),
    "deletion": (
        "blur", (0.0, 1.0), score_pixels, f"{_FALL} the most relevant positions are hidden.",
    ),
    "insertion": (
        "blur", (0.0, 1.0), partial(score_pixels, insert=True),
        f"{_RISE} the most relevant positions are shown.",
    ),
}  # fmt: skip
"""Metrics that ask the model: how positions are hidden if nothing is said, range, what computes
them, and what they measure."""


def _ask(name: str, how: PerturbationKind | None = None) -> Metric:
    """A metric that asks the model; ``how`` positions are hidden: by a name, or values."""
    default, bounds, compute, measures = ASKING[name]
    how = default if how is None else how
    if isinstance(how, str) and how not in PERTURBATIONS:
        raise InputError(
            f"there is no perturbation {how!r}; choose from {', '.join(PERTURBATIONS)}"
        )
    label = f"{name}:{how if isinstance(how, str) else 'values'}"
    better: Any = "higher" if name == "insertion" else "lower"
    needs = {"model", "image"} if compute in (score_windows, score_as_authors) else {"model"}
    return Metric(label, better, bounds, measures, frozenset(needs), partial(compute, how=how))


def _of_maps(function: Callable[..., Tensor]) -> Callable[[], Metric]:
    """A metric of the maps alone, between 0 and 1, from a function of ``positions``."""
    takes = {"maps", "masks", "seed", "first"} & set(inspect.signature(function).parameters)

    def compute(batch: MapBatch) -> MetricValues:
        found = function(**{name: getattr(batch, name) for name in takes})
        return MetricValues(found) if found.ndim == 2 else MetricValues(found.mean(-1), found)

    name, needs = function.__name__, frozenset({"masks"} & takes)
    measures = (inspect.getdoc(function) or "").partition("\n")[0]
    return lambda: Metric(name, "higher", (0.0, 1.0), measures, needs, compute)


_ALONE = ("jaccard", "relevance_mass", "rank_accuracy", "pointing_game", "gini")
METRICS: dict[str, Callable[..., Metric]] = {name: partial(_ask, name) for name in ASKING}
METRICS |= {name: _of_maps(getattr(positions, name)) for name in _ALONE}


def get_metric(name: str | Metric) -> Metric:
    """Return a metric by name: ``NAME`` or ``NAME:PERTURBATION``.

    The metric keeps the name it was asked for by.

    >>> get_metric("insertion").name, METRICS["insertion"]().name
    ('insertion', 'insertion:blur')
    """
    if isinstance(name, Metric):
        return name
    if not isinstance(name, str):
        raise KindError(f"a metric is a name or a Metric, not {type(name).__name__}")
    head, colon, how = name.partition(":")
    if head not in METRICS:
        near = get_close_matches(head, METRICS, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"there is no metric {head!r}; {hint}metrics: {', '.join(METRICS)}")
    if colon and head not in ASKING:
        raise InputError(f"{head} asks no model, and takes no perturbation; got {name!r}")
    return replace(METRICS[head](*[how] if colon else ()), name=name)


def describe_metrics() -> str:
    """Return a table of all metrics: name, direction, range, what it measures and needs.

    >>> print(describe_metrics().splitlines()[0])
    | metric | better | range | measures | needs |
    """
    lines = ["| metric | better | range | measures | needs |", "|---|---|---|---|---|"]
    for one in (factory() for factory in METRICS.values()):
        low, high = one.range
        needs = ", ".join(sorted(one.needs)) or "maps only"
        better = f"{one.direction} {one.arrow} | {low:g} to {high:g}"
        lines.append(f"| {one.name} | {better} | {one.measures} | {needs} |")
    return "\n".join(lines)


def simpson(curves: Tensor, counts: Tensor) -> Tensor:
    """Return the area under the ``counts`` first points of curves [..., points], 1 apart.

    With an even number of points Simpson's rule leaves one interval over; it is taken by the
    trapezoid rule once at the end and once at the start, and the two areas are averaged (what
    SciPy's ``simps`` did when the paper was written).

    >>> simpson(torch.tensor([[0.0, 1.0, 4.0]]), torch.tensor([3]))
    tensor([2.6667])
    """
    areas = [_simpson(curves[..., : last + 1]) for last in range(curves.shape[-1])]
    return torch.stack(areas, -1).gather(-1, counts[..., None] - 1).squeeze(-1)


def _simpson(points: Tensor) -> Tensor:
    if points.shape[-1] % 2:
        middle = 4 * points[..., 1:-1:2]
        return (points[..., :-2:2] + middle + points[..., 2::2]).sum(-1) / 3
    at_end = _simpson(points[..., :-1]) + points[..., -2:].mean(-1)
    at_start = _simpson(points[..., 1:]) + points[..., :2].mean(-1)
    return (at_end + at_start) / 2
