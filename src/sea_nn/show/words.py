"""Texts as marked words: in a terminal and in a figure; ``viewer.js`` marks them on pages.

Strength is shown twice, by colour and by an underline, and so is the side: evidence for the class
is underlined once, evidence against it by a dashed or double line. No reader depends on colour.

Words are plain strings. Where one of them has white space at its ends, all are put together as they
are, so that the words of a text give the text back; otherwise a space goes between two.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Rectangle

from sea_nn.errors import InputError
from sea_nn.show.panels import (
    AGAINST,
    DPI,
    FOR,
    INK,
    LIMIT,
    SIZE,
    WIDTH,
    Array,
    ArrayLike,
    Plot,
    add_axes,
    measure,
    to_array,
    wrap,
    write_text,
)

if TYPE_CHECKING:
    from rich.text import Text

LEVELS = 8


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
    if net.ndim != 1:
        raise InputError(f"attribution must be [W], one number a word; got {list(net.shape)}")
    mean = np.abs(net).mean() if net.size else 0.0
    heat = np.sqrt(np.clip(np.abs(net) / (mean or 1.0) / LIMIT, 0, 1))
    return (np.sign(net) * np.round(LEVELS * heat)).astype(np.int64)


def print_words(
    words: Sequence[str], attribution: ArrayLike, against: ArrayLike | None = None
) -> "Text":
    """One text for a terminal, as ``rich`` prints it: colour, and bold for the upper half."""
    from rich.text import Text

    levels, gap = _check(words, attribution, against), _find_gap(words)
    text = Text()
    for k, (word, level) in enumerate(zip(words, levels, strict=True)):
        before, bare, after = _split(word)
        style = "" if not level else f"{'bold ' if abs(level) > LEVELS // 2 else ''}"
        if level:
            style += "underline magenta" if level > 0 else "underline2 blue"
        text.append((gap if k else "") + before)
        text.append(bare, style)
        text.append(after)
    return text


def plot_words(
    words: Sequence[Sequence[str]],
    attribution: Sequence[ArrayLike],
    against: Sequence[ArrayLike] | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
) -> Plot:
    """Texts as a figure, each a list of words with its attribution [W]; longer lines are broken."""
    size, line, edge = SIZE + 1.5, 0.29, 0.15
    gap = measure("x x", size) - measure("xx", size)
    laid = []
    for i, text in enumerate(words):
        other = None if against is None else against[i]
        levels = _check(text, attribution[i], other)
        laid.append(_break_lines(text, levels, WIDTH - 2 * edge, size, gap))
    n_lines = sum(max(1, rows) for _, rows in laid)
    height = n_lines * line + len(laid) * 0.42 + 0.35
    figure = Plot(figsize=(WIDTH, height), dpi=DPI)
    axes = add_axes(figure, 0, 0, WIDTH, height)
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    axes.set_axis_off()
    top = height
    for i, (placed, rows) in enumerate(laid):
        title = wrap(labels[i] if labels is not None else f"text {i}", WIDTH - 2 * edge, lines=1)
        write_text(figure, edge / WIDTH, (top - 0.24) / height, title, weight="bold")
        for word, level, left, row, width in placed:
            base = top - 0.5 - row * line
            if level:
                _mark(axes, edge + left, base, width, level)
            axes.text(edge + left, base, word, fontsize=size, color=INK, parse_math=False)
        top -= 0.42 + max(1, rows) * line
    legend = "underlined: for the class, dashed: against; thicker and darker is more"
    write_text(figure, edge / WIDTH, 0.08 / height, legend, fontsize=SIZE - 1)
    return figure.write(path)


def _check(words: Sequence[str], attribution: ArrayLike, against: ArrayLike | None) -> list[int]:
    levels: list[int] = grade_words(attribution, against).tolist()
    if len(words) != len(levels):
        raise InputError(f"there are {len(words)} words and {len(levels)} numbers for them")
    return levels


def _find_gap(words: Sequence[str]) -> str:
    return "" if any(word != word.strip() for word in words) else " "


def _split(word: str) -> tuple[str, str, str]:
    """White space before a word, the word, and white space after it."""
    bare = word.strip()
    before = word[: len(word) - len(word.lstrip())] if bare else word
    return before, bare, word[len(before) + len(bare) :]


def _break_lines(
    words: Sequence[str], levels: Sequence[int], room: float, size: float, gap: float
) -> tuple[list[tuple[str, int, float, int, float]], int]:
    """Words with (level, left, row, width), in inches; and how many rows they take."""
    placed, left, row = [], 0.0, 0
    apart = _find_gap(words) != ""
    for word, level in zip(words, levels, strict=True):
        before, bare, after = _split(word)
        left += gap if before and left else 0.0
        bare = wrap(bare, room, size, lines=1)
        width = measure(bare, size) if bare else 0.0
        if left and left + width > room:
            left, row = 0.0, row + 1
        if bare:
            placed.append((bare, level, left, row, width))
        left += width + (gap if apart or after else 0.0)
        if "\n" in before + after:
            left, row = 0.0, row + 1
    return placed, row + 1


def _mark(axes: Any, left: float, base: float, width: float, level: int) -> None:
    strength, colour = abs(level) / LEVELS, FOR if level > 0 else AGAINST
    box = Rectangle((left, base - 0.05), width, 0.2, color=colour, alpha=0.42 * strength, lw=0)
    axes.add_patch(box)
    style: dict[str, Any] = {"color": colour, "lw": 0.5 + 2.5 * strength}
    if level < 0:
        style["linestyle"] = (0, (2, 1.2))
    axes.plot([left, left + width], [base - 0.06] * 2, solid_capstyle="butt", **style)
