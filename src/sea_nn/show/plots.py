"""Figures of explanations: one call that suits an Explanation, and those of images.

A figure is a matplotlib one that has nothing to do with pyplot, one row an input.
``sea_nn.show.charts`` draws tables, texts, series, gains, curves and agreement.

A volume [D, H, W] is cut along its first axis; permute it to look along another. The axis falls
into runs of equal length, and each is shown by the slice that holds most, so that slices are spread
over the volume and miss no spot. Colours are those of the whole volume, not of each slice.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from matplotlib import rc_context

from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation, PlotKind
from sea_nn.paper.heatmaps import binarize
from sea_nn.show.charts import plot_agreement, plot_bars, plot_curve, plot_gains, plot_series
from sea_nn.show.panels import (
    ACCENT,
    STYLE,
    Array,
    ArrayLike,
    Plot,
    blend,
    grey,
    heat,
    name_features_of,
    name_method,
    name_rows,
    paint,
    panel_grid,
    to_array,
)

MOST_SLICES = 6
COVER = 0.55  # of a volume whole blocks are hot: what lies below must still be seen
CHARTS = {"gains": plot_gains, "curve": plot_curve, "agreement": plot_agreement}
VIEWS = {"words": plot_bars, "bars": plot_bars, "lines": plot_series}


def plot_explanation(
    explanation: Explanation,
    kind: PlotKind = "strip",
    path: str | Path | None = None,
    p: Sequence[int | float] | None = None,
) -> Plot:
    """Draw an Explanation; tables become bars and series lines where images have maps.

    The figure is written where there is a ``path``; ``p`` are the sizes that "top" shows, as counts
    or fractions of the features.
    """
    e = explanation
    if str(kind) not in get_args(PlotKind):
        kinds = ", ".join(get_args(PlotKind))
        raise InputError(f"unknown kind of plot {kind!r}; choose one of: {kinds}")
    if e.parts and kind not in ("gains", "agreement"):
        known = ", ".join(repr(part.name) for part in e.parts)
        raise InputError(f"plot one of several inputs: explanation.part(...) of {known}")
    with rc_context(STYLE):
        if kind in CHARTS:
            figure = CHARTS[kind](e)
        elif kind == "top":
            figure = _plot_top(e, [e.count(size) for size in p or e.default_sizes()])
        elif e.view in VIEWS:
            figure = VIEWS[e.view](e)
        elif e.view == "slices":
            figure = _plot_slices(e)
        elif kind == "overlay" and e.images is None:
            raise InputError("an overlay needs images; this explanation has none: plot the strip")
        else:
            figure = _plot_strip(e, overlay=kind == "overlay")
    return figure.write(path)


@rc_context(STYLE)
def plot_class_map(
    class_map: ArrayLike,
    images: ArrayLike,
    label: str = "class",
    path: str | Path | None = None,
    examples: int = 5,
) -> Plot:
    """A class-level map, [H, W] or [1, H, W], alone and laid over the first images of the class."""
    values = to_array(class_map)
    values = values.reshape(values.shape[-2:])
    pictures = to_array(images)[:examples]
    position = heat(values, 0)
    titles = [f"class map: {label}", *(f"example {k + 1}" for k in range(len(pictures)))]
    row = [paint(position), *(blend(image, position) for image in pictures)]
    return panel_grid([row], titles, [""])[0].write(path)


def pick_slices(attribution: ArrayLike, count: int = MOST_SLICES) -> list[int]:
    """The slices worth looking at, of a volume [D, H, W]: at most ``count``, from first to last.

    >>> volume = np.zeros((6, 2, 2))
    >>> volume[[1, 5]] = 1.0
    >>> pick_slices(volume, 2)
    [1, 5]
    """
    mass = to_array(attribution).sum((1, 2))
    picked = []
    for run in np.array_split(np.arange(len(mass)), min(count, len(mass))):
        inside = mass[run]
        # A run without evidence is shown by its middle, not by its edge.
        best = int(inside.argmax()) if inside.max() > inside.min() else len(run) // 2
        picked.append(int(run[best]))
    return picked


def paint_slices(
    attribution: ArrayLike, picked: Sequence[int], images: ArrayLike | None = None
) -> Array:
    """Slices as pictures, [k, H, W, 3]: the map alone, or over the images uint8 [D, H, W, 3]."""
    positions = heat(attribution, 0)[list(picked)]
    if images is None:
        return paint(positions)
    below = to_array(images)[list(picked)]
    return np.stack([blend(*pair, most=COVER) for pair in zip(below, positions, strict=True)])


def tile(slices: Array) -> Array:
    """Slices [k, H, W, ...] as one picture, row by row; what is left over is 0.

    >>> tile(np.arange(3).reshape(3, 1, 1)).tolist()
    [[0, 1], [2, 0]]
    """
    count, height, width = slices.shape[:3]
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    spare = [(0, rows * columns - count), *[(0, 0)] * (slices.ndim - 1)]
    grid = np.pad(slices, spare).reshape(rows, columns, *slices.shape[1:]).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, *slices.shape[3:])


def _plot_strip(e: Explanation, overlay: bool) -> Plot:
    """The comparison strip: input, SEA, evidence against, every member, Agg-Mean, on one scale.

    With ``overlay`` every map is laid over a grey copy of the image.
    """
    titles, layers = ["SEA"], [e.soften(e.attribution.reshape(len(e), 1, *e.shape))]
    below = e.sum_gains()[1] > 0
    if e.against is not None and bool((e.against.flatten(1).any(1) & below).any()):
        titles.append("against")
        layers.append(e.soften(e.against.reshape(layers[0].shape)))
    titles += [*map(name_method, e.methods), "Agg-Mean"]
    positions = heat(torch.cat([*layers, e.maps, e.mean_map.unsqueeze(1)], 1), 2)
    rows = [[paint(position) for position in row] for row in positions]
    if e.images is not None:
        images = to_array(e.images)
        if overlay:
            pairs = zip(images, positions, strict=True)
            rows = [[blend(image, position) for position in row] for image, row in pairs]
        titles, rows = ["input", *titles], [[i, *row] for i, row in zip(images, rows, strict=True)]
    return panel_grid(rows, titles, name_rows(e), _say_unit(e))[0]


def _plot_top(e: Explanation, sizes: Sequence[int]) -> Plot:
    """Which features each method puts first: SEA's greedy set on top, the members' below."""
    if e.view != "picture":
        raise InputError(
            'a plot of "top" lights pixels, and this explanation has none: plot the strip, or '
            "e.top(p) has the first features"
        )
    n, others = e.order.shape[1], torch.cat([e.maps, e.mean_map.unsqueeze(1)], 1)
    # A map that is zero everywhere has no top: ties would light its first features.
    alive = others.flatten(2).any(2)[..., None, None]
    own = e.order.argsort(1)[:, None, None] < torch.tensor(sizes).to(e.order)[:, None]
    chosen = torch.cat([own, binarize(e.average(others), sizes) & alive], 1)
    masks = torch.stack([e.spread(one) for one in chosen.flatten(1, 2).unbind(1)], 1)
    masks = masks.unflatten(1, (-1, len(sizes)))
    positions = heat(torch.cat([e.soften(e.attribution), others], 1), 2)
    titles = ["map", *(f"{size:,} of {n:,} ({_percent(size / n)})" for size in sizes)]
    methods, rows, labels = ["SEA", *map(name_method, e.methods), "Agg-Mean"], [], []
    for (i, r), name in zip(np.ndindex(positions.shape[:2]), methods * len(e), strict=True):
        picture = np.full((1, 1, 3), 150) if e.images is None else to_array(e.images[i])
        shown = [_light(picture, mask) for mask in to_array(masks[i, r])]
        rows.append([paint(positions[i, r]), *shown])
        labels.append(name if len(e) == 1 else f"{name_rows(e)[i]}: {name}")
    return panel_grid(rows, titles, labels)[0]


def _plot_slices(e: Explanation) -> Plot:
    """Volumes as rows of slices, each named by its number, over their images."""
    maps = to_array(e.attribution)[:, 0]
    picked = [pick_slices(volume) for volume in maps]
    rows = [
        list(paint_slices(volume, picked[i], None if e.images is None else e.images[i]))
        for i, volume in enumerate(maps)
    ]
    figure, axes = panel_grid(rows, [""] * len(picked[0]), name_rows(e), _say_unit(e))
    for panel, k in zip(axes.flat, np.ravel(picked), strict=True):
        box = {"facecolor": "black", "alpha": 0.6, "lw": 0, "pad": 1.5}
        place = {"transform": panel.transAxes, "va": "top", "fontsize": 7}
        panel.text(0.03, 0.97, f"slice {k}", color="white", bbox=box, **place)
    return figure


def _say_unit(e: Explanation) -> str:
    """The unit of SEA's map, and of one input what the mean is in it; "" where it has none."""
    if not e.unit or len(e) > 1:
        return e.unit
    mean = float(e.sum_gains()[0]) / e.gains.shape[1]
    return f"{e.unit}: 1× is {mean:.2g} a {name_features_of(e)[0]}"


def _percent(share: float) -> str:
    """A share in per cent: one decimal from 1 % up, below it two digits that count (0.04 %)."""
    return f"{100 * share:{'.1f' if share >= 0.00995 else '.2g'}}\u00a0%"


def _light(image: Array, mask: Array) -> Array:
    """The image where the mask is set, in its colours and touched with gold; dim grey elsewhere."""
    gold = np.array([int(ACCENT[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    lit = 0.5 * (0.3 + 0.7 * image / 255) + 0.5 * gold
    return np.where(mask[..., None], lit, 0.42 * grey(image))
