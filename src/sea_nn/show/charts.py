"""Figures of gains, of the model's answers along the order, and of agreement."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sea_nn.errors import InputError
from sea_nn.show.panels import (
    AGAINST,
    COLOURS,
    DPI,
    FAINT,
    FOR,
    INK,
    SERIES,
    SIZE,
    WIDTH,
    Array,
    ArrayLike,
    Plot,
    add_axes,
    measure,
    name_features,
    name_method,
    style_axes,
    to_array,
    wrap,
    write_text,
)

CORRELATION = "RdBu_r"
MOST_SPREAD = 10


def plot_gains(
    gains: ArrayLike,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
    unit: str = "",
    intervals: ArrayLike | None = None,
) -> Plot:
    """What each feature added as greedy took it, and the sum so far.

    Gains [N, n] below 0, which speak against the target, are dashed. ``intervals`` [N, n, 2] are
    drawn as error bars, faint where they hold 0. The sum is in the gains'
    ``unit``, or without one a share of the gains above 0. A concave function gives its first
    features much more than the others, of noise too: the curves tell how the function learned, and
    only their order what the evidence is.
    """
    values = to_array(gains).astype(np.float64)
    count, n = values.shape
    steps = np.arange(1, n + 1)
    sums = values.cumsum(1)
    if not unit:
        above = values.clip(0).sum(1, keepdims=True)
        sums /= np.where(above > 0, above, np.maximum(-sums[:, -1:], 1e-300))
    figure = Plot(figsize=(WIDTH, 3.05), dpi=DPI)
    left = add_axes(figure, 0.95, 0.5, 3.35, 2.3)
    right = add_axes(figure, 5.2, 0.5, 3.55, 2.3)
    few = count <= len(SERIES)
    for i in range(count):
        colour = SERIES[i] if few else FAINT
        style: dict[str, Any] = {"color": colour, "lw": 1.4, "alpha": 1.0 if few else 0.4}
        for line, side in (("-", values[i]), ("--", -values[i])):
            left.plot(steps[side > 0], side[side > 0], ls=line, **style)
        right.plot(steps, sums[i], **style)
        if intervals is not None and few:
            low, high = to_array(intervals)[i].T
            sure = (low > 0) | (high < 0)
            for known, alpha in ((sure, 0.8), (~sure, 0.2)):
                left.vlines(steps[known], low[known], high[known], color=colour, alpha=alpha, lw=1)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlim(1, max(n, 2))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        if n < 10:  # all ticks but the first are minor ones
            axes.xaxis.set_minor_formatter(axes.xaxis.get_major_formatter())
        axes.set_xlabel("features, in the order greedy took them")
        axes.grid(alpha=0.25, lw=0.5)
        style_axes(axes)
    if (values != 0).any():
        left.set_yscale("log")
    left.set_ylabel(f"gain of the feature{unit and ', '}{unit}")
    below = bool((values < 0).any())
    if below:
        right.axhline(0, color=INK, lw=0.6)
    else:
        right.set_ylim(0, 1.02 * (sums.max() or 1))
    if unit:
        right.set_ylabel(f"sum so far, {unit}")
        note = "it ends at the model's own difference"
    else:
        right.plot(steps, steps / n, color=FAINT, lw=0.9, ls=(0, (4, 3)))
        right.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.0%}"))
        right.set_ylabel("share of the gains above 0" if below else "share of the total")
        note = "how fast it rises is mostly the learned function's; dashed: equal gains"
    notes: list[tuple[Axes, str]] = [(right, note)]
    if below:
        notes.append((left, "dashed: below 0, against the target, without the minus"))
    for axes, said in notes:
        place: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "color": FAINT}
        axes.text(1, 1.02, said, fontsize=SIZE - 1, **place)
    if labels is not None and few:
        for i, label in enumerate(labels):
            left.plot([], [], color=SERIES[i], lw=1.4, label=textwrap.shorten(label, 34))
        legend = left.legend(fontsize=SIZE - 1, frameon=False, loc="lower left", labelspacing=0.25)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure.write(path)


def plot_curve(
    counts: ArrayLike,
    left: ArrayLike,
    removed: ArrayLike,
    predicted: tuple[ArrayLike, ArrayLike] | None = None,
    error: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
    unit: str = "probability",
) -> Plot:
    """What the model says with only the best p features left, and with these removed.

    ``left`` and ``removed`` [N, P] are its own answers at ``counts`` [P], drawn as points;
    ``predicted`` are what f says of both at 0, 1, …, n, [N, n + 1], drawn as lines, with its
    ``error`` [N] as a band.
    """
    at, sides = to_array(counts), (to_array(left), to_array(removed))
    count, across = len(sides[0]), min(3, len(sides[0]))
    rows = -(-count // across)
    figure = Plot(figsize=(WIDTH, 2.75 * rows + 0.3), dpi=DPI)
    room = (WIDTH - 0.2) / across
    for i in range(count):
        row, column = divmod(i, across)
        foot = 2.75 * (rows - 1 - row) + 0.9
        axes = add_axes(figure, 0.65 + column * room, foot, room - 0.75, 1.8)
        styles = ((FOR, "o", "-", "only these left"), (AGAINST, "s", "--", "these removed"))
        for k, (colour, point, line, name) in enumerate(styles):
            axes.plot(at, sides[k][i], point, color=colour, ms=4, label=name, zorder=3)
            if predicted is not None:
                f = to_array(predicted[k])[i]
                off = 0.0 if error is None else float(to_array(error)[i])
                axes.plot(np.arange(len(f)), f, line, color=colour, lw=1.2)
                band: dict[str, Any] = {"color": colour, "alpha": 0.14, "lw": 0}
                axes.fill_between(np.arange(len(f)), f - off, f + off, **band)
        axes.set_xscale("function", functions=(np.sqrt, np.square))
        axes.set_xlim(0, at[-1])
        axes.set_xticks([0, *sorted({round(at[-1] * t) for t in (1 / 16, 1 / 4, 1)} - {0})])
        if unit == "probability":
            axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.25, lw=0.5)
        style_axes(axes)
        axes.set_xlabel("p, the best features left or removed (square-root scale)")
        axes.set_ylabel(unit if column == 0 else "")
        title = wrap(labels[i] if labels is not None else f"input {i}", room - 0.75, lines=1)
        axes.set_title(title, fontsize=SIZE, parse_math=False)
    style: dict[str, Any] = {"loc": "lower center", "frameon": False, "fontsize": SIZE - 0.5}
    note = "points: the model's own answers; lines: what f predicts, with its error"
    style |= {"title": note, "title_fontsize": SIZE - 0.5, "ncols": 2}
    figure.legend(*axes.get_legend_handles_labels(), **style)
    return figure.write(path)


def plot_agreement(
    matrix: ArrayLike,
    names: Sequence[str],
    disagreement: ArrayLike,
    images: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
    feature_names: Sequence[str] | None = None,
) -> Plot:
    """Rank correlations [N, k, k] between methods, with numbers, and where the members disagree.

    ``disagreement`` is [N, H, W], [N, C, T] or [N, F], as ``Explanation.disagreement``.
    """
    values, spread = to_array(matrix), to_array(disagreement)
    pictures = None if images is None else to_array(images)
    count = len(values)
    if values.shape[1:] != (len(names), len(names)):
        raise InputError(
            f"matrix must be [N, {len(names)}, {len(names)}], one row and column a name; "
            f"got {list(values.shape)}"
        )
    titles = [name_method(name) for name in names]
    side, gap = 2.35, 0.12
    margin = min(max(measure(t, SIZE - 0.5) for t in titles), 1.8) + 0.15
    slant = margin * 0.66 + 0.1
    band = 0.2 if labels is not None else 0.0
    height = count * (side + gap) + 0.2 + max(slant, 0.62)
    lefts = [0.08 + band + k * (side + gap) for k in range(2 if pictures is not None else 1)]
    table_left = lefts[-1] + side + margin + 0.1
    width = table_left + side + 0.1
    figure = Plot(figsize=(width, height), dpi=DPI)
    heads = ["input", "where members disagree"][-len(lefts) :]
    for left, text in zip([*lefts, table_left], [*heads, "Spearman rank correlation"], strict=True):
        place = ((left + side / 2) / width, 1 - 0.15 / height)
        write_text(figure, *place, text, ha="center", va="baseline")
    for i in range(count):
        foot = height - 0.2 - side - i * (side + gap)
        if labels is not None:
            text = wrap(labels[i], side, lines=1)
            middle = (foot + side / 2) / height
            write_text(figure, 0.05 / width, middle, text, rotation=90, va="center")
        if pictures is not None:
            panel = add_axes(figure, lefts[0], foot, side, side)
            panel.imshow(pictures[i], interpolation="nearest", aspect="auto")
            panel.set_axis_off()
        where = add_axes(figure, lefts[-1], foot, side, side)
        if spread.ndim == 2:
            names_of = name_features(feature_names, spread.shape[1])
            _draw_spread_bars(where, spread[i], names_of, side)
        else:
            where.imshow(spread[i], cmap=COLOURS, vmin=0, vmax=0.5, aspect="auto")
            where.set_axis_off()
        table = add_axes(figure, table_left, foot, side, side)
        _draw_matrix(table, values[i], titles, slanted=i == count - 1)
    low = add_axes(figure, lefts[-1] + 0.15, max(slant, 0.62) - gap - 0.15, side - 0.3, 0.09)
    _add_scale(figure, low, COLOURS, (0, 0.5), "spread of the members' percentile ranks")
    return figure.write(path)


def _draw_spread_bars(axes: Axes, spread: Array, names: Sequence[str], side: float) -> None:
    """The features that members disagree on most, each named on its own bar."""
    top = np.argsort(-spread, kind="stable")[:MOST_SPREAD]
    places = np.arange(len(top))
    colours = colormaps[COLOURS](spread[top] / 0.5)
    axes.barh(places - 0.36, spread[top], height=0.2, color=colours)
    for place, k in zip(places, top, strict=True):
        name = wrap(names[k], side, SIZE - 1, lines=1)
        axes.text(0, place + 0.1, name, va="center", fontsize=SIZE - 1, color=INK, parse_math=False)
    axes.set_ylim(MOST_SPREAD - 0.6, -0.6)
    axes.set_xlim(0, 0.5)
    axes.set_axis_off()


def _draw_matrix(axes: Axes, values: Array, names: Sequence[str], slanted: bool) -> None:
    k = len(names)
    axes.imshow(values, cmap=CORRELATION, vmin=-1, vmax=1)
    size = SIZE - 0.5 if k <= 7 else max(4.5, 56 / k)
    for r in range(k):
        for c in range(k):
            known = np.isfinite(values[r, c])
            text = f"{round(float(values[r, c]), 2) + 0.0:.2f}".replace("-", "−") if known else "–"
            strong = known and abs(values[r, c]) > 0.62
            colour = "white" if strong else INK
            axes.text(c, r, text, ha="center", va="center", fontsize=size, color=colour)
    shown = [wrap(n, 1.8, lines=1) for n in names]
    axes.set_yticks(range(k), shown, parse_math=False)
    if slanted:
        slant: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(k), shown, parse_math=False, **slant)
    else:
        axes.set_xticks([])
    style_axes(axes)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _add_scale(
    figure: Plot, axes: Axes, colours: str, limits: tuple[float, float], text: str
) -> None:
    mappable = ScalarMappable(Normalize(*limits), colormaps[colours])
    bar = figure.colorbar(mappable, cax=axes, orientation="horizontal")
    bar.outline.set_visible(False)
    bar.ax.xaxis.set_major_locator(MaxNLocator(5))
    style_axes(bar.ax)
    bar.ax.set_xlabel(wrap(text, 2.4, SIZE - 0.5), labelpad=2)
