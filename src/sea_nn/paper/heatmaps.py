"""From raw attributions to heatmaps and sets: reduce, scale, binarise, pool, upsample [M7].

>>> import torch
>>> raw = torch.tensor([[[[-3.0, 1.0], [0.0, 2.0]]]])        # one input, one channel
>>> scale(reduce_channels(raw))
tensor([[[1.0000, 0.3333],
         [0.0000, 0.6667]]])
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError
from sea_nn.features import cell_of, sum_cells
from sea_nn.paper.greedy import sort_features

FLAT = 1e-6
"""Members' maps whose values differ by less than this share prefer no feature: it is rounding."""


def reduce_channels(raw: Tensor, axis: int | None = 1) -> Tensor:
    """Absolute value, summed over the channel axis (``None``: there is none).

    Half precision and whole numbers become single precision, which a sum cannot overflow.
    """
    magnitude = raw.to(torch.promote_types(raw.dtype, torch.float32)).abs()
    return magnitude if axis is None else magnitude.sum(axis)


def scale(maps: Tensor, batch_axes: int = 1) -> Tensor:
    """Min-max scale each map to [0, 1]; a constant map becomes zero.

    Maps are [N, *shape], or [N, m, *shape] with ``batch_axes=2``.
    """
    flat = maps.reshape(*maps.shape[:batch_axes], -1)
    low, high = flat.aminmax(dim=-1, keepdim=True)
    span = torch.where(high > low, high - low, 1)
    return ((flat - low) / span).reshape(maps.shape)


def to_heatmap(raw: Tensor, axis: int | None = 1) -> Tensor:
    """Raw attributions as heatmaps in [0, 1]; what is the same everywhere becomes zero."""
    magnitude = reduce_channels(raw.float(), axis)
    magnitude[is_flat(magnitude)] = 0  # or its rounding errors would be stretched to a map
    return scale(magnitude)


def is_flat(maps: Tensor) -> Tensor:
    """Whether each map [N, *shape], >= 0, is the same everywhere up to rounding: bool [N].

    A map of one position has no other to compare with: it is flat if it is zero.

    >>> is_flat(torch.tensor([[0.3, 0.3 + 1e-8], [0.3, 0.4], [0.0, 0.0]]))
    tensor([ True, False,  True])
    """
    low, high = maps.flatten(1).aminmax(dim=1)
    return high == 0 if maps[0].numel() == 1 else high - low <= FLAT * high


def smooth(values: Tensor, axis: int, sigma: float) -> Tensor:
    """Blur along one axis by a Gaussian, cut off and renormalised at the ends."""
    place = torch.arange(values.shape[axis], dtype=torch.float64, device=values.device)
    # Relative to the centre's weight: with a tiny sigma only that one remains.
    weight = torch.exp(-((place[:, None] - place) / sigma).square() / 2)
    weight = (weight / weight.sum(1, keepdim=True)).to(values.dtype)
    return (values.movedim(axis, -1) @ weight.mT).movedim(-1, axis)


def count_thresholds(thresholds: Sequence[int | float], n: int) -> list[int]:
    """Thresholds as counts: integers as they are, fractions of n rounded, at most n each.

    >>> count_thresholds([5, 0.5], 20)
    [5, 10]
    """
    counts = [t if isinstance(t, int) else max(1, round(t * n)) for t in thresholds]
    if any(isinstance(t, int) and t > n for t in thresholds):
        warnings.warn(
            f"thresholds above the {n} features there are were clipped to {n}", stacklevel=2
        )
    return [min(count, n) for count in counts]


def binarize(heatmaps: Tensor, thresholds: Sequence[int | float]) -> Tensor:
    """The top features of each heatmap at each threshold: [..., n] -> bool [..., k, n].

    Ties go to the lowest index. Thresholds are counts (int) or fractions of n (float).
    """
    n = heatmaps.shape[-1]
    counts = torch.tensor(count_thresholds(thresholds, n), device=heatmaps.device)
    top, _ = sort_features(heatmaps, int(counts.max()))
    rank = torch.full(heatmaps.shape, n, device=heatmaps.device)
    rank.scatter_(-1, top, torch.arange(top.shape[-1], device=top.device).expand_as(top))
    return rank.unsqueeze(-2) < counts.unsqueeze(-1)


def pool(heatmaps: Tensor, grid: Sequence[int]) -> Tensor:
    """Average each heatmap over the cells of a grid: [..., H, W] -> [..., rows, columns] [M7]."""
    area = sum_cells(heatmaps.new_ones(heatmaps.shape[-2:]), grid)
    return sum_cells(heatmaps, grid) / area


def pool_sets(sets: Tensor, grid: Sequence[int], at_least: bool = False) -> Tensor:
    """A cell is in the pooled set where its count exceeds the mean count over all cells [M7].

    ``at_least`` counts a cell that equals the mean too, as the authors' code does.
    """
    counts = sum_cells(sets.to(torch.float64), grid)
    mean = counts.mean((-2, -1), keepdim=True)
    return counts >= mean if at_least else counts > mean


def upsample(maps: Tensor, size: Sequence[int], mode: str = "nearest") -> Tensor:
    """Bring cell maps [..., rows, columns] to ``size``; "nearest" inverts the partition of pool."""
    if mode == "nearest":
        rows = cell_of(size[0], maps.shape[-2], maps.device)
        columns = cell_of(size[1], maps.shape[-1], maps.device)
        return maps[..., rows[:, None], columns]
    if mode == "bilinear":
        flat = maps.reshape(-1, 1, *maps.shape[-2:])
        wide = functional.interpolate(flat, tuple(size), mode="bilinear", align_corners=False)
        return wide.reshape(*maps.shape[:-2], *size)
    raise InputError(f"upsampling is 'nearest' or 'bilinear'; got {mode!r}")
