"""Positions that count as one feature: cells of a grid, feature masks."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError, KindError


def group_features(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A feature mask as group numbers 0 … k-1 over the map: int64 [1, *shape]."""
    try:
        mask = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(
            f"feature_mask must be a tensor of whole numbers; got {type(mask).__name__}"
        ) from error
    if mask.is_floating_point() or mask.is_complex():
        raise KindError(f"feature_mask must hold whole numbers; got {mask.dtype}")
    while mask.ndim > len(shape):
        if not bool((mask == mask[:1]).all()):
            raise InputError(
                f"feature_mask must be one mask over the map {list(shape)} for all inputs (and "
                f"channels); this one, {list(mask.shape)}, differs between them. Explain inputs "
                "with masks of their own one by one"
            )
        mask = mask[0]
    try:
        mask = mask.expand(shape)
    except RuntimeError as error:
        raise InputError(
            f"feature_mask must broadcast to the map {list(shape)}; got {list(mask.shape)}"
        ) from error
    groups: Tensor = mask.unique(return_inverse=True)[1]
    return groups.reshape(1, *shape)


def average_groups(maps: Tensor, groups: Tensor) -> Tensor:
    """Mean over each group: [N, m, *shape] and groups [1, *shape] -> [N, m, k]."""
    index = groups.reshape(1, 1, -1).expand(*maps.shape[:2], -1)
    empty = maps.new_zeros(*maps.shape[:2], int(groups.max()) + 1)
    sums = empty.scatter_add(2, index, maps.flatten(2))
    return sums / empty.scatter_add(2, index, torch.ones_like(index, dtype=sums.dtype))


def expand_mask(mask: Tensor, name: str, count: int, shape: tuple[int, ...]) -> Tensor:
    """A bool mask over the map, for all inputs or for each, as [N, *shape]; errors name it."""
    try:
        mask = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(f"{name} must be a bool mask of shape {shape}; got {mask!r}") from error
    if mask.dtype != torch.bool or tuple(mask.shape) not in (shape, (count, *shape)):
        raise InputError(
            f"{name} must be a bool mask of shape {shape} or {(count, *shape)}; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask.expand(count, *shape)


def mark_groups(mask: Tensor | None, groups: Tensor, count: int, name: str) -> Tensor | None:
    """Which groups a mask over the map touches, bool [N, k] for ``count`` inputs; None: no mask."""
    if mask is None:
        return None
    flat = expand_mask(mask, name, count, tuple(groups.shape[1:])).to(groups.device).flatten(1)
    hit = torch.zeros(count, int(groups.max()) + 1, device=flat.device)
    return hit.scatter_add_(1, groups.reshape(1, -1).expand(count, -1), flat.float()) > 0


def spread(values: Tensor, groups: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give every pixel its group's value: [N, k] -> [N, *shape]."""
    index = groups.reshape(1, -1).expand(len(values), -1)
    return values.gather(1, index).reshape(-1, *shape)


def number_cells(
    grid: Sequence[int], shape: Sequence[int], device: torch.device | None = None
) -> Tensor:
    """The cell of a grid that each position belongs to, row by row: int64 of this shape.

    >>> number_cells((2, 2), (2, 4)).tolist()
    [[0, 0, 1, 1], [2, 2, 3, 3]]
    """
    numbers = torch.zeros((), dtype=torch.int64, device=device)
    for size, cells in zip(shape, grid, strict=True):
        numbers = numbers.unsqueeze(-1) * cells + cell_of(size, cells, device)
    return numbers


def cell_of(size: int, cells: int, device: torch.device | None = None) -> Tensor:
    """Which of ``cells`` cells each of ``size`` positions belongs to: a partition, all non-empty.

    Cells differ by at most one position when ``cells`` does not divide ``size``.
    """
    return torch.arange(size, device=device) * cells // size


def clip_grid(grid: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The grid that a map of this shape can fill: never finer than its positions."""
    return tuple(min(int(g), int(s)) for g, s in zip(grid, shape, strict=True))


def sum_cells(maps: Tensor, grid: Sequence[int]) -> Tensor:
    """Sum over each cell of the grid: [..., H, W] -> [..., rows, columns]."""
    rows, columns = clip_grid(grid, maps.shape[-2:])
    left = functional.one_hot(cell_of(maps.shape[-2], rows, maps.device), rows).to(maps.dtype)
    right = functional.one_hot(cell_of(maps.shape[-1], columns, maps.device), columns).to(
        maps.dtype
    )
    return left.mT @ maps @ right
