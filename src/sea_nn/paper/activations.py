"""Concave activations, and the product of layers.

An activation is non-decreasing, concave on [0, inf), and zero at zero [M1]. Gains are built from
its *rise* phi(z + d) - phi(z), computed without subtracting two nearly equal numbers: so they keep
full relative precision, and ties are a matter of mathematics, not of rounding.

>>> phi = parse_activation("sqrt")
>>> phi.value(torch.tensor([0.0, 4.0]))
tensor([0., 2.])
>>> phi.rise(torch.tensor(1e16, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
tensor(5.0000e-09, dtype=torch.float64)
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.config import check_activation

SQRT_FLOOR = 1e-12
"""Below this, sqrt is replaced by its chord from 0, so that its slope is finite (1e6) at 0."""


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
