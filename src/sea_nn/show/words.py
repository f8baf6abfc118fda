"""Texts as marked words in a terminal; ``viewer.js`` marks them on pages.

Strength is shown twice, by colour and by an underline, and so is the side: evidence for the class
is underlined once, evidence against it by a dashed or double line. No reader depends on colour.
Words have the white space after them, so that the words of a text give the text back.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sea_nn.show.panels import Array, ArrayLike, heat, to_array

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
    return (np.sign(net) * np.round(LEVELS * heat(np.abs(net), 0))).astype(np.int64)


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
