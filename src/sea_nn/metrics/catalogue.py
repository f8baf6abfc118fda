"""The metrics by name: what each measures, its range, and whether higher or lower is better.

>>> metric = get_metric("deletion:blur,steps=14")
>>> metric.name, metric.direction, metric.range
('deletion:blur,steps=14', 'lower', (0.0, 1.0))
"""

import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

import torch
from torch import Tensor

from sea_nn.config import check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.metrics import positions
from sea_nn.metrics.map_batch import MapBatch, Metric, MetricValues, PerturbationKind
from sea_nn.questions.absent import PERTURBATIONS

WINDOWS = 7
STEPS = 28
UNBOUNDED = (-math.inf, math.inf)


def deletion(perturbation: PerturbationKind = "blur", *, steps: int | None = None) -> Metric:
    """How fast the class score falls as the most relevant positions are hidden.

    It is the area under the score over the share hidden.

    Args:
        perturbation: how positions are hidden.
        steps: equal steps to everything hidden; left out 28, or one a position where there are
            fewer.
    """
    return _by_pixels(deletion, perturbation, steps)


def insertion(perturbation: PerturbationKind = "blur", *, steps: int | None = None) -> Metric:
    """How fast the class score rises as the most relevant positions are shown.

    It is the area under the score over the share shown; arguments are those of ``deletion``.
    """
    return _by_pixels(insertion, perturbation, steps)


def aupc_pixels(perturbation: PerturbationKind = "black") -> Metric:
    """How fast the class score falls as the most relevant pixels are hidden, in equal steps.

    The top 1/28 of the pixels at a time, points 1 apart [M13]: it is 28 times ``deletion``, in the
    unit the paper reports for brain tumours.
    """
    return _by_pixels(aupc_pixels, perturbation, None)


def aupc_windows(perturbation: PerturbationKind = "noise", *, size: int | None = None) -> Metric:
    """How fast the class score falls as the windows of the largest mean relevance are hidden.

    No window lies over another [M13]. The curve has 8 points: the intact input and 7 windows. Where
    greedy windows leave no room for another, it stays at its last value; points are 1 apart.

    Args:
        perturbation: how windows are hidden.
        size: side of a window; left out 16, or 8 for images under 64 pixels, as in the paper.
    """
    return _by_windows(aupc_windows, perturbation, size)


def aupc_authors(perturbation: PerturbationKind = "noise", *, size: int | None = None) -> Metric:
    """AUPC in the form of the paper's code: logit relative to the intact input's, by windows.

    What the paper's figures are to be compared with [M13]. The score is the class's logit over its
    absolute value for the intact input (nan where that is 0); windows are chosen by mean absolute
    relevance and never touch the lower and the right border; the area is by Simpson's rule over the
    intact input and the first 7 windows. Where fewer windows fit, the area is that of the shorter
    curve, so a map whose windows block each other looks better than it is: ``aupc_windows`` does
    not have this flaw. Their perturbation is uniform noise in [0, 1] of the pixel scale; on
    Fashion-MNIST, whose inputs ran to 255, that is black: use ``aupc_authors:black`` for inputs in
    [0, 1].
    """
    return _by_windows(aupc_authors, perturbation, size)


def _of_maps(function: Callable[..., Tensor]) -> Callable[[], Metric]:
    """A metric of the maps alone, between 0 and 1, from a function of ``positions``."""
    takes = {"maps", "masks", "seed", "first"} & set(inspect.signature(function).parameters)

    def compute(batch: MapBatch) -> MetricValues:
        found = function(**{name: getattr(batch, name) for name in takes})
        return MetricValues(found) if found.ndim == 2 else MetricValues(found.mean(-1), found)

    name, needs = function.__name__, frozenset({"masks"} & takes)
    return lambda: Metric(name, "higher", (0.0, 1.0), _say(function), needs, compute)


_ASKING = (aupc_pixels, aupc_windows, aupc_authors, deletion, insertion)
_ALONE = ("jaccard", "relevance_mass", "rank_accuracy", "pointing_game", "gini")
METRICS: dict[str, Callable[..., Metric]] = {one.__name__: one for one in _ASKING}
METRICS |= {name: _of_maps(getattr(positions, name)) for name in _ALONE}


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
    options: dict[str, object] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.strip().partition("=")
        options[key if equals else "perturbation"] = value if equals else key
        if equals and re.fullmatch(r"[0-9.]+", value):
            options[key] = json.loads(value)
    factory = METRICS[head]
    if options.keys() - (known := inspect.signature(factory).parameters).keys():
        takes = ", ".join(known) or "none"
        raise InputError(f"{rest!r} in {name!r} is no option of {head}; its options: {takes}")
    return replace(factory(**options), name=name)


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


def _say(function: Callable[..., object]) -> str:
    """What a metric measures: the first line of its docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


def _by_pixels(factory: Callable[..., Metric], how: PerturbationKind, steps: int | None) -> Metric:
    """A metric of what the model says as positions are hidden or shown in equal steps."""
    insert, summed = factory is insertion, factory is aupc_pixels
    if steps is not None:
        check_whole("steps", steps, 1)

    def compute(batch: MapBatch) -> MetricValues:
        last = min(STEPS, batch.n) if steps is None else steps
        curve = batch.trace_pixels(how, last, insert).score
        notes = (f"{STEPS} steps were asked for, and there are {batch.n} positions: one a step",)
        short = summed and last < STEPS
        area = torch.trapezoid(curve, dx=1.0 if summed else 1 / last)
        return MetricValues(area, curve, notes if short else ())

    found = _of_answers(factory, how, compute, (0.0, float(STEPS) if summed else 1.0))
    return replace(found, direction="higher") if insert else found


def _by_windows(factory: Callable[..., Metric], how: PerturbationKind, size: int | None) -> Metric:
    """A metric of what the model says as windows of positions are hidden, one after another."""
    authors, bounds = factory is aupc_authors, (0.0, float(WINDOWS))
    then = "their areas cover fewer points" if authors else "their curves stay at the last value"
    if size is not None:
        check_whole("size", size, 1)

    def compute(batch: MapBatch) -> MetricValues:
        if authors and bool((batch.maps < 0).any()):
            raise InputError("aupc_authors takes maps that are not negative; take maps.abs()")
        side, notes = size or (8 if min(batch.maps.shape[2:]) < 64 else 16), []
        draws = {"seed": batch.seed, "first": batch.first}
        steps, found = positions.window_steps(batch.maps, side, WINDOWS, edge=not authors, **draws)
        answers = batch.trace(how, steps, WINDOWS)
        if bool((found < WINDOWS).any()):
            notes.append(f"fewer than {WINDOWS} windows fit into some maps; {then}")
        if not authors:
            return MetricValues(torch.trapezoid(answers.score), answers.score, tuple(notes))
        start = answers.logit[..., :1].abs()
        if bool((start[:, 0, 0] == 0).any()):
            notes.append("the intact input's score is 0: the relative score is undefined (nan)")
        curve = answers.logit / torch.where(start == 0, torch.nan, start)
        return MetricValues(simpson(curve, found + 1), curve, tuple(notes))

    return _of_answers(factory, how, compute, UNBOUNDED if authors else bounds, "image")


def _of_answers(
    factory: Callable[..., Metric],
    how: PerturbationKind,
    compute: Callable[[MapBatch], MetricValues],
    bounds: tuple[float, float],
    *needs: str,
) -> Metric:
    """A metric of what the model answers, better the lower it is."""
    if isinstance(how, str) and how not in PERTURBATIONS:
        raise InputError(
            f"there is no perturbation {how!r}; choose from {', '.join(PERTURBATIONS)}"
        )
    label = f"{factory.__name__}:{how if isinstance(how, str) else 'values'}"
    return Metric(label, "lower", bounds, _say(factory), frozenset({"model", *needs}), compute)


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
