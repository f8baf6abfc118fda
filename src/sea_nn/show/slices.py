"""Volumes as slices: which to look at, and pictures of them.

A volume [D, H, W] is cut along its first axis; permute it to look along another. The axis falls
into runs of equal length, and each is shown by the slice that holds most, so that slices are spread
over the volume and miss no spot. Colours are those of the whole volume, not of each slice.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sea_nn.errors import InputError
from sea_nn.features import cell_of
from sea_nn.show.panels import (
    Array,
    ArrayLike,
    Plot,
    add_heat_bar,
    blend,
    heat,
    name_features,
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
    mass = _check(attribution).sum((1, 2))
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
    attribution: ArrayLike, picked: Sequence[int], values: ArrayLike | None = None
) -> Array:
    """Slices as pictures, uint8 [k, H, W, 3]: the map alone, or laid over the volume's own values.

    ``values`` are [D, H, W] in any range; they are stretched to grey over the whole volume.
    """
    volume = _check(attribution)
    positions = heat(volume, 0)[list(picked)]
    if values is None:
        return np.round(paint(positions) * 255).astype(np.uint8)
    grey = to_grey(values)
    if grey.shape[:3] != volume.shape:
        raise InputError(f"values must be {list(volume.shape)} like attribution")
    laid = [
        blend(grey[k], position, most=COVER) for k, position in zip(picked, positions, strict=True)
    ]
    return np.round(np.stack(laid) * 255).astype(np.uint8)


def to_grey(values: ArrayLike) -> Array:
    """Numbers as grey pictures from their least to their largest: [...] -> uint8 [..., 3]."""
    numbers = to_array(values).astype(np.float64)
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    light = np.nan_to_num((numbers - low) / ((high - low) or 1.0))
    return np.repeat(np.round(255 * light).astype(np.uint8)[..., None], 3, axis=-1)


def tile(slices: Array, columns: int | None = None) -> Array:
    """Slices [k, H, W, ...] as one picture, row by row; what is left over is 0.

    >>> tile(np.arange(3).reshape(3, 1, 1)).tolist()
    [[0, 1], [2, 0]]
    """
    count, height, width = slices.shape[:3]
    columns = columns or int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    whole = np.zeros((rows * columns, *slices.shape[1:]), slices.dtype)
    whole[:count] = slices
    grid = whole.reshape(rows, columns, *slices.shape[1:]).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, *slices.shape[3:])


def plot_slices(
    attribution: ArrayLike,
    values: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    path: str | Path | None = None,
    count: int = COUNT,
    unit: str = "",
) -> Plot:
    """Volumes [N, D, H, W], or [N, 1, D, H, W], as rows of slices, each named by its number."""
    volumes = to_array(attribution)
    volumes = volumes[:, 0] if volumes.ndim == 5 and volumes.shape[1] == 1 else volumes
    if volumes.ndim != 4:
        raise InputError(
            f"attribution must be [N, D, H, W] or [N, 1, D, H, W]; got {list(volumes.shape)}"
        )
    own = None if values is None else to_array(values).reshape(volumes.shape)
    height, width = volumes.shape[2:]
    names = name_features(labels, len(volumes), "volume")
    count = min(count, volumes.shape[1])
    figure, axes = panel_grid([""] * count, names, height / width, footer=0.66)
    for i, volume in enumerate(volumes):
        picked = pick_slices(volume, count)
        pictures = paint_slices(volume, picked, None if own is None else own[i])
        for panel, k, picture in zip(axes[i], picked, pictures, strict=True):
            panel.imshow(picture, interpolation="nearest")
            place = {"transform": panel.transAxes, "va": "top", "fontsize": 7}
            box = {"facecolor": "black", "alpha": 0.6, "lw": 0, "pad": 1.5}
            panel.text(0.03, 0.97, f"slice {k}", color="white", bbox=box, **place)
    add_heat_bar(figure, unit)
    return figure.write(path)


def _check(attribution: ArrayLike) -> Array:
    volume = to_array(attribution)
    if volume.ndim != 3:
        raise InputError(f"a volume must be [D, H, W]; got {list(volume.shape)}")
    return volume
