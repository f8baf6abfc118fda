"""The one tie rule of greedy, Algorithm 1 and binarised heatmaps.

Values are compared in their leading 30 bits: those that agree to about one part in 10^9 tie, and
among tied features the lowest index comes first. For a function of equal units the value is the
feature's weight: the larger weight has the larger gain. For any other network the gains are
compared first; those that agree to 2^-30 of the best go by the mean of the feature's first-layer
weights, which is the weight itself where units are equal. So a network and its collapsed form give
the same order.

>>> import torch
>>> keys = sort_keys(torch.tensor([1.0, 3.0, 3.0])).sort(descending=True).values
>>> key_features(keys)
tensor([1, 2, 0])
"""

from functools import lru_cache

import torch
from torch import Tensor

from sea_nn.errors import InputError

INDEX_BITS = 22
"""Low bits of a sort key that hold the feature's index: n is at most 2^22, ties are 2^-30 wide."""
TIE = 2.0 ** (INDEX_BITS - 52)
"""Two gains are equal when they differ by at most this share of the larger."""


def sort_keys(values: Tensor) -> Tensor:
    """One int64 key a feature, in whose descending order features are taken: [..., n] -> the same.

    ``key_features`` and ``key_groups`` read the index and the rounded value back.
    """
    n = values.shape[-1]
    check_count(n)
    return _round_bits(values).add_(_places(n, values.device))


def rounded(values: Tensor) -> Tensor:
    """Values (>= 0) as whole numbers that are equal where values tie, and ordered as they are."""
    return _round_bits(values) >> INDEX_BITS


def check_count(n: int) -> None:
    """Refuse more features than sort keys can number."""
    if n > 1 << INDEX_BITS:
        raise InputError(
            f"at most 2^{INDEX_BITS} = {1 << INDEX_BITS:,} features are supported; got {n:,}. Pool "
            "images onto a grid (SEAConfig.grid), or group features (feature_mask)"
        )


def _round_bits(values: Tensor) -> Tensor:
    # Non-negative doubles sort like their bits; adding half a unit first rounds to nearest, so that
    # values a rounding error apart (0.999..., 1.0) do not fall into different classes.
    bits = values.to(torch.float64, copy=True).add_(0.0).view(torch.int64)
    mask = (1 << INDEX_BITS) - 1
    return bits.add_((mask + 1) // 2).bitwise_and_(~mask)


def top_features(values: Tensor, k: int) -> Tensor:
    """The k features with the largest values, ties to the lowest index: [N, n] -> [N, k]."""
    keys = sort_keys(values)
    if k > values.shape[1] // 4:  # from here on a full sort is the faster selection
        return key_features(keys.sort(dim=1, descending=True).values[:, :k])
    return key_features(keys.topk(k, dim=1).values)


@lru_cache(maxsize=8)
def _places(n: int, device: torch.device) -> Tensor:
    """The low bits of the keys of n features: the first feature has the largest."""
    mask = (1 << INDEX_BITS) - 1
    return torch.arange(mask, mask - n, -1, device=device)


def key_features(keys: Tensor) -> Tensor:
    """The features' indices that are stored in sort keys."""
    mask = (1 << INDEX_BITS) - 1
    return mask - (keys & mask)


def key_groups(keys: Tensor) -> Tensor:
    """The rounded values that are stored in sort keys: equal where features tie."""
    return keys >> INDEX_BITS
