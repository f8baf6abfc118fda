"""Maps from gains: where inside its feature the evidence lies.

A feature's gain is what its positions have together. Of cells of images the members' heat says
where inside: as much of it as the answers believed, by what their share of the heat was found to
add. What a cell gains beyond its heat is spread evenly and softened at the edges, so that a map has
no steps where the evidence has none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sea_nn.features import Features, smooth
from sea_nn.function.function import SetFunction


def paint(gains: Tensor, f: SetFunction, heat: Tensor, features: Features) -> Tensor:
    """Gains of features, >= 0, over the positions of the map: [N, n] -> [N, *shape].

    Args:
        gains: by feature.
        f: what was learned.
        heat: by member, [N, m, *shape].
        features: of the inputs; only a grid's cells have heat and soft edges inside.
    """
    own = features.count().to(gains)
    even = features.expand(gains / own)
    if features.groups is None or features.layout is None:
        return even
    warm = believe(f, heat)
    by_cell = features.sum(warm)
    scale = (gains.sum(1) / warm.flatten(1).sum(1).clamp(min=1e-300)).clamp(max=1.0)
    warm = warm * scale.view(-1, *[1] * (warm.ndim - 1))
    rest = features.expand((gains - by_cell * scale[:, None]) / own)
    for axis, (size, cells) in enumerate(zip(features.shape, features.layout, strict=True), 1):
        rest = smooth(rest, axis, size / cells / 2)
    return share_out(warm + rest, gains, own)


def believe(f: SetFunction, heat: Tensor) -> Tensor:
    """What the answers say that members' heat adds, position by position, >= 0: [N, *shape].

    A member's heat above 0 counts by the slope of its own part of the function, from none of it
    left to all; one whose heat adds nothing has no say.
    """
    if heat.shape[1] == 0:
        return heat.new_zeros(len(heat), *heat.shape[2:])
    tables = f.process.mean().tables[:, 0, 1:]
    slope = (tables[..., -1] - tables[..., 0]).clamp(min=0) * f.process.spread
    flat = heat.flatten(2)
    share = flat.clamp(min=0) / flat.abs().sum(2, keepdim=True).clamp(min=1e-300)
    return (slope[:, :, None] * share).sum(1).view(len(heat), *heat.shape[2:])


def share_out(density: Tensor, gains: Tensor, sizes: Tensor) -> Tensor:
    """Give positions, in the order of their density, the gains by position, the largest first.

    So the k largest positions have what the features of the same area gain that gain most, and the
    map sums to all gains. Positions of equal rank differ by as little as tells them apart.
    """
    flat, positions = density.flatten(1), density[0].numel()
    values = (gains / sizes).repeat_interleave(sizes.long(), 1, output_size=positions)
    values = values.sort(dim=1, descending=True).values
    order = flat.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(values).scatter(1, order, values).view(density.shape)


def smooth_cells(layout: tuple[int, ...]) -> Tensor:
    """How far cells of a grid stand for each other, rows sum to 1: [n, n]."""
    axes = (torch.arange(float(side)) for side in layout)
    cells = torch.cartesian_prod(*axes).view(-1, len(layout)).double()
    near = torch.exp(-torch.cdist(cells, cells).square() / 2)
    return near / near.sum(1, keepdim=True)
