"""Volumes as slices: which to look at, and pictures of them.

A volume [D, H, W] is cut along its first axis; permute it to look along another. The axis falls
into runs of equal length, and each is shown by the slice that holds most, so that slices are spread
over the volume and miss no spot. Colours are those of the whole volume, not of each slice.
"""

from collections.abc import Sequence

import numpy as np

from sea_nn.features import cell_of
from sea_nn.show.panels import (
    Array,
    ArrayLike,
    Plot,
    add_heat_bar,
    blend,
    heat,
    paint,
    panel_grid,
    to_array,
)

COUNT = 6
COVER = 0.55  # whole blocks are hot: what lies below must still be seen


def pick_slices(attribution: ArrayLike, count: int = COUNT) -> list[int]:
    """The slices worth looking at, of a volume [D, H, W]: at most ``count``, from first to last.

    >>> volume = np.zeros((6, 2, 2))
    >>> volume[[1, 5]] = 1.0
    >>> pick_slices(volume, 2)
    [1, 5]
    """
    mass = to_array(attribution).sum((1, 2))
    runs = to_array(cell_of(len(mass), min(count, len(mass))))
    picked = []
    for run in range(int(runs[-1]) + 1):
        places = np.flatnonzero(runs == run)
        inside = mass[places]
        # A run without evidence is shown by its middle, not by its edge.
        best = int(inside.argmax()) if inside.max() > inside.min() else len(places) // 2
        picked.append(int(places[best]))
    return picked


def paint_slices(
    attribution: ArrayLike, picked: Sequence[int], images: ArrayLike | None = None
) -> Array:
    """Slices as pictures, [k, H, W, 3]: the map alone, or over the images uint8 [D, H, W, 3]."""
    positions = heat(attribution, 0)[list(picked)]
    if images is None:
        return paint(positions)
    below = to_array(images)[list(picked)]
    return np.stack([blend(*pair, most=COVER) for pair in zip(below, positions, strict=True)])


def tile(slices: Array) -> Array:
    """Slices [k, H, W, ...] as one picture, row by row; what is left over is 0.

    >>> tile(np.arange(3).reshape(3, 1, 1)).tolist()
    [[0, 1], [2, 0]]
    """
    count, height, width = slices.shape[:3]
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    whole = np.zeros((rows * columns, *slices.shape[1:]), slices.dtype)
    whole[:count] = slices
    grid = whole.reshape(rows, columns, *slices.shape[1:]).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, *slices.shape[3:])


def plot_slices(
    volumes: ArrayLike, images: ArrayLike | None, labels: Sequence[str], unit: str
) -> Plot:
    """Volumes [R, 1, D, H, W] as rows of slices, each named by its number, over their images."""
    maps = to_array(volumes)[:, 0]
    depth, height, width = maps.shape[1:]
    figure, axes = panel_grid([""] * min(COUNT, depth), labels, height / width)
    for i, volume in enumerate(maps):
        picked = pick_slices(volume)
        pictures = paint_slices(volume, picked, None if images is None else images[i])
        for panel, k, picture in zip(axes[i], picked, pictures, strict=True):
            panel.imshow(picture)
            box = {"facecolor": "black", "alpha": 0.6, "lw": 0, "pad": 1.5}
            place = {"transform": panel.transAxes, "va": "top", "fontsize": 7}
            panel.text(0.03, 0.97, f"slice {k}", color="white", bbox=box, **place)
    add_heat_bar(figure, axes, unit)
    return figure
