"""Figures of inputs that are not images: bars for tables, lines for series."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sea_nn.errors import InputError
from sea_nn.show.panels import (
    AGAINST,
    COLOURS,
    DPI,
    INK,
    SERIES,
    SIZE,
    WIDTH,
    Array,
    ArrayLike,
    Plot,
    add_axes,
    add_heat_bar,
    heat,
    measure,
    name_features,
    name_method,
    style_axes,
    to_array,
    wrap,
    write_text,
)

MOST_BARS = 20


def plot_bars(
    attribution: ArrayLike,
    maps: ArrayLike,
    methods: Sequence[str],
    feature_names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
    against: ArrayLike | None = None,
    unit: str = "",
) -> Plot:
    """A table's features as horizontal bars, largest first; dots show each member.

    Bars (attribution [N, F]) are in its ``unit``, or without one shares of the attribution's total.
    Evidence ``against`` the class, [N, F], is drawn to the left. Dots (maps [N, m, F]) are shares
    of each map's own total: of the larger of SEA's two, for the class and against it, where there
    is a unit. At most 20 features are drawn; the figure says what share the others hold.
    """
    sea, members = to_array(attribution), _share(to_array(maps))
    contra = np.zeros_like(sea) if against is None else to_array(against)
    totals = np.maximum(sea.sum(1, keepdims=True), contra.sum(1, keepdims=True))
    if unit:
        members = members * totals[:, None]
    else:
        above = sea.sum(1, keepdims=True)
        sea, contra = _share(sea, above), _share(contra, np.where(above > 0, above, totals))
    count, f = sea.shape
    shown = min(f, MOST_BARS)
    names = name_features(feature_names, f)
    margin = min(max(measure(n) for n in names) + 0.15, 2.6)
    bars, head = shown * 0.2 + 0.1, 0.36
    height = count * (bars + head + 0.2) + 0.75
    figure = Plot(figsize=(WIDTH * 0.8, height), dpi=DPI)
    width = WIDTH * 0.8
    for i in range(count):
        top = np.argsort(-np.maximum(sea[i], contra[i]), kind="stable")[:shown]
        foot = height - (i + 1) * (bars + head + 0.2) + 0.2
        axes = add_axes(figure, margin, foot, width - margin - 0.25, bars)
        places = np.arange(shown)
        axes.barh(places, sea[i][top], color="#b9bcc8", height=0.72, label="SEA")
        for j, method in enumerate(methods):
            colour = SERIES[j % len(SERIES)]
            label = name_method(method)
            axes.plot(members[i, j][top], places, "o", ms=3.6, color=colour, label=label)
        ticks = [wrap(names[k], margin - 0.1, lines=1) for k in top]
        axes.set_yticks(places, ticks, parse_math=False)
        axes.set_ylim(shown - 0.4, -0.6)
        if contra[i].max() > 0:
            style: dict[str, Any] = {"color": "white", "edgecolor": AGAINST, "hatch": "////"}
            axes.barh(places, -contra[i][top], height=0.72, lw=0.5, label="against", **style)
        else:
            axes.set_xlim(0, None)
        if not unit:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0%}"))
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="x", alpha=0.25, lw=0.5)
        axes.set_axisbelow(True)
        style_axes(axes)
        both = sea[i] + contra[i]
        rest = max(0.0, both.sum() - both[top].sum()) / (both.sum() or 1)
        title = (labels[i] if labels is not None else f"input {i}") + (
            f"   (the other {f - shown} features hold {rest:.0%})" if f > shown else ""
        )
        title = wrap(title, width - margin - 0.1, lines=1)
        write_text(figure, margin / width, (foot + bars + 0.05) / height, title)
        if i == count - 1:
            scale = f"{unit}; members' dots: the same sum" if unit else "share of the map's total"
            axes.set_xlabel(scale)
    _add_legend(figure, axes, first="SEA")
    return figure.write(path)


def plot_series(
    attribution: ArrayLike,
    values: ArrayLike | None = None,
    channel_names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
) -> Plot:
    """Series as lines on a background coloured by attribution [N, C, T], one band a channel.

    ``values`` are the series themselves, [N, C, T], or None for the background alone.
    """
    sea = to_array(attribution)
    count, channels, steps = sea.shape
    lines = None if values is None else to_array(values)
    if lines is not None and lines.shape != sea.shape:
        raise InputError(
            f"values must be {list(sea.shape)} like attribution; got {list(lines.shape)}"
        )
    names = name_features(channel_names, channels, "channel")
    positions = heat(sea, 1)
    band, head = max(0.5, min(1.3, 5.0 / channels)), 0.34
    height = count * (channels * (band + 0.06) + head + 0.2) + 0.95
    margin = min(max(measure(n) for n in names) + 0.65, 2.2)
    figure = Plot(figsize=(WIDTH, height), dpi=DPI)
    top = height
    for i in range(count):
        top -= head
        label = wrap(labels[i] if labels else f"input {i}", WIDTH - margin - 0.1, lines=1)
        write_text(figure, margin / WIDTH, (top + 0.04) / height, label)
        for c in range(channels):
            axes = add_axes(figure, margin, top - band, WIDTH - margin - 0.2, band)
            low, high = (0.0, 1.0) if lines is None else _limits(lines[i, c])
            axes.imshow(
                positions[i, c][None], aspect="auto", cmap=COLOURS, vmin=0, vmax=1, alpha=0.9,
                extent=(-0.5, steps - 0.5, low, high), interpolation="nearest",
            )  # fmt: skip
            if lines is not None:
                axes.plot(lines[i, c], color="white", lw=2.6, solid_capstyle="round")
                axes.plot(lines[i, c], color=INK, lw=1.1)
            axes.set_ylim(low, high)
            name = wrap(names[c], margin - 0.6, lines=1)
            axes.set_ylabel(name, rotation=0, ha="right", va="center")
            axes.yaxis.label.set_parse_math(False)
            axes.yaxis.set_label_coords(-0.42 / (WIDTH - margin - 0.2), 0.5)
            axes.yaxis.set_major_locator(MaxNLocator(2))
            whole = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
            axes.xaxis.set_major_locator(whole)
            style_axes(axes)
            if lines is None:
                axes.set_yticks([])
            if c < channels - 1:
                axes.set_xticks([])
            top -= band + 0.06
        top -= 0.2
    axes.set_xlabel("time step")
    add_heat_bar(figure)
    return figure.write(path)


def plot_tiers(
    masks: ArrayLike,
    names: Sequence[str],
    sizes: Sequence[str],
    feature_names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
) -> Plot:
    """Which features of a table or series each of k methods puts first: one row a method.

    ``masks``, bool [N, k, P, F] or [N, k, P, C, T], are nested: the first size is the smallest.
    ``sizes`` are P texts, such as "5 of 30"; ``feature_names`` those of F features or C channels.
    """
    chosen = to_array(masks)
    count, k, levels = chosen.shape[:3]
    series = chosen.ndim == 5
    ticks = name_features(feature_names, chosen.shape[3], "channel" if series else "feature")
    steps = chosen.shape[4] if series else 1
    tier = levels - chosen.reshape(count, k, levels, -1).sum(2)
    colours = colormaps["YlOrBr_r"](np.linspace(0.12, 0.82, levels))[:, :3]
    colours = np.concatenate([colours, [[0.93, 0.93, 0.945]]])
    titles = [name_method(n) for n in names]
    margin = max(measure(t) for t in titles) + 0.2
    sparse = len(ticks) > 40 and not series
    foot = 0.35 if series or sparse else min(max(map(measure, ticks)), 2.0) * 0.7 + 0.15
    row, head = k * 0.24, 0.26
    height = count * (row + head + 0.06) + foot + 0.4
    figure = Plot(figsize=(WIDTH, height), dpi=DPI)
    for i in range(count):
        bottom = height - (i + 1) * (row + head + 0.06)
        axes = add_axes(figure, margin, bottom, WIDTH - margin - 0.15, row)
        axes.imshow(colours[tier[i]], aspect="auto", interpolation="nearest")
        label = labels[i] if labels is not None else f"input {i}"
        place = (margin / WIDTH, (bottom + row + 0.06) / height)
        write_text(figure, *place, wrap(label, WIDTH - margin - 0.2, lines=1), va="baseline")
        axes.set_yticks(range(k), titles)
        axes.set_yticks(np.arange(k - 1) + 0.5, minor=True)
        axes.grid(axis="y", which="minor", color="white", lw=1.5)
        for edge in range(1, len(ticks) if series else 1):
            axes.axvline(edge * steps - 0.5, color=INK, lw=0.8)
        style_axes(axes)
        axes.tick_params(which="minor", length=0)
        axes.spines[:].set_visible(False)
        if i < count - 1:
            axes.set_xticks([])
        elif series:
            shown = [wrap(t, (WIDTH - margin) / len(ticks), SIZE - 0.5, lines=1) for t in ticks]
            axes.set_xticks((np.arange(len(ticks)) + 0.5) * steps - 0.5, shown, parse_math=False)
        elif sparse:
            axes.set_xlabel("feature")
        else:
            shown = [wrap(t, 2.0, SIZE - 0.5, lines=1) for t in ticks]
            slanted: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
            axes.set_xticks(range(len(ticks)), shown, parse_math=False, **slanted)
    for level, size in enumerate(sizes):
        axes.plot([], [], "s", color=tuple(colours[level]), label=f"first {size}")
    _add_legend(figure, axes)
    return figure.write(path)


def _share(maps: Array, totals: Array | None = None) -> Array:
    """Maps as shares of their own totals, or of others."""
    totals = maps.sum(-1, keepdims=True) if totals is None else totals
    return np.asarray(maps / np.where(totals > 0, totals, 1))


def _add_legend(figure: Plot, axes: Axes, first: str = "") -> None:
    """One legend along the figure's foot, in as few lines as fit."""
    handles, texts = axes.get_legend_handles_labels()
    pairs = sorted(zip(texts, handles, strict=True), key=lambda pair: pair[0] != first)
    room = figure.get_size_inches()[0] - 0.3
    widths = [measure(text, SIZE - 0.5) + 0.45 for text in texts]
    columns = len(texts) if sum(widths) <= room else max(1, int(room / max(widths)))
    style: dict[str, Any] = {"loc": "lower center", "frameon": False, "fontsize": SIZE - 0.5}
    style |= {"ncols": columns, "columnspacing": 1.2, "handlelength": 1.3}
    legend = figure.legend([handle for _, handle in pairs], [text for text, _ in pairs], **style)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _limits(line: Array) -> tuple[float, float]:
    low, high = float(np.nanmin(line)), float(np.nanmax(line))
    pad = 0.08 * (high - low) or 1.0
    return low - pad, high + pad
