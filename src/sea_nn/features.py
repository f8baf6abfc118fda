"""Features that count as one: superpixels, one-hot columns, the cells of a grid."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sea_nn.ensembling.heatmaps import cell_of
from sea_nn.errors import InputError, KindError


def group_features(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A feature mask as group numbers 0 … k-1 over the map: int64 [1, *shape]."""
    mask = torch.as_tensor(mask)
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


def broadcast_mask(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """A feature mask as group numbers that broadcast to the inputs, for members; None: none."""
    if mask is None:
        return None
    shape = tuple(x.shape[2:]) if x.ndim == 4 else tuple(x.shape[1:])
    groups = group_features(mask, shape).to(x.device)
    return groups.unsqueeze(1) if x.ndim == 4 else groups


def spread(values: Tensor, groups: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give every pixel its group's value: [N, k] -> [N, *shape]."""
    index = groups.reshape(1, -1).expand(len(values), -1)
    return values.gather(1, index).reshape(-1, *shape)


def number_cells(grid: tuple[int, ...], shape: tuple[int, ...]) -> Tensor | None:
    """The cell of a grid that each pixel of a map belongs to, [1, H, W]; None: one each."""
    if math.prod(grid) == math.prod(shape):
        return None
    rows, columns = grid
    row = cell_of(shape[0], rows).unsqueeze(1)
    return (row * columns + cell_of(shape[1], columns)).unsqueeze(0)
