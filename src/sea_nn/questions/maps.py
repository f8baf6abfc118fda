"""What is read off a learned function: maps from gains, and the curve along an order.

Maps say where inside its feature the evidence lies: a feature's gain is what its positions have
together. Of cells of images two things are known: their order, which was asked about, and the
members' heat, position by position, of which the answers believed a share. So much of what tells
positions apart is heat, and what a cell gains beyond it; the others are told apart by the order.

A curve has the model's own answers along an order: only the first p features left, and these
removed. They are asked last, about the final order, and no function learns from them: they show how
far what was learned from other sets can be believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.features import Features, smooth
from sea_nn.function.function import SetFunction, to_score
from sea_nn.function.several import SeveralFunctions

BY_PLACE = 0.01
"""The part of a map of cells that falls with the place alone."""
SHARES = (1 / 4, 1 / 8, 1 / 2, 1 / 16, 1 / 32, 1 / 64)
"""Shares of the features to ask about, the most telling first."""
SPARE = 29  # questions an input for each of these shares, of which it costs two


def paint(order: Tensor, gains: Tensor, f: SetFunction, heat: Tensor, features: Features) -> Tensor:
    """Gains above 0 along an order, over the positions of the map: [N, n] -> [N, *shape].

    Args:
        order: of the features, [N, n].
        gains: along it.
        f: what was learned.
        heat: by member, [N, m, *shape].
        features: of the inputs; only a grid's cells have heat inside.
    """
    own = features.count().to(gains)
    gains = torch.zeros_like(gains).scatter(1, order, gains.clamp(min=0))
    even = features.expand(gains / own)
    if features.groups is None or features.layout is None:
        return even
    warm = believe(f, heat)
    by_cell = features.sum(warm)
    scale = (gains.sum(1) / warm.flatten(1).sum(1).clamp(min=1e-300)).clamp(max=1.0)
    beyond = features.expand((gains - by_cell * scale[:, None]) / own)
    for axis, (size, cells) in enumerate(zip(features.shape, features.layout, strict=True), 1):
        beyond = smooth(beyond, axis, size / cells / 2)
    warm = warm * scale.view(-1, *[1] * (warm.ndim - 1)) + beyond
    places = features.expand((features.n - order.argsort(1)) / own)
    trust = f.process.trust().sum(1).clamp(0, 1).view(-1, *[1] * (warm.ndim - 1))
    return share_out(torch.lerp(_to_shares(places), _to_shares(warm), trust), gains, own)


def _to_shares(values: Tensor) -> Tensor:
    """Values [N, *shape] as shares of their sum; all 0 where that is 0."""
    total = values.flatten(1).sum(1).view(-1, *[1] * (values.ndim - 1))
    return torch.where(total > 0, values / total.clamp(min=1e-300), 0.0)


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


@dataclass(frozen=True)
class Curve:
    """What the model said of N inputs along their orders, as scores (probabilities or values).

    Attributes:
        counts: p, int64 [P], from 0 to n.
        left: with only the first p features of the order left, [N, P].
        removed: with these removed, [N, P].
    """

    counts: Tensor
    left: Tensor
    removed: Tensor

    def find(self, p: float) -> int | None:
        """The place in ``counts`` nearest to p features, of those between none and all."""
        inner = range(1, len(self.counts) - 1)
        return min(inner, key=lambda k: abs(math.log(float(self.counts[k]) / p)), default=None)

    def rows(self, which: Tensor | slice) -> Curve:
        """The curves of some of the inputs."""
        return Curve(self.counts, self.left[which], self.removed[which])


def choose_counts(questions: int, n: int) -> tuple[int, ...]:
    """The numbers of features to ask about, two questions each, and at most a fifteenth of all.

    >>> choose_counts(28, 64), choose_counts(124, 64), choose_counts(508, 64)
    ((), (4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
    """
    counts = {round(share * n) for share in SHARES[: questions // SPARE]}
    return tuple(sorted(p for p in counts if 0 < p < n))


def list_sets(order: Tensor, counts: Sequence[int]) -> Tensor:
    """The first p features of orders [N, n] for each count, then all but these: [N, R, n]."""
    first = order.argsort(1)[:, None] < torch.tensor(counts, dtype=torch.int64)[:, None]
    return torch.cat([first, ~first], 1)


def make_curve(f: SetFunction, answers: Tensor, counts: Sequence[int]) -> Curve:
    """The curve of answers about ``list_sets``, log-odds or values [N, R].

    Of no feature and of all, the answers are known: they are the ends of both curves.
    """
    left, removed = answers.chunk(2, 1) if counts else (answers, answers)
    return Curve(
        torch.tensor([0, *counts, f.process.sets.shape[2]]),
        to_score(torch.cat([f.none, left, f.all], 1), f.link).float(),
        to_score(torch.cat([f.all, removed, f.none], 1), f.link).float(),
    )


def predict_curve(f: SetFunction | SeveralFunctions, order: Tensor) -> tuple[Tensor, Tensor]:
    """What f says along orders [N, n]: the first 0, 1, …, n left, and these removed, [N, n + 1]."""
    left, removed = list_sets(order, range(order.shape[1] + 1)).double().chunk(2, 1)
    return f.score(left), f.score(removed)
