"""The tie rule: values that agree to about one part in 10^9 tie, and the lowest index comes first.

>>> import torch
>>> keys = sort_keys(torch.tensor([1.0, 3.0, 3.0])).sort(descending=True).values
>>> key_features(keys)
tensor([1, 2, 0])
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from sea_nn.errors import InputError

INDEX_BITS = 22
"""Low bits of a sort key that hold the feature's index: n is at most 2^22, ties are 2^-30 wide."""


def sort_keys(values: Tensor) -> Tensor:
    """One int64 key a feature, whose descending order is the tie rule of this package.

    Values (>= 0, [..., n]) are compared in their leading 30 bits: those that agree to about one
    part in 10^9 tie, and among tied features the lowest index comes first. ``key_features``
    and ``key_groups`` read the two parts back.
    """
    n = values.shape[-1]
    if n > 1 << INDEX_BITS:
        raise InputError(f"at most {1 << INDEX_BITS} features are supported; got {n}")
    mask = (1 << INDEX_BITS) - 1
    # Non-negative doubles sort like their bits; adding half a unit first rounds to nearest, so that
    # values a rounding error apart (0.999..., 1.0) do not fall into different classes.
    bits = values.to(torch.float64, copy=True).add_(0.0).view(torch.int64)
    bits.add_((mask + 1) // 2).bitwise_and_(~mask)
    return bits.add_(_places(n, values.device))


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
