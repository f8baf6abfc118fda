"""The ground every figure stands on: one colour scale, text that fits, grids of panels.

Maps are drawn in multiples of their own mean, from 0 to ``LIMIT``, on a square-root scale. The
limits never follow the data, so that a colour means the same share of a map's total in every
panel, figure and report; larger values take the top colour.
"""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
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
SMALLEST = 5.0  # points: below it a word is cut rather than shrunk
HIGHEST = 2.6  # inches of a panel, for tall images


class Plot(Figure):
    """A matplotlib figure that stands outside pyplot and shows itself in a notebook."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def write(self, path: str | Path | None) -> "Plot":
        """Save to ``path`` if there is one (the suffix decides the format); return the figure."""
        if path is None:
            return self
        target = Path(path) if Path(path).suffix else Path(f"{path}.png")
        known = self.canvas.get_supported_filetypes()
        kind = target.suffix[1:].lower()
        if kind not in known:
            raise InputError(
                f"a figure cannot be saved as {target.suffix!r}; choose one of: "
                f"{', '.join(f'.{suffix}' for suffix in sorted(known))}"
            )
        with write_atomically(target) as file:
            self.savefig(file, dpi=DPI, format=kind)
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


def paint(positions: Array, colours: str = COLOURS) -> Array:
    """Positions on the colour scale as RGB in [0, 1]: [...] -> [..., 3]."""
    return np.asarray(colormaps[colours](positions))[..., :3]


def blend(image: Array, positions: Array, colours: str = COLOURS, most: float = 1.0) -> Array:
    """Lay heat [H, W] over a grey copy of the image, uint8 [H, W, 3]; the hotter, the denser.

    ``most`` of the image is covered where it is hottest.
    """
    cover = most * (1 - 0.35 ** (0.1 + 2.5 * positions**1.5))[..., None]
    return cover * paint(positions, colours) + (1 - cover) * grey(image)


def grey(image: Array) -> Array:
    """The image's luminance as RGB in [0, 1]: uint8 [H, W, 3] -> [H, W, 3]."""
    light = image.astype(np.float64) @ np.array([0.299, 0.587, 0.114]) / 255
    return np.repeat(light[..., None], 3, axis=-1)


def measure(text: str, size: float = SIZE, bold: bool = False) -> float:
    """The width of one line of text in inches."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(width) / 72


def wrap(text: str, width: float, size: float = SIZE, lines: int = 3, bold: bool = False) -> str:
    """Break text at spaces so that every line fits ``width`` inches; cut with … after ``lines``.

    A single word that is too wide is cut where it no longer fits.
    """

    def fits(candidate: str) -> bool:
        return measure(candidate, size, bold) <= width

    rows: list[str] = []
    words = [word for word in text.replace("\n", " ").split(" ") if word]  # keeps "5\u00a0%" whole
    while words and len(rows) <= lines:
        word = words.pop(0)
        if rows and fits(f"{rows[-1]} {word}"):
            rows[-1] += f" {word}"
            continue
        if not fits(word):
            cut = _count_fitting(word, fits)
            if cut < len(word):
                words.insert(0, word[cut:])
            word = word[:cut]
        rows.append(word)
    if len(rows) > lines:
        last = rows[lines - 1]
        while last and not fits(f"{last}…"):
            last = last[:-1]
        rows = [*rows[: lines - 1], f"{last.rstrip()}…"]
    return "\n".join(rows)


def _count_fitting(word: str, fits: Callable[[str], bool]) -> int:
    """How many letters of a word that is too wide fit, at least one; found by halving."""
    low, high = 1, 2
    while high < len(word) and fits(word[:high]):
        low, high = high, 2 * high
    high = min(high, len(word))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(word[:middle]) else (low, middle)
    return low


def fit_titles(titles: Sequence[str], width: float) -> tuple[list[str], float]:
    """Titles wrapped to ``width`` inches, and the size in points at which their words stay whole.

    All share one size, down to ``SMALLEST``; a title that would be cut even there has no say.
    """

    def is_whole(title: str, size: float) -> bool:
        return wrap(title, width, size, bold=title == "SEA").split() == title.split()

    sizes = np.arange(SIZE, SMALLEST - 0.25, -0.5).tolist()
    best = [next((s for s in sizes if is_whole(title, s)), SIZE) for title in titles]
    size = min(best, default=SIZE)
    return [wrap(title, width, size, bold=title == "SEA") for title in titles], size


def name_method(method: str) -> str:
    """A method's name as figures print it: underscores become spaces."""
    return method.replace("_", " ")


def panel_grid(
    titles: Sequence[str],
    row_labels: Sequence[str],
    aspect: float = 1.0,
    footer: float = 0.0,
    widest: float = 2.2,
    most: int | None = None,
    headings: Sequence[str] = (),
) -> tuple[Plot, Array]:
    """A grid of bare panels with titles above and labels at the left, all fitted to their space.

    "SEA" is set in bold, and empty row labels take no room. ``aspect`` is a panel's height over its
    width, at most ``widest`` inches; ``footer`` inches stay free below. A row of more than ``most``
    panels is broken into lines, each below its own titles. With ``headings`` the rows fall into as
    many blocks of equal length, each below its heading and the titles.

    Returns:
        The figure and its axes [rows, columns].
    """
    gap, edge, line = 0.06, 0.05, SIZE * 1.22 / 72
    widest = min(widest, HIGHEST / aspect)
    columns, rows = len(titles), len(row_labels)
    lines = math.ceil(columns / (most or columns))
    across = math.ceil(columns / lines)
    # The label band depends on the panels' height and the panels' width on the band: three lines
    # of band is the most there can be, so start from there and give back what is not used.
    room = WIDTH - 2 * edge - gap * (across - 1)
    panel = min(widest, (room - (3 * line + gap if any(row_labels) else 0)) / across)
    labels = [wrap(label, panel * aspect * lines) for label in row_labels]
    depth = max(label.count("\n") + 1 for label in labels) if any(labels) else 0
    band = depth * line + gap if depth else 0.0
    panel = min(widest, (room - band) / across)
    tall = panel * aspect
    heads, size = fit_titles(titles, panel)
    line_heads = [heads[k : k + across] for k in range(0, columns, across)]
    depths = [max(h.count("\n") for h in some) + 1 if any(some) else 0 for some in line_heads]
    above = [depth * line * size / SIZE + 0.06 if depth else 0.0 for depth in depths]

    # Titles stand above the first row of every block; without blocks, above the first of all,
    # unless lines with titles of their own follow it.
    length = rows // len(headings) if headings else (1 if lines > 1 else rows)
    blocks = rows // length
    heading, apart = (line + 0.04 if headings else 0.0), (0.1 if blocks > 1 else 0.0)
    width = 2 * edge + band + across * panel + gap * (across - 1)
    height = 2 * edge + rows * lines * tall + gap * (rows * lines - 1) + footer
    height += blocks * (sum(above) + heading) + (blocks - 1) * apart
    figure = Plot(figsize=(width, height), dpi=DPI)
    axes = np.empty((rows, columns), dtype=object)
    top = height - edge
    for r in range(rows):
        first = r % length == 0
        if first:
            top -= (apart if r else 0.0) + heading
            if headings:
                text = wrap(headings[r // length], width - band - 2 * edge, lines=1)
                write_text(figure, (edge + band) / width, (top + 0.06) / height, text)
        start = top - above[0] * first
        for c in range(columns):
            k, place = divmod(c, across)
            if place == 0:
                top -= above[k] * first + (tall + gap) * (c > 0)
            left = edge + band + place * (panel + gap)
            axes[r, c] = add_axes(figure, left, top - tall, panel, tall)
            axes[r, c].set(xticks=[], yticks=[])
            axes[r, c].spines[:].set_visible(False)
            if first:
                weight = "bold" if titles[c] == "SEA" else "normal"
                style: dict[str, Any] = {"ha": "center", "va": "baseline", "weight": weight}
                spot = (left + panel / 2) / width, (top + 0.07) / height
                write_text(figure, *spot, heads[c], fontsize=size, **style)
        top -= tall + gap
        weight = "bold" if row_labels[r] == "SEA" else "normal"
        style = {"rotation": 90, "va": "center", "weight": weight}
        write_text(figure, edge / width, (start + top + gap) / 2 / height, labels[r], **style)
    return figure, axes


def add_axes(figure: Plot, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches."""
    w, h = figure.get_size_inches()
    return figure.add_axes((left / w, bottom / h, width / w, height / h))


def write_text(figure: Plot, x: float, y: float, text: str, **style: Any) -> None:
    """Text at a place in fractions of the figure; dollar signs are dollar signs."""
    plain: dict[str, Any] = {"fontsize": SIZE, "color": INK, "ha": "left", "va": "bottom"}
    figure.text(x, y, text, parse_math=False, linespacing=1.1, **(plain | style))


def add_heat_bar(figure: Plot, unit: str = "", colours: str = COLOURS) -> None:
    """The colour scale of all maps, along the figure's foot; needs a footer of 0.62 inches."""
    width = min(4.2, figure.get_size_inches()[0] - 0.4)
    left = (figure.get_size_inches()[0] - width) / 2
    text = wrap(
        f"{SCALE_TEXT}; SEA's is in {unit}" if unit else SCALE_TEXT,
        figure.get_size_inches()[0] - 0.2,
        SIZE - 0.5,
    )
    # The footer has just room for a second line.
    axes = add_axes(figure, left, 0.42 + 0.08 * text.count("\n"), width, 0.09)
    bar = figure.colorbar(
        ScalarMappable(PowerNorm(0.5, 0, LIMIT), colormaps[colours]),
        cax=axes,
        orientation="horizontal",
        extend="max",
        ticks=[0, 0.5, 1, 2, 4, 7, LIMIT],
    )
    bar.ax.set_xticklabels(["0", "½", "1×", "2×", "4×", "7×", f"{LIMIT:.0f}×"])
    style_axes(bar.ax)
    bar.outline.set_visible(False)
    bar.ax.set_xlabel(text, labelpad=2)


def style_axes(axes: Axes) -> None:
    """Small ink, no box: the look of everything that has ticks."""
    axes.tick_params(labelsize=SIZE - 0.5, colors=INK, length=2.5, width=0.6, pad=2)
    axes.tick_params(which="minor", labelsize=SIZE - 0.5, colors=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_linewidth(0.6)
    axes.xaxis.label.set(fontsize=SIZE - 0.5, color=INK)
    axes.yaxis.label.set(fontsize=SIZE - 0.5, color=INK)


def name_features(names: Sequence[str] | None, count: int, noun: str = "feature") -> list[str]:
    """The names given, or numbered ones; refuse a wrong number of them."""
    if names is None:
        return [f"{noun} {k}" for k in range(count)]
    if len(names) != count:
        raise InputError(f"there are {count} {noun}s to name; got {len(names)} names")
    return list(names)
