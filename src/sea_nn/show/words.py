"""Texts as marked words: in a terminal and in a figure; ``viewer.js`` marks them on pages.

Strength is shown twice, by colour and by an underline, and so is the side: evidence for the class
is underlined once, evidence against it by a dashed or double line. No reader depends on colour.
Words have the white space after them, so that the words of a text give the text back.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Rectangle

from sea_nn.explanation.explanation import Explanation
from sea_nn.show.panels import (
    AGAINST,
    FOR,
    LIMIT,
    SIZE,
    WIDTH,
    Array,
    ArrayLike,
    Plot,
    measure,
    name_rows,
    to_array,
    wrap,
)

if TYPE_CHECKING:
    from rich.text import Text

LEVELS = 8
LINE, EDGE = 0.29, 0.15  # inches of a line of text, and beside it


def grade_words(attribution: ArrayLike, against: ArrayLike | None = None) -> Array:
    """Each word's level, int [W]: 0 for nothing to 8, below 0 where more speaks against the class.

    Levels follow the colour scale of maps: the square root of a word's share in multiples of the
    mean share, the top level for ten times the mean or more.

    >>> grade_words(np.array([8.0, 1.0, 0.0]), np.array([0.0, 2.0, 0.0])).tolist()
    [4, -1, 0]
    """
    net = to_array(attribution).astype(np.float64)
    if against is not None:
        net = net - to_array(against)
    mean = np.abs(net).mean() if net.size else 0.0
    heat = np.sqrt(np.clip(np.abs(net) / (mean or 1.0) / LIMIT, 0, 1))
    return (np.sign(net) * np.round(LEVELS * heat)).astype(np.int64)


def print_words(
    words: Sequence[str], attribution: ArrayLike, against: ArrayLike | None = None
) -> "Text":
    """One text for a terminal, as ``rich`` prints it: colour, and bold for the upper half."""
    from rich.text import Text

    text = Text()
    for word, level in zip(words, grade_words(attribution, against).tolist(), strict=True):
        bold = "bold " if abs(level) > LEVELS // 2 else ""
        side = "underline magenta" if level > 0 else "underline2 blue"
        bare = word.strip()
        before, _, after = word.partition(bare) if bare else (word, "", "")
        text.append(before).append(bare, bold + side if level else "").append(after)
    return text


def plot_words(e: Explanation) -> Plot:
    """Every text as SEA marks it, and below it as each member does; long lines are broken."""
    size, room = SIZE + 1.5, WIDTH - 2 * EDGE
    space = measure("x x", size) - measure("xx", size)
    row, titles, placed = 0.0, [], []
    for one, label in zip(e, name_rows(e), strict=True):
        pieces = one.texts[0] if one.texts is not None else ()
        against = None if one.against is None else one.against[0]
        layers = [("SEA", one.attribution[0], against)]
        layers += [(name, one.maps[0, k], None) for k, name in enumerate(one.methods)]
        for name, layer, other in layers:
            titles.append((row, wrap(f"{label}: {name}", room)))
            row, left = row + 1, 0.0
            for word, level in zip(pieces, grade_words(layer, other).tolist(), strict=True):
                bare = wrap(word.strip(), room, size)
                width = measure(bare, size)
                if left and left + width > room:
                    row, left = row + 1, 0.0
                placed.append((row, EDGE + left, width, bare, level))
                left += width + (space if word != word.rstrip() else 0)
                if "\n" in word:
                    row, left = row + 1, 0.0
            row += 1.45
    height = row * LINE + 0.35
    layout: Any = "none"
    figure = Plot(figsize=(WIDTH, height), layout=layout)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    for row, title in titles:
        axes.text(EDGE, row * LINE + 0.24, title, weight="bold")
    for row, left, width, bare, level in placed:
        base = row * LINE + 0.21
        if level:
            _mark(axes, left, base, width, level)
        axes.text(left, base, bare, fontsize=size)
    legend = "underlined: for the class, dashed: against; thicker and darker is more"
    axes.text(EDGE, height - 0.1, legend, fontsize=SIZE - 1)
    return figure


def _mark(axes: Any, left: float, base: float, width: float, level: int) -> None:
    strength, colour = abs(level) / LEVELS, FOR if level > 0 else AGAINST
    box = Rectangle((left, base - 0.15), width, 0.2, color=colour, alpha=0.42 * strength, lw=0)
    axes.add_patch(box)
    style: dict[str, Any] = {"color": colour, "lw": 0.5 + 2.5 * strength}
    if level < 0:
        style["linestyle"] = (0, (2, 1.2))
    axes.plot([left, left + width], [base + 0.06] * 2, solid_capstyle="butt", **style)
