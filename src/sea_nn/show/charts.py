"""Figures of gains, of the model's answers along the order, and of agreement."""

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.questions.curve import predict_curve
from sea_nn.show.panels import (
    AGAINST,
    COLOURS,
    FAINT,
    FOR,
    INK,
    SERIES,
    SIZE,
    WIDTH,
    Array,
    Plot,
    name_method,
    name_rows,
    to_array,
    wrap,
)

MOST_SPREAD = 10


def plot_gains(e: Explanation) -> Plot:
    """What each feature added as greedy took it, and the sum so far.

    Intervals are drawn as upright lines, faint where they hold 0. The sum is in the gains' unit, or
    without one a share of the gains above 0. A concave function gives its first features much more
    than the others, of noise too: the curves tell how the function learned, and only their order
    what the evidence is.
    """
    values, unit, intervals = to_array(e.gains).astype(np.float64), e.unit, e.gain_intervals
    n, below = values.shape[1], bool((values < 0).any())
    steps, sums = np.arange(1, n + 1), values.cumsum(1)
    if not unit:
        above = values.clip(0).sum(1, keepdims=True)
        sums /= np.where(above > 0, above, np.maximum(-sums[:, -1:], 1e-300))
    figure = Plot(figsize=(WIDTH, 3.05))
    left, right = figure.subplots(1, 2)
    for i, label in enumerate(name_rows(e)):
        colour = SERIES[i % len(SERIES)]
        left.plot(steps, values[i], color=colour, lw=1.4, label=textwrap.shorten(label, 34))
        right.plot(steps, sums[i], color=colour, lw=1.4)
        if intervals is not None:
            low, high = to_array(intervals[i]).T
            sure = (low > 0) | (high < 0)
            for known, alpha in ((sure, 0.8), (~sure, 0.2)):
                left.vlines(steps[known], low[known], high[known], color=colour, alpha=alpha, lw=1)
    if below:
        left.set_yscale("symlog", linthresh=0.01 * np.abs(values).max())
        left.axhline(0, color=INK, lw=0.6)
    elif values.any():
        left.set_yscale("log")
    right.axhline(0, color=INK, lw=0.6)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set(xlim=(1, max(n, 2)), xlabel="features, in the order greedy took them")
        axes.grid()
        axes.xaxis.set_major_formatter("{x:g}")
        if n < 10:  # all ticks but the first are minor ones
            axes.xaxis.set_minor_formatter("{x:g}")
    left.yaxis.set_major_formatter("{x:g}")
    left.set_ylabel(f"gain of the feature{unit and ', '}{unit} (log scale)")
    if unit:
        right.set_ylabel(f"sum so far, {unit}")
        note = "it ends at the model's own difference"
    else:
        right.plot(steps, steps / n, color=FAINT, lw=0.9, ls=(0, (4, 3)))
        right.yaxis.set_major_formatter("{x:.0%}")
        right.set_ylabel("share of the gains above 0" if below else "share of the total")
        note = "how fast it rises is mostly the learned function's; dashed: equal gains"
    right.set_title(note, fontsize=SIZE - 1, color=FAINT, loc="right")
    if len(e) <= len(SERIES):
        left.legend(fontsize=SIZE - 1, loc="best", labelspacing=0.25)
    return figure


def plot_curve(e: Explanation) -> Plot:
    """What the model says with only the best p features left, and with these removed.

    Its own answers are points; what f says of both is drawn as lines, with its error as a band.
    """
    if e.curve is None:
        raise InputError("there is no curve without a budget: SEA(model, budget=128)")
    at, unit = to_array(e.curve.counts), e.output.unit
    predicted = (None, None) if e.function is None else predict_curve(e.function, e.order)
    across = min(3, len(e))
    rows = -(-len(e) // across)
    figure = Plot(figsize=(WIDTH, 2.75 * rows + 0.3))
    grid = figure.subplots(rows, across, squeeze=False)
    for spare in grid.flat[len(e) :]:
        spare.remove()
    styles = (
        (e.curve.left, predicted[0], FOR, "o", "-", "only these left"),
        (e.curve.removed, predicted[1], AGAINST, "s", "--", "these removed"),
    )
    for i, label in enumerate(name_rows(e)):
        axes = grid.flat[i]
        off = 0.0 if e.predict_error is None else float(e.predict_error[i])
        for answers, lines, colour, point, line, name in styles:
            axes.plot(at, to_array(answers[i]), point, color=colour, ms=4, label=name, zorder=3)
            if lines is not None:
                f = to_array(lines[i])
                axes.plot(f, line, color=colour, lw=1.2)
                band: dict[str, Any] = {"color": colour, "alpha": 0.14, "lw": 0}
                axes.fill_between(np.arange(len(f)), f - off, f + off, **band)
        axes.set_xscale("function", functions=(np.sqrt, np.square))
        ticks = [0, *sorted({round(at[-1] * t) for t in (1 / 16, 1 / 4, 1)} - {0})]
        axes.set(xlim=(0, at[-1]), xticks=ticks)
        if unit == "probability":
            axes.set_ylim(-0.02, 1.02)
        axes.grid()
        axes.set_xlabel("p, the best features left or removed\n(square-root scale)")
        axes.set_ylabel(unit if i % across == 0 else "")
        axes.set_title(wrap(label, WIDTH / across - 1))
    note = "points: the model's own answers; lines: what f predicts, with its error"
    style = {"loc": "outside lower center", "title": note, "title_fontsize": SIZE - 0.5}
    figure.legend(*axes.get_legend_handles_labels(), ncols=2, **style)
    return figure


def plot_agreement(e: Explanation) -> Plot:
    """Rank correlations between SEA and the members, with numbers, and where members disagree."""
    spread, pictures = e.disagreement, e.images
    if e.view == "slices":  # seen along the depth, each place's largest value
        spread, pictures = spread.amax(1), None if pictures is None else pictures.amax(1)
    titles = ["input", "where members disagree", "Spearman rank correlation"]
    titles = titles[pictures is None :]
    side = 2.6
    figure = Plot(figsize=(side * len(titles) + 1, side * len(e) + 1.4))
    grid = figure.subplots(len(e), len(titles), squeeze=False)
    for i, label in enumerate(name_rows(e)):
        *_, where, table = line = grid[i]
        if pictures is not None:
            line[0].imshow(to_array(pictures[i]))
            line[0].set(xticks=[], yticks=[])
        if spread.ndim == 2:  # bars of the features that members disagree on most
            top = spread[i].argsort(descending=True, stable=True)[:MOST_SPREAD].tolist()
            names = [e.feature_names[k] if e.feature_names else f"feature {k}" for k in top]
            where.barh(range(len(top)), to_array(spread[i, top]), color=FAINT)
            where.set_yticks(range(len(top)), [wrap(name, 1.6) for name in names])
            where.set(ylim=(MOST_SPREAD - 0.4, -0.6), xlim=(0, 0.5))
        else:
            aspect = "equal" if e.view in ("picture", "slices") else "auto"
            shown = where.imshow(to_array(spread[i]), COLOURS, vmin=0, vmax=0.5, aspect=aspect)
            where.set(xticks=[], yticks=[])
        _draw_matrix(table, to_array(e.agreement_with_sea[i]), e, last=i == len(e) - 1)
        line[0].set_ylabel(wrap(label, side - 0.5))
        if i == 0:
            for axes, title in zip(line, titles, strict=True):
                axes.set_title(title)
    if spread.ndim == 2:
        where.set_xlabel("spread of the members'\npercentile ranks")
    else:
        below = {"location": "bottom", "shrink": 0.9, "aspect": 25, "pad": 0.02 / len(e)}
        bar = figure.colorbar(shown, ax=grid[:, -2], **below)
        bar.set_label("spread of the members'\npercentile ranks")
        bar.outline.set_visible(False)
    return figure


def _draw_matrix(axes: Axes, values: Array, e: Explanation, last: bool) -> None:
    names = [wrap(name_method(name), 1.6) for name in ("SEA", *e.methods)]
    k = len(names)
    axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    size = SIZE - 0.5 if k <= 7 else max(4.5, 56 / k)
    for r, c in np.ndindex(k, k):
        known = np.isfinite(values[r, c])
        text = f"{round(float(values[r, c]), 2) + 0.0:.2f}".replace("-", "−") if known else "–"
        colour = "white" if known and abs(values[r, c]) > 0.62 else INK
        axes.text(c, r, text, ha="center", va="center", fontsize=size, color=colour)
    axes.set_yticks(range(k), names)
    axes.set_xticks([])
    if last:
        axes.set_xticks(range(k), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
