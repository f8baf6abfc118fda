"""Which features tie, and in which order features are taken [M4].

**The one tie rule** of greedy, Algorithm 1 and binarised heatmaps: values that agree in their
leading 30 bits tie, and among tied features the lowest index comes first. Of one unit the values
are the features' weights. Of a network gains are compared first; those that agree to 2^-30 of the
best go by the mean of the feature's first-layer weights, which is the weight itself where units are
equal. So a network and its collapsed form give the same order (docs/math.md, section 4).

>>> sort_features(torch.tensor([[1.0, 3.0, 3.0]]), 3)[0]
tensor([[1, 2, 0]])
"""

import torch
from torch import Tensor

from sea_nn.errors import InputError

INDEX_BITS = 22
"""Low bits of a sort key that hold the feature's index: n is at most 2^22, ties are 2^-30 wide."""
INDEX = (1 << INDEX_BITS) - 1
TIE = 2.0 ** (INDEX_BITS - 52)
"""Two gains are equal when they differ by at most this share of the larger."""


def check_count(n: int) -> None:
    """Refuse more features than sort keys can number."""
    if n > INDEX + 1:
        raise InputError(
            f"at most 2^{INDEX_BITS} = {INDEX + 1:,} features are supported; got {n:,}. Pool "
            "images onto a grid (SEAConfig.grid), or group features (feature_mask)"
        )


def round_bits(values: Tensor) -> Tensor:
    """The leading bits of numbers >= 0, as int64: equal where they tie, else in their order."""
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
    keys = round_bits(values).add_(torch.arange(INDEX, INDEX - n, -1, device=values.device))
    if k > n // 4:  # from here on a full sort is the faster selection
        keys = keys.sort(dim=-1, descending=True).values[..., :k]
    else:
        keys = keys.topk(k, dim=-1).values
    return INDEX - (keys & INDEX), keys >> INDEX_BITS
