"""Greedy on any deep submodular function: the features it takes, and what each one adds [M4].

f is concave in the first layer's sums z, so its tangent at one point lies above it everywhere.
Taken at z plus the *average* feature, it bounds the gains of all features in one product, sharply,
because features differ little from their average beside what is already in z. Only the features
whose bound reaches the best gain are evaluated (docs/math.md, section 4).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.paper.ties import TIE, rounded
from sea_nn.paper.upper_layers import UpperLayers, times

SLACK = 1 - 4 * TIE
"""A bound below this share of a gain can neither beat it nor tie with it."""
BLOCK = 8
"""How many features are evaluated first at each step."""


class Selection(NamedTuple):
    """Features as greedy took them and what each one added; [k], or [N, k] for a batch."""

    order: Tensor
    gains: Tensor


@torch.no_grad()
def take_greedily(
    columns: Tensor,
    upper: UpperLayers,
    budget: int,
    *,
    bounded: bool = True,
    remove_ties: bool = False,
) -> Selection:
    """The first ``budget`` features of N functions and their gains, [N, budget] each.

    Args:
        columns: what each feature adds to the first layer's sums, [N, n, units].
        upper: the layers above.
        budget: at most n.
        bounded: evaluate only features whose upper bound reaches the best gain; else all.
        remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
    """
    count, n, units = columns.shape
    sizes = rounded(columns.mean(2))  # among tied gains the larger column goes first
    sums = columns.new_zeros(count, 1, units)
    lead = torch.arange(count, device=columns.device)[:, None]
    free = torch.ones(count, n, dtype=torch.bool, device=columns.device)
    place, gain = torch.full_like(sizes, n), columns.new_zeros(count, n)
    placed, width = torch.zeros_like(lead), BLOCK
    average = columns.mean(1, keepdim=True)
    while count and int(placed.amin()) < budget:
        layers = upper.sums(sums)
        if bounded:
            gains, width = _evaluate_contenders(columns, average, upper, layers, free, width)
        else:
            gains = upper.rises(layers, columns)[-1].squeeze(2).masked_fill(~free, -torch.inf)
        best = gains.amax(1, keepdim=True)
        ties = free & (gains >= best * (1 - TIE))
        size = torch.where(ties, sizes, -1)
        ties &= size == size.amax(1, keepdim=True)
        chosen = ties.byte().argmax(1, keepdim=True)
        taken = ties
        if not remove_ties:
            taken = torch.zeros_like(ties).scatter_(1, chosen, ties.any(1, keepdim=True))
        if not bool((taken.any(1) | ~free.any(1)).all()):
            raise InputError(
                "no feature has the largest gain: f's gains are not numbers; look for NaN or "
                "infinite weights"
            )
        place = torch.where(taken, placed + taken.cumsum(1) - 1, place)
        gain = torch.where(taken, best, gain)
        placed += taken.sum(1, keepdim=True)
        free &= ~taken
        sums = sums + columns[lead, chosen]
    order = place.sort(dim=1, stable=True).indices[:, :budget]
    return Selection(order, gain.gather(1, order))


def _evaluate_contenders(
    columns: Tensor,
    average: Tensor,
    upper: UpperLayers,
    layers: list[Tensor],
    free: Tensor,
    width: int,
) -> tuple[Tensor, int]:
    """The gains [N, n] of all features that could win or tie, -inf elsewhere; and their number.

    From every layer's sums [N, 1, units], evaluating the ``width`` largest bounds first.
    """
    rises = upper.rises(layers, average)
    anchor = [z + rise for z, rise in zip(layers, rises, strict=True)]
    slope = upper.slope(anchor)
    # Both parts of a bound are positive; its rounding is a share of the larger numbers in them.
    widest = max(z.shape[2] for z in layers)
    rounding = 4 * widest * len(layers) * torch.finfo(columns.dtype).eps
    above = rises[-1] * (1 + rounding) - (slope * average).sum(2, keepdim=True)
    bounds = (times(slope, columns.mT) * (1 + rounding) + above).squeeze(1)
    bounds = bounds.masked_fill(~free, -torch.inf)
    lead = torch.arange(len(columns), device=columns.device)[:, None]
    while True:
        width = min(width, columns.shape[1])
        pool = bounds.topk(width, dim=1).indices
        found = upper.rises(layers, columns[lead, pool])[-1].squeeze(2)
        found = torch.where(free.gather(1, pool), found, -torch.inf)
        best = found.amax(1, keepdim=True)
        contenders = int((~(bounds < SLACK * best) & free).sum(1).amax())  # NaN rules nothing out
        if contenders <= width:
            gains = torch.full_like(bounds, -torch.inf).scatter_(1, pool, found)
            return gains, max(BLOCK, contenders)
        width = contenders
