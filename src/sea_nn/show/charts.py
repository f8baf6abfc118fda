"""Figures that are no pictures: bars of tables, lines of series, gains, curves and agreement."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, NullLocator

from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.questions.asked import predict_curve
from sea_nn.show.panels import (
    AGAINST,
    COLOURS,
    FAINT,
    FOR,
    INK,
    SERIES,
    SIZE,
    WIDTH,
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
    """Features of tables and texts as horizontal bars, largest first; dots show each member.

    Bars are in the explanation's unit, or without one shares of the attribution's total, and lines
    on them the intervals that gains lie in. Evidence against the class is drawn to the left. Dots
    are shares of each map's own total: of the larger of SEA's two, for the class and against it. At
    most 20 features are drawn; the figure says what share the others hold.
    """
    room, most = WIDTH * 0.8, min(e.shape[0], MOST_BARS)
    figure = Plot(figsize=(room, len(e) * (most * 0.2 + 0.66) + 0.75))
    for axes, one in zip(figure.subplots(len(e), 1, squeeze=False)[:, 0], e, strict=True):
        sea = to_array(one.attribution).flatten()
        contra = 0 * sea if one.against is None else to_array(one.against).flatten()
        total = max(sea.sum(), contra.sum())
        if not e.unit and total:
            sea, contra, total = sea / total, contra / total, 1.0
        names = _name_features(one, len(sea))
        top = np.argsort(-np.maximum(sea, contra), kind="stable")[:MOST_BARS]
        places = np.arange(len(top))
        axes.barh(places, sea[top], color="#b9bcc8", height=0.72, label="SEA")
        for j, (method, values) in enumerate(zip(e.methods, to_array(one.maps[0]), strict=True)):
            style: dict[str, Any] = {"color": SERIES[j % len(SERIES)], "label": name_method(method)}
            axes.plot(values[top] / (values.sum() or 1) * total, places, "o", ms=3.6, **style)
        axes.set_yticks(places, [wrap(names[k].strip(), LABEL) for k in top])
        axes.set_ylim(most - 0.4, -0.6)
        if contra.any():
            style = {"color": "white", "edgecolor": AGAINST, "hatch": "////"}
            axes.barh(places, -contra[top], height=0.72, lw=0.5, label="against", **style)
        else:
            axes.set_xlim(0, None)
        if one.gain_intervals is not None and e.features is None:
            low, high = to_array(one.gain_intervals[0, one.order[0].argsort()])[top].T
            axes.hlines(places, low, high, color=INK, lw=0.9, label="interval of the gain")
        if not e.unit:
            axes.xaxis.set_major_formatter("{x:.0%}")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="x")
        both, others = sea + contra, len(sea) - len(top)
        rest = max(0.0, both.sum() - both[top].sum()) / (both.sum() or 1)
        left_out = f"   (the other {others} features hold {rest:.0%})" if others else ""
        title = wrap(name_rows(one)[0], room - LABEL - measure(left_out))
        axes.set_title(title + left_out, loc="left")
    scale = f"{e.unit}; members' dots: the same sum" if e.unit else "share of the map's total"
    axes.set_xlabel(scale)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def plot_series(e: Explanation) -> Plot:
    """Series as lines on a background coloured by attribution, one band a channel."""
    sea = to_array(e.attribution).reshape(len(e), *e.shape)
    count, channels, steps = sea.shape
    names, positions = _name_features(e, channels, "channel"), heat(sea, 1)
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


def plot_gains(e: Explanation) -> Plot:
    """What each feature added as greedy took it.

    Intervals are drawn as upright lines, faint where they hold 0. A concave function gives its
    first features much more than the others, of noise too: without a budget the curves tell how the
    function learned, and only their order what the evidence is.
    """
    values, unit, intervals = to_array(e.gains).astype(np.float64), e.unit, e.gain_intervals
    steps, scale = np.arange(1, values.shape[1] + 1), "log scale"
    figure = Plot(figsize=(0.6 * WIDTH, 3.05))
    axes = figure.subplots()
    for i, label in enumerate(name_rows(e)):
        colour = SERIES[i % len(SERIES)]
        axes.plot(steps, values[i], color=colour, lw=1.4, label=textwrap.shorten(label, 34))
        if intervals is not None:
            low, high = to_array(intervals[i]).T
            sure = (low > 0) | (high < 0)
            for known, alpha in ((sure, 0.8), (~sure, 0.2)):
                axes.vlines(steps[known], low[known], high[known], color=colour, alpha=alpha, lw=1)
    if (values < 0).any():
        axes.set_yscale("symlog", linthresh=0.01 * np.abs(values).max())
        axes.axhline(0, color=INK, lw=0.6)
        scale = "log scale, linear around 0"
    elif values.any():
        axes.set_yscale("log")
    axes.set_xscale("log")
    axes.set(xlim=(1, max(len(steps), 2)), xlabel="features, as greedy took them (log scale)")
    axes.set_ylabel(f"gain of the feature{unit and ', '}{unit}\n({scale})")
    axes.grid()
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    if len(steps) < 10:  # all ticks but the first are minor ones
        axes.xaxis.set_minor_formatter("{x:g}")
    if intervals is not None:
        text = "upright: what a gain lies between; faint: 0 is among it"
        axes.set_title(text, fontsize=SIZE - 1, color=FAINT, loc="right")
    if len(e) <= len(SERIES):
        axes.legend(fontsize=SIZE - 1, loc="best", labelspacing=0.25)
    return figure


def plot_curve(e: Explanation) -> Plot:
    """What the model says with only the best p features left, and with these removed.

    Its own answers are points; what f says of both is drawn as lines, with its error as a band.
    """
    if e.curve is None or e.function is None:
        raise InputError("there is no curve without a budget: SEA(model, budget=128)")
    at, unit, lines = to_array(e.curve.counts), e.output.unit, predict_curve(e.function, e.order)
    room = 0.6 * WIDTH
    figure = Plot(figsize=(room, 2.5 * len(e) + 0.8))
    styles = (
        (e.curve.left, lines[0], FOR, "o", "-", "only these left"),
        (e.curve.removed, lines[1], AGAINST, "s", "--", "these removed"),
    )
    for i, axes in enumerate(figure.subplots(len(e), 1, squeeze=False)[:, 0]):
        off = 0.0 if e.predict_error is None else float(e.predict_error[i])
        for answers, line, colour, point, style, name in styles:
            f, own = to_array(line[i]), {"color": colour}
            axes.plot(at, to_array(answers[i]), point, ms=4, label=name, zorder=3, **own)
            axes.plot(f, style, lw=1.2, **own)
            axes.fill_between(np.arange(len(f)), f - off, f + off, alpha=0.14, lw=0, **own)
        axes.set_xscale("function", functions=(np.sqrt, np.square))
        ticks = [0, *sorted({round(at[-1] * t) for t in (1 / 16, 1 / 4, 1)} - {0})]
        axes.set(xlim=(0, at[-1]), xticks=ticks, ylabel=unit)
        if unit == "probability":
            axes.set_ylim(-0.02, 1.02)
        axes.grid()
        axes.set_title(wrap(name_rows(e)[i], room - 1))
    axes.set_xlabel("p, the best features left or removed (square-root scale)")
    note = "points: the model's own answers; lines: what f predicts, with its error"
    below: Any = {"loc": "outside lower center", "title": note, "title_fontsize": SIZE - 0.5}
    figure.legend(*axes.get_legend_handles_labels(), ncols=2, **below)
    return figure


def plot_agreement(e: Explanation) -> Plot:
    """Rank correlations between SEA and the members, each in its colour and with its number."""
    names = [wrap(name_method(name), 1.6) for name in ("SEA", *e.methods)]
    k, side = len(names), 2.6
    figure = Plot(figsize=(side + 2.4, side * len(e) + 1.4))
    grid = figure.subplots(len(e), 1, sharex=True, squeeze=False)[:, 0]
    grid[0].set_title("Spearman rank correlation")
    for axes, label, values in zip(grid, name_rows(e), e.agreement_with_sea, strict=True):
        axes.imshow(to_array(values), cmap="RdBu_r", vmin=-1, vmax=1)
        for (r, c), value in np.ndenumerate(to_array(values)):
            known = np.isfinite(value)
            text = f"{round(value, 2) + 0.0:.2f}".replace("-", "−") if known else "–"
            style = {"ha": "center", "va": "center", "fontsize": min(SIZE - 0.5, 56 / k)}
            axes.text(c, r, text, color="white" if abs(value) > 0.62 else INK, **style)
        axes.set_ylabel(wrap(label, side - 0.5))
        axes.set_yticks(range(k), names)
        axes.set_xticks(range(k), names, rotation=40, ha="right", rotation_mode="anchor")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


def _name_features(e: Explanation, count: int, noun: str = "feature") -> Sequence[str]:
    """The names of columns, channels or the words of one text, or numbers."""
    words = None if e.texts is None else e.texts[0]
    return words or e.feature_names or [f"{noun} {k}" for k in range(count)]
