"""Gains to their last digit: activations that rise without cancellation, and what ties.

An activation is non-decreasing, concave on [0, inf), and zero at zero [M1]. Gains are built from
its *rise* phi(z + d) - phi(z), computed without subtracting two nearly equal numbers: so they keep
full relative precision, and ties are a matter of mathematics, not of rounding.

>>> phi = parse_activation("sqrt")
>>> phi.value(torch.tensor([0.0, 4.0]))
tensor([0., 2.])
>>> phi.rise(torch.tensor(1e16, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
tensor(5.0000e-09, dtype=torch.float64)

**The one tie rule** of greedy, Algorithm 1 and binarised heatmaps [M4]: values that agree in their
leading 30 bits tie, and among tied features the lowest index comes first. Of one unit the values
are the features' weights. Of a network gains are compared first; those that agree to 2^-30 of the
best go by the mean of the feature's first-layer weights, which is the weight itself where units are
equal. So a network and its collapsed form give the same order (docs/math.md, section 4).

>>> sort_features(torch.tensor([[1.0, 3.0, 3.0]]), 3)[0]
tensor([[1, 2, 0]])
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.config import check_activation
from sea_nn.errors import InputError

SQRT_FLOOR = 1e-12
"""Below this, sqrt is replaced by its chord from 0, so that its slope is finite (1e6) at 0."""
INDEX_BITS = 22
"""Low bits of a sort key that hold the feature's index: n is at most 2^22, ties are 2^-30 wide."""
INDEX = (1 << INDEX_BITS) - 1
TIE = 2.0 ** (INDEX_BITS - 52)
"""Two gains are equal when they differ by at most this share of the larger."""


class Concave(NamedTuple):
    """A concave activation phi; its functions work on each number alone.

    Attributes:
        value: phi(z).
        slope: phi'(z), finite everywhere on [0, inf).
        rise: phi(z + d) - phi(z) for z, d >= 0, without cancellation; z and d broadcast.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    rise: Callable[[Tensor, Tensor], Tensor]


def _sqrt(z: Tensor) -> Tensor:
    chord = z * SQRT_FLOOR**-0.5
    return torch.where(z > SQRT_FLOOR, z.clamp_min(SQRT_FLOOR).sqrt(), chord)


def _rise_of_sqrt(z: Tensor, d: Tensor) -> Tensor:
    low, high = _sqrt(z), _sqrt(z + d)
    ratio = d / (high + low).clamp_min(torch.finfo(d.dtype).tiny)
    return torch.where(z > SQRT_FLOOR, ratio, high - low)


SQRT = Concave(
    _sqrt,
    lambda z: torch.where(z > SQRT_FLOOR, 0.5 * z.rsqrt(), SQRT_FLOOR**-0.5),
    _rise_of_sqrt,
)
LOG1P = Concave(torch.log1p, lambda z: 1 / (1 + z), lambda z, d: torch.log1p(d / (1 + z)))


def parse_activation(name: str) -> Concave:
    """Return the activation called ``name``: "sqrt", "log1p" or "power:p" with p < 1.

    "power:p" is ((1 + z)^p - 1) / p: "power:0.5" is 2 (sqrt(1 + z) - 1), and "power:-1" is
    z / (1 + z), which saturates at 1, as every negative p does at -1/p.
    """
    p = check_activation(name)
    if p is None:
        return SQRT if name == "sqrt" else LOG1P

    def value(z: Tensor) -> Tensor:
        return torch.expm1(p * torch.log1p(z)) / p

    return Concave(
        value, lambda z: (1 + z) ** (p - 1), lambda z, d: (1 + z) ** p * value(d / (1 + z))
    )


def times(h: Tensor, matrix: Tensor) -> Tensor:
    """h @ matrix for batches of matrices: [N, r, k] and [N, k, c] -> [N, r, c]."""
    if matrix.shape[1:] == (1, 1):  # the collapsed form's layers are single numbers
        return h * matrix
    if len(h) == len(matrix) == 1:  # only the product of two matrices runs on all cores
        return torch.mm(h[0], matrix[0]).unsqueeze(0)
    return torch.matmul(h, matrix)


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
