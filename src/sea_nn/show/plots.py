"""Figures of explanations: pure functions on arrays, and one call that suits an Explanation.

Every function returns a matplotlib figure, writes it when given a ``path``, draws one row an
input, named by ``labels``, and leaves pyplot alone. ``images`` are uint8 [N, H, W, 3] or None,
``methods`` name the members' ``maps`` [N, m, *shape]; arrays may be numpy or torch. The same holds
for ``sea_nn.show.bars`` and ``sea_nn.show.charts``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.explanation import Explanation, PlotKind
from sea_nn.questions.curve import predict_curve
from sea_nn.show.bars import plot_bars, plot_series, plot_tiers
from sea_nn.show.charts import plot_agreement, plot_curve, plot_gains
from sea_nn.show.nouns import name_features_of
from sea_nn.show.panels import (
    ACCENT,
    Array,
    ArrayLike,
    Plot,
    add_heat_bar,
    blend,
    grey,
    heat,
    name_features,
    name_method,
    paint,
    panel_grid,
    to_array,
)
from sea_nn.show.slices import plot_slices, to_grey
from sea_nn.show.words import plot_words

MOST_ROWS = 32
MOST_PANELS = 8
TINY, DOT = 0.002, 0.01  # the share of the pixels that is hard to see; a dot's side over the map's


def plot_strip(
    attribution: ArrayLike,
    maps: ArrayLike,
    methods: Sequence[str],
    images: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
    unit: str = "",
    against: ArrayLike | None = None,
    overlay: bool = False,
) -> Plot:
    """The comparison strip: input, SEA, every member, Agg-Mean, on one colour scale.

    The SEA map is [N, H, W] or [N, 1, H, W]; ``unit`` is what it is in, where that is known.
    Evidence ``against`` the class, a map like SEA's, stands beside it. With ``overlay`` every map
    is laid over a grey copy of the image.
    """
    titles, layers = _stack(attribution, maps, methods, against)
    positions = heat(layers, 2)
    if overlay and images is not None:
        pairs = zip(_match(images, len(positions)), positions, strict=True)
        panels = [[blend(image, p) for p in row] for image, row in pairs]
    else:
        panels = [[paint(p) for p in row] for row in positions]
    return _draw(titles, panels, images, labels, unit).write(path)


def plot_top(
    attribution: ArrayLike,
    maps: ArrayLike,
    methods: Sequence[str],
    masks: ArrayLike,
    column_titles: Sequence[str],
    images: ArrayLike | None = None,
    path: str | Path | None = None,
    labels: Sequence[str] | None = None,
) -> Plot:
    """Which features each method puts first: SEA's greedy set on top, the members' below.

    ``masks``, bool [N, m + 2, P, H, W], are the chosen pixels of SEA, the members and Agg-Mean for
    each of P sizes; ``column_titles`` are P texts, such as "8 of 784".
    """
    titles, layers = _stack(attribution, maps, methods)
    positions = heat(layers, 2)
    chosen = to_array(masks)
    if chosen.shape[:2] != positions.shape[:2] or chosen.shape[2] != len(column_titles):
        raise InputError(
            f"masks must be [N, m + 2, P, H, W] = [{positions.shape[0]}, {positions.shape[1]}, "
            f"{len(column_titles)}, H, W]; got {list(chosen.shape)}"
        )
    n, rows = positions.shape[:2]
    pictures = _match(images, n) if images is not None else np.full((n, 1, 1, 3), 150, np.uint8)
    height, width = positions.shape[-2:]
    names = name_features(labels, n, "input")
    figure, axes = panel_grid(
        ["map", *column_titles],
        list(titles) * n,
        height / width,
        footer=0.66,
        widest=1.42,
        headings=names if n > 1 else (),
    )
    for i in range(n):
        for r in range(rows):
            line = axes[i * rows + r]
            line[0].imshow(paint(positions[i, r]), interpolation="nearest")
            for c, mask in enumerate(chosen[i, r]):
                line[c + 1].imshow(_light(pictures[i], _enlarge(mask)), interpolation="nearest")
    add_heat_bar(figure)
    return figure.write(path)


def plot_class_map(
    class_map: ArrayLike,
    images: ArrayLike,
    label: str = "class",
    path: str | Path | None = None,
    examples: int = 5,
) -> Plot:
    """A class-level map, [H, W] or [1, H, W], alone and laid over the first images of the class."""
    values = to_array(class_map)
    values = values.reshape(values.shape[-2], values.shape[-1])
    pictures = to_array(images)[:examples]
    position = heat(values, 0)
    titles = [f"class map: {label}", *(f"example {k + 1}" for k in range(len(pictures)))]
    height, width = values.shape[-2:]
    figure, axes = panel_grid(titles, [""], height / width, footer=0.66)
    axes[0, 0].imshow(paint(position), interpolation="nearest")
    for panel, image in zip(axes[0, 1:], pictures, strict=True):
        panel.imshow(blend(image, position), interpolation="nearest")
    add_heat_bar(figure)
    return figure.write(path)


def plot_explanation(
    explanation: Explanation,
    kind: PlotKind = "strip",
    path: str | Path | None = None,
    p: Sequence[int | float] | None = None,
) -> Plot:
    """Draw an Explanation; tables become bars and series lines where images have maps.

    ``p`` are the sizes that "top" shows, as counts or fractions of the features.
    """
    e = explanation
    if path is not None and not isinstance(path, (str, Path)):
        raise KindError(f"path must be a file's name; got {type(path).__name__}")
    if not isinstance(kind, str) or kind not in get_args(PlotKind):
        kinds = ", ".join(get_args(PlotKind))
        raise InputError(f"unknown kind of plot {kind!r}; choose one of: {kinds}")
    if len(e) > MOST_ROWS:
        raise InputError(
            f"a figure of {len(e)} rows cannot be read; plot a slice, such as "
            f"explanation[:8].plot({kind!r}), or write a report"
        )
    rows = [f"{e.name(i)} {e.write_score(i)}" for i in range(len(e))]
    if e.parts and kind not in ("gains", "agreement"):
        known = ", ".join(repr(part.name) for part in e.parts)
        raise InputError(f"plot one of several inputs: explanation.part(...) of {known}")
    if kind == "gains":
        return plot_gains(e.gains, rows, path, e.unit, getattr(e, "gain_intervals", None))
    if kind == "curve":
        if e.curve is None:
            raise InputError("there is no curve without a budget: SEA(model, budget=128)")
        lines = None if e.function is None else predict_curve(e.function, e.order)
        points = (e.curve.counts, e.curve.left, e.curve.removed)
        return plot_curve(*points, lines, e.predict_error, rows, path, e.output.unit)
    if kind == "agreement":
        names = ("SEA", *e.methods)
        columns = e.feature_names if e.view == "bars" else None
        where, images = e.disagreement, e.images
        if e.view == "slices":  # seen along the depth, each place's largest value
            where, images = where.amax(1), None if images is None else images.amax(1)
        return plot_agreement(e.agreement_with_sea, names, where, images, rows, path, columns)
    if kind == "top":
        sizes = [e.count(size) for size in p or e.default_sizes()]
        n = e.order.shape[1]
        titles = [f"{size:,} of {n:,} ({_percent(size / n)})" for size in sizes]
        masks = e.member_top_masks(sizes)
        if e.view == "slices":
            lit = e.attribution * torch.stack([e.top_mask(size) for size in sizes], 1)
            heads = [f"{row}, {title}" for row in rows for title in titles]
            return plot_slices(lit.flatten(0, 1), labels=heads, path=path, unit=_say_unit(e))
        if e.view == "picture":
            return plot_top(e.attribution, e.maps, e.methods, masks, titles, e.images, path, rows)
        names = ("SEA", *e.methods, "Agg-Mean")
        words = None if e.texts is None or len(e) > 1 else e.texts[0]
        return plot_tiers(masks, names, titles, words or e.feature_names, rows, path)
    if e.view == "words" and e.texts is not None:
        return _plot_texts(e, rows, path)
    if e.view == "bars":
        sea = e.attribution.reshape(len(e), *e.shape)
        contra = None if e.against is None else e.against.reshape(sea.shape)
        return plot_bars(sea, e.maps, e.methods, e.feature_names, rows, path, contra, e.unit)
    if e.view == "lines":
        sea = e.attribution.reshape(len(e), *e.shape)
        return plot_series(sea, e.values, e.feature_names, rows, path)
    if e.view == "slices":
        grey = None if e.images is None else to_grey(e.images.float().mean(-1))[..., 0]
        return plot_slices(e.attribution, grey, rows, path, unit=_say_unit(e))
    rest: dict[str, Any] = {"labels": rows, "path": path, "unit": _say_unit(e)}
    if bool(e.has_against().any()):
        rest["against"] = e.against
    if kind == "overlay" and e.images is None:
        raise InputError("an overlay needs images, and this explanation has none; plot the strip")
    rest["overlay"] = kind == "overlay"
    return plot_strip(e.attribution, e.maps, e.methods, e.images, **rest)


def _say_unit(e: Explanation) -> str:
    """The unit of SEA's map, and of one input what the mean is in it; "" where it has none."""
    if not e.unit or len(e) > 1:
        return e.unit
    mean = float(e.sum_gains()[0]) / e.gains.shape[1]
    return f"{e.unit}: 1× is {mean:.2g} a {name_features_of(e)[0]}"


def _plot_texts(e: Explanation, rows: Sequence[str], path: str | Path | None) -> Plot:
    """Every text as SEA marks it, and below it as each member does."""
    words, marks, against, titles = [], [], [], []
    for one, row in zip(e, rows, strict=True):
        pieces = one.texts[0] if one.texts is not None else ()
        layers = [("SEA", one.attribution[0]), *zip(one.methods, one.maps[0], strict=True)]
        for name, layer in layers:
            words.append(pieces)
            marks.append(layer)
            own = one.against if name == "SEA" else None
            against.append(torch.zeros_like(layer) if own is None else own[0])
            titles.append(f"{row}: {name}")
    return plot_words(words, marks, against, titles, path)


def _stack(
    attribution: ArrayLike,
    maps: ArrayLike,
    methods: Sequence[str],
    against: ArrayLike | None = None,
) -> tuple[list[str], Array]:
    """Titles and layers [N, m + 2 or 3, H, W]: SEA, evidence against, members, members' mean."""
    members = to_array(maps).astype(np.float32)
    if members.ndim != 4 or members.shape[1] != len(methods):
        raise InputError(
            f"maps must be [N, {len(methods)}, H, W], one a method; got {list(members.shape)}"
        )
    sea = to_array(attribution).astype(np.float32)
    if sea.size != members[:, 0].size:
        raise InputError(
            f"attribution {list(sea.shape)} does not fit maps {list(members.shape)}: "
            "it must be [N, H, W] or [N, 1, H, W] of the same N, H and W"
        )
    own = [("SEA", sea)] + ([] if against is None else [("against", to_array(against))])
    layers = [layer.reshape(members[:, :1].shape) for _, layer in own]
    titles = [*(title for title, _ in own), *map(name_method, methods), "Agg-Mean"]
    return titles, np.concatenate([*layers, members, members.mean(1, keepdims=True)], axis=1)


def _match(images: ArrayLike, n: int) -> Array:
    pictures = to_array(images)
    if pictures.ndim != 4 or pictures.shape[0] != n or pictures.shape[3] != 3:
        raise InputError(f"images must be uint8 [{n}, H, W, 3]; got {list(pictures.shape)}")
    return pictures


def _draw(
    titles: list[str],
    panels: list[list[Array]],
    images: ArrayLike | None,
    labels: Sequence[str] | None,
    unit: str = "",
) -> Plot:
    """Lay out rows of painted panels, the input first, above the colour scale."""
    if images is not None:
        pictures = _match(images, len(panels))
        titles = ["input", *titles]
        panels = [[image, *row] for image, row in zip(pictures, panels, strict=True)]
    height, width = panels[0][-1].shape[:2]
    rows = labels or [""] * len(panels)
    figure, axes = panel_grid(titles, rows, height / width, footer=0.66, most=MOST_PANELS)
    for line, row in zip(axes, panels, strict=True):
        for panel, picture in zip(line, row, strict=True):
            panel.imshow(picture, interpolation="nearest")
    add_heat_bar(figure, unit)
    return figure


def _percent(share: float) -> str:
    """A share in per cent: one decimal from 1 % up, below it two digits that count (0.04 %)."""
    return f"{100 * share:{'.1f' if share >= 0.00995 else '.2g'}}\u00a0%"


def _enlarge(mask: Array) -> Array:
    """A mask of very few pixels with each of them as a dot that can be seen: bool [H, W]."""
    radius = round((DOT * max(mask.shape) - 1) / 2)
    if mask.mean() >= TINY or radius < 1:
        return mask
    pixels = torch.as_tensor(mask, dtype=torch.float32)[None]
    dots = torch.nn.functional.max_pool2d(pixels, 2 * radius + 1, 1, radius)
    return to_array(dots[0] > 0)


def _light(image: Array, mask: Array) -> Array:
    """The image where the mask is set, in its colours and touched with gold; dim grey elsewhere."""
    gold = np.array([int(ACCENT[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    lit = 0.5 * (0.3 + 0.7 * image / 255) + 0.5 * gold
    return np.where(mask[..., None], lit, 0.42 * grey(image))
