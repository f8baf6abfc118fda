"""Draw what was learned about features over the positions of an image.

Features have an order, and their gains never grow along it; positions have the members' heat. A
position comes the earlier the earlier its feature does and the warmer it is, and the k-th position
gets the k-th largest of the features' gains by position: the map sums to the gains, and its order
serves deletion and insertion alike (docs/results/learned.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sea_nn.ensembling.heatmaps import smooth

ANSWERS_A_NAT = 16  # answers that weigh as much as heat that is e times as high
SAY = 1.0  # the mass of the effects of regions for one of the members' heat
SOFTNESS = 0.25  # blur of a region's edge, in widths of a cell
FLOOR = 0.03  # of the mean heat: positions below are alike
TILT = 0.02  # of a value: so much the positions of equal gains differ, the first from the last


def blend(earliness: Tensor, heat: Tensor, sharpness: float) -> Tensor:
    """How early a position comes: by its feature's place, and by the logarithm of its heat.

    Args:
        earliness: of each position's feature in the order, 1 for the first down to 0, [N, *shape].
        heat: where members see evidence, >= 0, [N, *shape].
        sharpness: how much the order counts beside the heat's logarithm.
    """
    mean = heat.flatten(1).mean(1).view(-1, *[1] * (heat.ndim - 1))
    warmth = torch.where(mean > 0, heat / mean.clamp(min=1e-300), 1.0) + FLOOR
    return sharpness * earliness + warmth.log()


def paint_in_order(score: Tensor, gains: Tensor, sizes: Tensor) -> Tensor:
    """Give the positions, in the order of their score, the gains by position, the largest first.

    Args:
        score: larger for positions that come earlier, [N, *shape].
        gains: of features, >= 0, [N, n].
        sizes: how many positions each feature has, [n].

    Returns:
        [N, *shape]; each sums to its gains, and no two positions are equal where these are not 0.

    >>> score, gains = torch.tensor([[0.2, 0.9, 0.4]]), torch.tensor([[2.0, 1.0]])
    >>> paint_in_order(score, gains, torch.tensor([2, 1]))
    tensor([[0.9802, 1.0198, 1.0000]], dtype=torch.float64)
    """
    flat, gains = score.flatten(1), gains.double()
    total, positions = gains.sum(1, keepdim=True), flat.shape[1]
    values = (gains / sizes).repeat_interleave(sizes, 1).sort(dim=1, descending=True).values
    falling = torch.linspace(1, 0, positions, dtype=values.dtype, device=values.device)
    values = values * (1 + TILT * (falling - 0.5)) + TILT * total / positions * falling
    values = values * torch.where(total > 0, total / values.sum(1, keepdim=True), 0.0)
    order = flat.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(values).scatter(1, order, values).reshape(score.shape)


def add_densities(heat: Tensor, effects: Tensor, cells: Sequence[int]) -> Tensor:
    """Heat and effects of regions, both [N, H, W], each as a density: how early a position comes.

    Args:
        heat: where members see evidence, >= 0.
        effects: of each position's region, in any unit; their edges are softened.
        cells: how many cells lie along each axis.
    """
    for axis, count in zip((1, 2), cells, strict=True):
        effects = smooth(effects, axis, SOFTNESS * effects.shape[axis] / count)
    effects = effects - effects.amin((1, 2), keepdim=True)
    parts = (part / part.sum((1, 2), keepdim=True).clamp(min=1e-300) for part in (heat, effects))
    warm, told = parts
    return warm + SAY * told
