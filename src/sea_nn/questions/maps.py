"""Maps from gains: where inside its feature the evidence lies.

A feature's gain is what its positions have together. Of cells of images the members' heat says
where inside: as much of it as the answers believed, by what their share of the heat was found to
add. What a cell gains beyond its heat is spread evenly and softened at the edges, so that a map has
no steps where the evidence has none; its place in the order counts as much as its gain.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sea_nn.features import Features, smooth
from sea_nn.function.function import SetFunction

BY_PLACE = 0.01
"""The part of a map of cells that falls with the place alone."""


def paint(order: Tensor, gains: Tensor, f: SetFunction, heat: Tensor, features: Features) -> Tensor:
    """Gains above 0 along an order, over the positions of the map: [N, n] -> [N, *shape].

    Args:
        order: of the features, [N, n].
        gains: along it.
        f: what was learned.
        heat: by member, [N, m, *shape].
        features: of the inputs; only a grid's cells have heat and soft edges inside.
    """
    own = features.count().to(gains)
    gains = torch.zeros_like(gains).scatter(1, order, gains.clamp(min=0))
    even = features.expand(gains / own)
    if features.groups is None or features.layout is None:
        return even
    warm = believe(f, heat)
    by_cell = features.sum(warm)
    scale = (gains.sum(1) / warm.flatten(1).sum(1).clamp(min=1e-300)).clamp(max=1.0)
    warm = warm * scale.view(-1, *[1] * (warm.ndim - 1))
    rest = features.expand((gains - by_cell * scale[:, None]) / own)
    # Places tell apart what gains do not: features that gain as much as others, or nothing.
    places = features.expand((features.n - order.argsort(1)) / own)
    for axis, (size, cells) in enumerate(zip(features.shape, features.layout, strict=True), 1):
        rest, places = (smooth(one, axis, size / cells / 2) for one in (rest, places))
    total = gains.sum(1) / places.flatten(1).sum(1)
    total = torch.where(total > 0, total, 1.0).view(-1, *[1] * (warm.ndim - 1))
    return share_out(warm + rest + places * total, gains, own)


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
    map sums to all gains. A small part of them falls with the place alone: whoever hides positions
    from the largest on needs an order, also of those that gain nothing.
    """
    flat, positions = density.flatten(1), density[0].numel()
    values = (gains / sizes).repeat_interleave(sizes.long(), 1, output_size=positions)
    values = values.sort(dim=1, descending=True).values
    fall = torch.arange(positions, 0, -1, dtype=values.dtype)
    fall = fall / fall.sum() * values.sum(1, keepdim=True)
    order = flat.argsort(dim=1, descending=True, stable=True)
    values = torch.lerp(values, fall, BY_PLACE)
    return torch.zeros_like(values).scatter(1, order, values).view(density.shape)


def smooth_cells(layout: tuple[int, ...]) -> Tensor:
    """How far cells of a grid stand for each other, rows sum to 1: [n, n]."""
    axes = (torch.arange(float(side)) for side in layout)
    cells = torch.cartesian_prod(*axes).view(-1, len(layout)).double()
    near = torch.exp(-torch.cdist(cells, cells).square() / 2)
    return near / near.sum(1, keepdim=True)
