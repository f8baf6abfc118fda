"""Greedy on any deep submodular function: the features it takes, and what each one adds [M4].

**The one tie rule** of greedy, Algorithm 1 and binarised heatmaps: values that agree in their
leading 30 bits tie, and among tied features the lowest index comes first. Of one unit the values
are the features' weights. Of a network gains are compared first; those that agree to 2^-30 of the
best go by the mean of the feature's first-layer weights, which is the weight itself where units are
equal. So a network and its collapsed form give the same order (docs/math.md, section 4).

>>> sort_features(torch.tensor([[1.0, 3.0, 3.0]]), 3)[0]
tensor([[1, 2, 0]])
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.paper.layers import UpperLayers, times

INDEX_BITS = 22
"""Low bits of a sort key that hold the feature's index: n is at most 2^22, ties are 2^-30 wide."""
INDEX = (1 << INDEX_BITS) - 1
TIE = 2.0 ** (INDEX_BITS - 52)
"""Two gains are equal when they differ by at most this share of the larger."""
SLACK = 1 - 4 * TIE
"""A bound below this share of a gain can neither beat it nor tie with it."""
BLOCK = 8
"""How many features are evaluated first at each step."""


class Selection(NamedTuple):
    """Features as greedy took them and what each one added; [k], or [N, k] for a batch."""

    order: Tensor
    gains: Tensor


def check_count(n: int) -> None:
    """Refuse more features than sort keys can number."""
    if n > INDEX + 1:
        raise InputError(
            f"at most 2^{INDEX_BITS} = {INDEX + 1:,} features are supported; got {n:,}. Pool "
            "images onto a grid (SEAConfig.grid), or group features (feature_mask)"
        )


def _round_bits(values: Tensor) -> Tensor:
    # Non-negative doubles sort like their bits; adding half a unit first rounds to nearest, so that
    # values a rounding error apart (0.999..., 1.0) do not fall into different classes.
    bits = values.to(torch.float64, copy=True).add_(0.0).view(torch.int64)
    return bits.add_((INDEX + 1) // 2).bitwise_and_(~INDEX)


def sort_features(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k features by the tie rule, and their rounded values: [..., n] -> [..., k] each.

    Features tie where these are equal.
    """
    n = values.shape[-1]
    check_count(n)
    # One key a feature: its rounded value, and below that the complement of its index.
    keys = _round_bits(values).add_(torch.arange(INDEX, INDEX - n, -1, device=values.device))
    if k > n // 4:  # from here on a full sort is the faster selection
        keys = keys.sort(dim=-1, descending=True).values[..., :k]
    else:
        keys = keys.topk(k, dim=-1).values
    return INDEX - (keys & INDEX), keys >> INDEX_BITS


@torch.no_grad()
def take_greedily(
    columns: Tensor, upper: UpperLayers, budget: int, *, bounded: bool, remove_ties: bool
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
    sizes = _round_bits(columns.mean(2))  # among tied gains the larger column goes first
    sums = columns.new_zeros(count, 1, units)
    lead = torch.arange(count, device=columns.device)[:, None]
    free = torch.ones(count, n, dtype=torch.bool, device=columns.device)
    place, gain = torch.full_like(sizes, n), columns.new_zeros(count, n)
    placed = torch.zeros_like(lead)
    average = columns.mean(1, keepdim=True)
    while count and int(placed.amin()) < budget:
        layers = upper.sums(sums)
        if bounded:
            gains = _evaluate_contenders(columns, average, upper, layers, free)
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
    columns: Tensor, average: Tensor, upper: UpperLayers, layers: list[Tensor], free: Tensor
) -> Tensor:
    """The gains [N, n] of all features that could win or tie, from every layer's sums; else -inf.

    f is concave in the first layer's sums, so its tangent lies above it. Taken where the *average*
    feature leads, it bounds all gains in one product, and sharply, because features differ little
    from their average. The largest bounds are evaluated first, then all that reach the best gain.
    """
    rises = upper.rises(layers, average)
    slope = upper.slope([z + rise for z, rise in zip(layers, rises, strict=True)])
    # Both parts of a bound are positive; its rounding is a share of the larger numbers in them.
    widest = max(z.shape[2] for z in layers)
    rounding = 4 * widest * len(layers) * torch.finfo(columns.dtype).eps
    above = rises[-1] * (1 + rounding) - (slope * average).sum(2, keepdim=True)
    bounds = (times(slope, columns.mT) * (1 + rounding) + above).squeeze(1)
    bounds = bounds.masked_fill(~free, -torch.inf)
    lead = torch.arange(len(columns), device=columns.device)[:, None]
    width, contenders = 0, BLOCK
    while width < contenders:
        width = min(contenders, columns.shape[1])
        pool = bounds.topk(width, dim=1).indices
        found = upper.rises(layers, columns[lead, pool])[-1].squeeze(2)
        found = torch.where(free.gather(1, pool), found, -torch.inf)
        best = found.amax(1, keepdim=True)
        contenders = int((~(bounds < SLACK * best) & free).sum(1).amax())  # NaN rules nothing out
    return torch.full_like(bounds, -torch.inf).scatter_(1, pool, found)
