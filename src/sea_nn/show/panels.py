"""The ground every figure stands on: one colour scale, one style, text that fits, grids of panels.

Maps are drawn in multiples of their own mean, from 0 to ``LIMIT``, on a square-root scale. The
limits never follow the data, so that a colour means the same share of a map's total in every
panel, figure and report; larger values take the top colour.
"""

import io
import textwrap
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps, rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray
from torch import Tensor

from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.explanation import Explanation
from sea_nn.paper.agreement import multiples_of_mean

Array = NDArray[Any]
ArrayLike = Tensor | Array

LIMIT = 10.0
COLOURS = "magma"  # perceptually uniform, safe for colour-blind readers, readable in grey
SCALE_TEXT = "attribution in multiples of the map's own mean (square-root scale)"
INK, FAINT, ACCENT = "#1c1c22", "#6b6b76", "#ffb000"
FOR, AGAINST = "#8c2981", "#1f5fa8"  # evidence for a class and against it
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1c1c22")
WIDTH, DPI, SIZE = 9.0, 200, 8.5  # inches, dots an inch, points
WEIGHTS = {"SEA": "bold"}  # of titles and labels
SMALLEST = 4.5  # points: below it a word is cut rather than shrunk
WIDEST, HIGHEST, GAP = 1.5, 2.6, 0.06  # inches of a panel, and between two
STYLE: Any = {
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "font.size": SIZE,
    "text.color": INK,
    "text.parse_math": False,  # in names, dollar signs are dollar signs
    "axes.titlesize": SIZE,
    "axes.labelsize": SIZE - 0.5,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "image.interpolation": "nearest",
    "legend.fontsize": SIZE - 0.5,
    "legend.frameon": False,
    **{f"{axis}tick.labelsize": SIZE - 0.5 for axis in "xy"},
    **{f"{axis}tick.color": INK for axis in "xy"},
}
"""What figures are drawn with; matplotlib itself lays them out."""
NOUNS = {
    "picture": (("pixel", "pixels"), ("cell", "cells")),
    "slices": (("voxel", "voxels"), ("cell", "cells")),
    "bars": (("column", "columns"), ("group of columns", "groups of columns")),
    "lines": (("time step", "time steps"), ("span of time", "spans of time")),
    "words": (("word", "words"), ("span of words", "spans of words")),
}
"""What one position of a view is called, and several that are one feature."""


class Plot(Figure):
    """A matplotlib figure that stands outside pyplot and shows itself in a notebook."""

    def draw(self, renderer: Any) -> None:
        """Draw in the figure's style: matplotlib makes some ticks only now."""
        with rc_context(STYLE):
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def write(self, path: str | Path | None) -> "Plot":
        """Save to ``path`` if there is one (the suffix decides the format); return the figure."""
        if path is None:
            return self
        target = Path(path) if Path(path).suffix else Path(f"{path}.png")
        with write_atomically(target) as file:
            self.savefig(file, dpi=DPI, format=target.suffix[1:].lower())
        return self


def to_array(values: ArrayLike) -> Array:
    """A tensor on any device, or an array, as a numpy array."""
    if isinstance(values, Tensor):
        return np.asarray(values.detach().cpu().numpy())
    return np.asarray(values)


def heat(maps: ArrayLike, batch_axes: int) -> Array:
    """Maps as positions on the colour scale: [..., *shape] -> [0, 1] of the same shape."""
    multiples = multiples_of_mean(torch.as_tensor(to_array(maps)), batch_axes)
    return to_array((multiples / LIMIT).clamp(0, 1).sqrt())


def paint(positions: Array) -> Array:
    """Positions on the colour scale as RGB in [0, 1]: [...] -> [..., 3]."""
    return np.asarray(colormaps[COLOURS](positions))[..., :3]


def blend(image: Array, positions: Array, most: float = 1.0) -> Array:
    """Lay heat [H, W] over a grey copy of the image, uint8 [H, W, 3]; the hotter, the denser.

    ``most`` of the image is covered where it is hottest.
    """
    cover = most * (1 - 0.35 ** (0.1 + 2.5 * positions**1.5))[..., None]
    return cover * paint(positions) + (1 - cover) * grey(image)


def grey(image: Array) -> Array:
    """The image's luminance as RGB in [0, 1]: uint8 [H, W, 3] -> [H, W, 3]."""
    light = image.astype(np.float64) @ np.array([0.299, 0.587, 0.114]) / 255
    return np.repeat(light[..., None], 3, axis=-1)


def measure(text: str, size: float = SIZE) -> float:
    """The width of one line of text in inches."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)
    return float(width) / 72


def wrap(text: str, width: float, size: float = SIZE, lines: int = 1) -> str:
    """Break text at spaces so that every line fits ``width`` inches; cut with … after ``lines``.

    A single word that is too wide is cut where it no longer fits.
    """
    most = min(len(text), int(width * 72 / (0.25 * size)))  # of the narrowest letters
    for letters in range(max(most, 1), 0, -1):
        rows = textwrap.wrap(
            text, letters, max_lines=lines, placeholder="…", break_on_hyphens=False
        )
        if all(measure(row, size) <= width for row in rows):
            break
    return "\n".join(rows)


def name_method(method: str) -> str:
    """A method's name as figures print it: underscores become spaces."""
    return method.replace("_", " ")


def name_features_of(e: Explanation) -> tuple[str, str]:
    """What to call one feature of an explanation, and several.

    Where several positions are one feature, it is a cell of a picture's grid, a region of its mask,
    a group of columns, a span of time.
    """
    if e.features is not None and e.view in ("picture", "slices") and len(e.feature_shape) == 1:
        return "region", "regions"
    single, several = NOUNS.get(e.view, (("feature", "features"),) * 2)
    return single if e.features is None else several


def name_rows(e: Explanation) -> list[str]:
    """What stands beside the row of each input: its class and its score."""
    return [f"{e.name(i)} {e.write_score(i)}" for i in range(len(e))]


def panel_grid(
    pictures: Sequence[Sequence[Array]],
    titles: Sequence[str],
    labels: Sequence[str],
    unit: str = "",
) -> tuple[Plot, Array]:
    """Rows of pictures with titles above and labels at the left, and the colour scale of all maps.

    "SEA" is set in bold, and its map's ``unit`` is said where it has one.

    Returns:
        The figure and its axes [rows, columns].
    """
    rows, columns = len(labels), len(titles)
    aspect = pictures[0][-1].shape[0] / pictures[0][-1].shape[1]
    panel = min(WIDEST, HIGHEST / aspect, (WIDTH - 0.6) / columns - GAP)
    longest = max(measure(word) for word in ["-", *" ".join(titles).split()])
    size = max(SMALLEST, SIZE * min(1.0, 0.9 * panel / longest))  # so that words stay whole
    heads = [wrap(text, 0.95 * panel, size, lines=3) for text in titles]
    above = (max(head.count("\n") for head in heads) + 1) * 1.3 * size / 72 * any(titles)
    height = rows * (panel * aspect + GAP) + above + 0.65
    figure = Plot(figsize=(columns * (panel + GAP) + 0.6, height), layout="compressed")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=GAP / 2, h_pad=GAP / 2, wspace=0, hspace=0)
    axes = figure.subplots(rows, columns, squeeze=False)
    for place, picture in zip(axes.flat, chain.from_iterable(pictures), strict=True):
        place.imshow(picture)
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
    for place, title, head in zip(axes[0], titles, heads, strict=True):
        place.set_title(head, fontsize=size, weight=WEIGHTS.get(title), pad=3)
    for place, label in zip(axes[:, 0], labels, strict=True):
        place.set_ylabel(wrap(label, panel * aspect, lines=3), weight=WEIGHTS.get(label))
    add_heat_bar(figure, axes, unit)
    return figure, axes


def add_heat_bar(figure: Plot, axes: Array, unit: str = "") -> None:
    """The colour scale of all maps, below the figure's axes."""
    width, height = figure.get_size_inches()
    text = f"{SCALE_TEXT}; SEA's is in {unit}" if unit else SCALE_TEXT
    bar = figure.colorbar(
        ScalarMappable(PowerNorm(0.5, 0, LIMIT), COLOURS),
        ax=axes,
        location="bottom",
        extend="max",
        shrink=min(0.9, 4.2 / width),
        aspect=45,
        pad=0.1 / height,
        label=wrap(text, width - 0.5, SIZE - 0.5, lines=2),
    )
    bar.set_ticks([0, 0.5, 1, 2, 4, 7, LIMIT], labels=["0", "½", "1×", "2×", "4×", "7×", "10×"])
    bar.outline.set_visible(False)
