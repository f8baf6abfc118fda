"""Figures of inputs that are not images: bars for tables, lines for series."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator, NullLocator
from torch import Tensor

from sea_nn.explanation.explanation import Explanation
from sea_nn.show.panels import (
    AGAINST,
    COLOURS,
    INK,
    SERIES,
    WIDTH,
    Array,
    Plot,
    add_heat_bar,
    heat,
    measure,
    name_method,
    name_rows,
    to_array,
    wrap,
)

MOST_BARS = 20
LABEL = 2.2  # inches of a feature's name


def plot_bars(e: Explanation) -> Plot:
    """A table's features as horizontal bars, largest first; dots show each member.

    Bars are in the explanation's unit, or without one shares of the attribution's total. Evidence
    against the class is drawn to the left. Dots are shares of each map's own total: of the larger
    of SEA's two, for the class and against it, where there is a unit. At most 20 features are
    drawn; the figure says what share the others hold.
    """
    sea, members = to_array(e.attribution).reshape(len(e), -1), _share(to_array(e.maps))
    contra = np.zeros_like(sea) if e.against is None else to_array(e.against).reshape(sea.shape)
    totals = np.maximum(sea.sum(1, keepdims=True), contra.sum(1, keepdims=True))
    if e.unit:
        members = members * totals[:, None]
    else:
        above = sea.sum(1, keepdims=True)
        sea, contra = _share(sea, above), _share(contra, np.where(above > 0, above, totals))
    f = sea.shape[1]
    shown = min(f, MOST_BARS)
    names = _name_features(e, f)
    figure = Plot(figsize=(WIDTH * 0.8, len(e) * (shown * 0.2 + 0.66) + 0.75))
    for i, axes in enumerate(figure.subplots(len(e), 1, squeeze=False)[:, 0]):
        top = np.argsort(-np.maximum(sea[i], contra[i]), kind="stable")[:shown]
        places = np.arange(shown)
        axes.barh(places, sea[i][top], color="#b9bcc8", height=0.72, label="SEA")
        for j, method in enumerate(e.methods):
            style: dict[str, Any] = {"color": SERIES[j % len(SERIES)], "label": name_method(method)}
            axes.plot(members[i, j][top], places, "o", ms=3.6, **style)
        axes.set_yticks(places, [wrap(names[k], LABEL) for k in top])
        axes.set_ylim(shown - 0.4, -0.6)
        if contra[i].max() > 0:
            style = {"color": "white", "edgecolor": AGAINST, "hatch": "////"}
            axes.barh(places, -contra[i][top], height=0.72, lw=0.5, label="against", **style)
        else:
            axes.set_xlim(0, None)
        if not e.unit:
            axes.xaxis.set_major_formatter("{x:.0%}")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="x")
        both = sea[i] + contra[i]
        rest = max(0.0, both.sum() - both[top].sum()) / (both.sum() or 1)
        left_out = f"   (the other {f - shown} features hold {rest:.0%})" if f > shown else ""
        title = wrap(name_rows(e)[i], WIDTH * 0.8 - LABEL - measure(left_out))
        axes.set_title(title + left_out, loc="left")
    scale = f"{e.unit}; members' dots: the same sum" if e.unit else "share of the map's total"
    axes.set_xlabel(scale)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def plot_series(e: Explanation) -> Plot:
    """Series as lines on a background coloured by attribution, one band a channel."""
    sea = to_array(e.attribution).reshape(len(e), *e.shape)
    count, channels, steps = sea.shape
    names = _name_features(e, channels, "channel")
    positions = heat(sea, 1)
    band = max(0.5, min(1.3, 5.0 / channels))
    figure = Plot(figsize=(WIDTH, count * (channels * (band + 0.06) + 0.54) + 0.95))
    grid = figure.subplots(count * channels, 1, sharex=True, squeeze=False)[:, 0]
    for k, axes in enumerate(grid):
        i, c = divmod(k, channels)
        low, high = 0.0, 1.0
        if e.values is not None:
            line = to_array(e.values[i, c])
            low, high = float(np.nanmin(line)), float(np.nanmax(line))
            pad = 0.08 * (high - low) or 1.0
            low, high = low - pad, high + pad
            axes.plot(line, color="white", lw=2.6, solid_capstyle="round")
            axes.plot(line, color=INK, lw=1.1)
        axes.imshow(
            positions[i, c][None], aspect="auto", cmap=COLOURS, vmin=0, vmax=1, alpha=0.9,
            extent=(-0.5, steps - 0.5, low, high),
        )  # fmt: skip
        axes.set_ylim(low, high)
        axes.set_ylabel(wrap(names[c], LABEL), rotation=0, ha="right", va="center")
        axes.yaxis.set_major_locator(NullLocator() if e.values is None else MaxNLocator(2))
        axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        if c == 0:
            axes.set_title(wrap(name_rows(e)[i], WIDTH - LABEL), loc="left")
    axes.set_xlabel("time step")
    add_heat_bar(figure, grid)
    return figure


def plot_tiers(e: Explanation, masks: Tensor, sizes: Sequence[str]) -> Plot:
    """Which features of a table or series each method puts first: one row a method.

    ``masks``, bool [N, m + 2, P, *shape], are nested: the first size is the smallest. ``sizes`` are
    P texts, such as "5 of 30".
    """
    chosen = to_array(masks)
    count, k, levels = chosen.shape[:3]
    series = chosen.ndim == 5
    steps = chosen.shape[4] if series else 1
    ticks = _name_features(e, chosen.shape[3], "channel" if series else "feature")
    tier = levels - chosen.reshape(count, k, levels, -1).sum(2)
    colours = colormaps["YlOrBr_r"](np.linspace(0.12, 0.82, levels))[:, :3]
    colours = np.concatenate([colours, [[0.93, 0.93, 0.945]]])
    foot = 0.35 if series else min(max(map(measure, ticks)), LABEL) * 0.7 + 0.15
    figure = Plot(figsize=(WIDTH, count * (k * 0.24 + 0.32) + foot + 0.4))
    for i, axes in enumerate(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]):
        axes.imshow(colours[tier[i]], aspect="auto")
        axes.set_title(wrap(name_rows(e)[i], WIDTH - LABEL), loc="left")
        axes.set_yticks(range(k), map(name_method, ("SEA", *e.methods, "Agg-Mean")))
        axes.set_yticks(np.arange(k - 1) + 0.5, minor=True)
        axes.grid(axis="y", which="minor", color="white", lw=1.5, alpha=1)
        for edge in range(1, len(ticks) if series else 1):
            axes.axvline(edge * steps - 0.5, color=INK, lw=0.8)
        axes.tick_params(which="minor", length=0)
        axes.spines[:].set_visible(False)
    if series:
        shown = [wrap(t, WIDTH / len(ticks) - 0.3) for t in ticks]
        axes.set_xticks((np.arange(len(ticks)) + 0.5) * steps - 0.5, shown)
    elif len(ticks) > 40:
        axes.set_xlabel("feature")
    else:
        slanted: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(ticks)), [wrap(t, LABEL - 0.2) for t in ticks], **slanted)
    for level, size in enumerate(sizes):
        axes.plot([], [], "s", color=tuple(colours[level]), label=f"first {size}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _name_features(e: Explanation, count: int, noun: str = "feature") -> Sequence[str]:
    """The names of columns, channels or words, or numbers."""
    words = None if e.texts is None or len(e) > 1 else e.texts[0]
    return words or e.feature_names or [f"{noun} {k}" for k in range(count)]


def _share(maps: Array, totals: Array | None = None) -> Array:
    """Maps as shares of their own totals, or of others."""
    totals = maps.sum(-1, keepdims=True) if totals is None else totals
    return np.asarray(maps / np.where(totals > 0, totals, 1))
