"""Pictures larger than a model takes: explained tile by tile, at the caller's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sea_nn.errors import InputError

if TYPE_CHECKING:
    from sea_nn.sea import SEA


def explain_tiles(sea: SEA, x: Tensor, target: int, size: int, overlap: float = 0.5) -> Tensor:
    """The map of large images [N, C, H, W] for one class, from maps of tiles: [N, 1, H, W].

    Every tile of ``size`` pixels a side is explained by itself, as the model sees it by itself; a
    tile counts by the model's score for the class, and where tiles overlap their maps are averaged.
    What the model would say of the whole is not asked: it cannot be.

    Args:
        sea: explains a tile.
        x: the images, at least as large as a tile.
        target: the class. Tiles without it have low scores, and so count little.
        size: of a tile, in pixels: what the model takes.
        overlap: the part that neighbours share, from 0 up to below 1.
    """
    if x.ndim != 4 or min(x.shape[2:]) < size:
        raise InputError(
            f"images must be [N, C, H, W] of at least {size} x {size} pixels; got {list(x.shape)}"
        )
    if not 0 <= overlap < 1:
        raise InputError(f"overlap must be from 0 up to below 1; got {overlap}")
    if isinstance(target, bool) or not isinstance(target, int):
        raise InputError(f"tiles need one class for all of them, a number; got {target!r}")
    total, weight = torch.zeros_like(x[:, :1]), torch.zeros_like(x[:, :1])
    step = max(1, round(size * (1 - overlap)))
    for top in find_starts(x.shape[2], size, step):
        for left in find_starts(x.shape[3], size, step):
            place = (..., slice(top, top + size), slice(left, left + size))
            e = sea.explain(x[place], target, quiet=True)
            score = e.score.to(x).view(-1, 1, 1, 1)
            total[place] += score * e.attribution.to(x)
            weight[place] += 1
    return total / weight


def find_starts(length: int, size: int, step: int) -> list[int]:
    """Where tiles begin along an axis; the last one ends with it.

    >>> find_starts(10, 4, 3)
    [0, 3, 6]
    >>> find_starts(9, 4, 4)
    [0, 4, 5]
    """
    starts = list(range(0, length - size + 1, step))
    return starts if starts[-1] == length - size else [*starts, length - size]
