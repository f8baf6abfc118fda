"""Few questions: which halves of an image does the model need more?

An image is divided into 16 regions, or 64 if there are questions enough, smaller where members see
evidence. A row of a Hadamard matrix splits them into two halves, and the model says which it needs
more: V = p(class | only this half is left) - p(class | only the other). Rows are orthogonal, so all
of them tell every region's effect exactly, up to a constant, where effects add up; where questions
are fewer, the finest splits are left out. Effects and the members' heat, added as densities, say
how early a position comes: with up to about 140 questions no order of cells that was tried does
better (docs/results/tried.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sea_nn.features import Features
from sea_nn.function.answers_function import to_score
from sea_nn.questions.designs import balanced_signs
from sea_nn.questions.painting import add_densities, correlate
from sea_nn.questions.search import Search

EVEN = 0.5  # the part of a cut that follows area; the rest follows heat
SAY = {16: 2.0, 64: 3.0}  # the mass of the effects of so many regions for one of the heat
SPLITS = 16  # in a round


def ask_halves(
    search: Search,
    ask: Callable[[Tensor], Tensor],
    features: Features,
    heat: Tensor,
    splits: int,
    count: int,
) -> Iterator[None]:
    """Ask about halves in rounds; after each, the search has answers, order and ``early``.

    Args:
        search: takes what is said. Its sets are the share of each feature that was left.
        ask: the answer with only some positions left, bool [N, R, *shape] -> [N, R].
        features: cells of images.
        heat: where members see evidence, [N, *shape].
        splits: how many; each costs two questions.
        count: the number of regions.
    """
    regions, signs = divide(heat, count), smooth_first(balanced_signs(count, heat.device))
    inside = _share(regions, count, features)
    total = torch.zeros(len(heat), count, dtype=torch.float64, device=heat.device)
    for rows in signs[:splits].split(SPLITS):
        both = torch.cat([rows, -rows])
        answers = ask((both > 0).T[regions].movedim(-1, 1))
        search.keep(((both > 0).double() @ inside).float(), answers)
        total = total + to_score(search.answers[-1], search.link) @ both
        effects = total.gather(1, regions.flatten(1)).view(regions.shape)
        order_by_effects(search, features, heat, effects, SAY[count])
        yield


def recall_halves(search: Search, features: Features, heat: Tensor) -> None:
    """Order by halves that were asked about for another class, as far as cells tell them."""
    sets, answers = search.asked
    effects = (to_score(answers, search.link)[:, None] @ (2 * sets.double() - 1))[:, 0]
    order_by_effects(search, features, heat, features.expand(effects), SAY[64])


def order_by_effects(
    search: Search, features: Features, heat: Tensor, effects: Tensor, say: float
) -> None:
    """Let heat and effects, both [N, *shape], say how early positions and features come."""
    sets, answers = search.asked
    agreed = correlate(sets, to_score(answers, search.link), search.heat)
    # Heat counts in full from half a standard error of the correlation on, and not at all below
    # minus that: few answers cannot say that it is wrong.
    trust = (0.5 + agreed * (answers.shape[1] / 2) ** 0.5).clamp(0, 1)
    search.early = add_densities(heat.double(), effects, trust, say)
    mean = features.sum(search.early) / features.count().to(heat.device)
    search.order = mean.argsort(dim=1, descending=True, stable=True)


def divide(heat: Tensor, count: int = 16) -> Tensor:
    """Number the region of each position: [N, H, W] -> int64 [N, H, W], at most ``count``.

    There are as many rows as columns of regions. A cut takes equal parts of area and heat, evenly
    mixed: regions are smaller where members look.
    """
    heat, side = heat.detach().to(torch.float64), math.isqrt(count)
    rows, columns = _cut(heat.sum(2), side), _cut(heat.sum(1), side)
    return rows.unsqueeze(2) * side + columns.unsqueeze(1)


def smooth_first(signs: Tensor) -> Tensor:
    """Splits of a square of regions, [R, count], those with the fewest changes of sign first.

    Evidence lies together more often than on every second square: what few questions leave out is
    the finest of the splits.
    """
    side = math.isqrt(signs.shape[1])
    squares = signs.view(-1, side, side)
    down, across = ((squares.diff(dim=axis) != 0).sum((1, 2)) for axis in (1, 2))
    return signs[(down + across).argsort(stable=True)]


def _cut(heat: Tensor, count: int) -> Tensor:
    """Bands 0 ... count - 1 along an axis with this heat: [N, L] -> int64 [N, L]."""
    length = heat.shape[1]
    if length <= count:
        return torch.arange(length, device=heat.device).expand(len(heat), -1)
    total = heat.sum(1, keepdim=True)
    level = torch.full_like(heat, 1 / length)
    share = EVEN * level + (1 - EVEN) * torch.where(total > 0, heat / total, level)
    middle = share.cumsum(1) - share / 2
    return (middle * count).long().clamp(0, count - 1)


def _share(regions: Tensor, count: int, features: Features) -> Tensor:
    """The share of each feature that lies in each region, [N, count, n]."""
    cell = features.expand(torch.arange(features.n, device=regions.device)).flatten()
    place = regions.flatten(1) * features.n + cell
    held = torch.zeros(len(regions), count * features.n, dtype=torch.float64, device=cell.device)
    held.scatter_add_(1, place, torch.ones_like(place, dtype=held.dtype))
    return held.view(len(regions), count, -1) / features.count().to(cell.device)
