"""Draw what was learned about features over the positions of an image.

Features have an order, and their gains never grow along it; positions have the members' heat. A
position comes the earlier the earlier its feature does and the warmer it is, and the k-th position
gets the k-th largest of the features' gains by position. So the k largest positions sum, up to the
tilt, to what the first features of the same area gain, and the map to all gains; its order serves
deletion and insertion alike (docs/results/learned.md).
"""

from __future__ import annotations

import torch
from torch import Tensor

from sea_nn.paper.heatmaps import smooth

ANSWERS_A_NAT = 16  # answers that weigh as much as heat that is e times as high
SOFTNESS = 1 / 32  # blur of a region's edge, in parts of the image's side
LEAST_TRUST = 0.02  # so that the positions of a cell have an order
FLOOR = 0.03  # of the mean heat: positions below are alike
TILT = 0.02  # of a value: so much the positions of equal gains differ, the first from the last


def correlate(sets: Tensor, scores: Tensor, heat: Tensor) -> Tensor:
    """How far the answers bear the members' heat out, -1 to 1: [N].

    The correlation of the heat in a set with the score of it, both without what the size of the set
    explains: members that look elsewhere than the model shall have no say in the map.

    Args:
        sets: what was left, [N, R, n].
        scores: the model's scores of these, [N, R].
        heat: the mean heat of features, [N, n].
    """
    sets = sets.double()
    size = sets.mean(2)
    warm = (sets @ heat.double()[:, :, None])[:, :, 0]
    size, warm, told = (v - v.mean(1, keepdim=True) for v in (size, warm, scores.double()))
    square = size.square().sum(1, keepdim=True).clamp(min=1e-300)
    warm, told = (v - (v * size).sum(1, keepdim=True) / square * size for v in (warm, told))
    both = (warm.square().sum(1) * told.square().sum(1)).sqrt()
    return torch.where(both > 1e-12, (warm * told).sum(1) / both.clamp(min=1e-300), 0.0)


def blend(earliness: Tensor, heat: Tensor, sharpness: float, trust: Tensor) -> Tensor:
    """How early a position comes: by its feature's place, and by the logarithm of its heat.

    Args:
        earliness: of each position's feature in the order, 1 for the first down to 0, [N, *shape].
        heat: where members see evidence, >= 0, [N, *shape].
        sharpness: how much the order counts beside the heat's logarithm.
        trust: the weight of the heat, [N].
    """
    each = (-1, *[1] * (heat.ndim - 1))
    mean = heat.flatten(1).mean(1).view(each)
    warmth = torch.where(mean > 0, heat / mean.clamp(min=1e-300), 1.0) + FLOOR
    return sharpness * earliness + trust.view(each).clamp(min=LEAST_TRUST) * warmth.log()


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
    values = (gains / sizes).repeat_interleave(sizes, 1, output_size=positions)
    values = values.sort(dim=1, descending=True).values
    falling = torch.linspace(1, 0, positions, dtype=values.dtype, device=values.device)
    values = values * (1 + TILT * (falling - 0.5)) + TILT * total / positions * falling
    values = values * torch.where(total > 0, total / values.sum(1, keepdim=True), 0.0)
    order = flat.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(values).scatter(1, order, values).reshape(score.shape)


def add_densities(heat: Tensor, effects: Tensor, trust: Tensor, say: float) -> Tensor:
    """Heat and effects of regions, both [N, H, W], each as a density: how early a position comes.

    Args:
        heat: where members see evidence, >= 0.
        effects: of each position's region, in any unit; their edges are softened.
        trust: the weight of the heat, [N].
        say: the mass of the effects for one of the heat.
    """
    for axis in (1, 2):
        effects = smooth(effects, axis, SOFTNESS * effects.shape[axis])
    effects = effects - effects.amin((1, 2), keepdim=True)
    warm, told = (
        part / part.sum((1, 2), keepdim=True).clamp(min=1e-300) for part in (heat, effects)
    )
    return trust.view(-1, 1, 1).clamp(min=LEAST_TRUST) * warm + say * told
