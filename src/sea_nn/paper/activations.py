"""Concave activations: non-decreasing, concave on [0, inf), zero at zero [M1].

Each knows its value, its slope, and its *rise* phi(z + d) - phi(z), computed without subtracting
two nearly equal numbers. Marginal gains built from rises keep full relative precision however
small they are beside f itself, which is what makes ties a matter of mathematics, not rounding.

>>> import torch
>>> phi = parse_activation("sqrt")
>>> phi.value(torch.tensor([0.0, 4.0]))
tensor([0., 2.])
>>> phi.rise(torch.tensor(1e16, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
tensor(5.0000e-09, dtype=torch.float64)
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from sea_nn.config import check_activation

SQRT_FLOOR = 1e-12
"""Below this, sqrt is replaced by its chord from 0, so that its slope is finite (1e6) at 0."""


class Concave(Protocol):
    """What a layer needs to know of its activation."""

    name: str

    def value(self, z: Tensor) -> Tensor:
        """phi(z), elementwise."""

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z), elementwise; finite everywhere on [0, inf)."""

    def rise(self, z: Tensor, d: Tensor) -> Tensor:
        """phi(z + d) - phi(z) for z, d >= 0, without cancellation; z and d broadcast."""


class _ChordedSqrt(torch.autograd.Function):
    """min(sqrt(z), z / sqrt(floor)), whose own derivative would be infinite at 0 under autograd."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return Sqrt.chorded(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return gradients[0] * Sqrt().slope(z)


class Sqrt:
    """sqrt(z), with the chord z / sqrt(floor) below the floor: still concave, slope finite."""

    name = "sqrt"

    @staticmethod
    def chorded(z: Tensor) -> Tensor:
        """min(sqrt(z), chord)."""
        if above_floor(z):
            return z.sqrt()
        return torch.minimum(z.sqrt(), z * SQRT_FLOOR**-0.5)

    def value(self, z: Tensor) -> Tensor:
        """phi(z), elementwise."""
        if not (z.requires_grad and torch.is_grad_enabled()):
            return self.chorded(z)
        result: Tensor = _ChordedSqrt.apply(z)  # type: ignore[no-untyped-call]
        return result

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z), elementwise."""
        return torch.where(z > SQRT_FLOOR, 0.5 * z.rsqrt(), SQRT_FLOOR**-0.5)

    def rise(self, z: Tensor, d: Tensor) -> Tensor:
        """d / (sqrt(z + d) + sqrt(z)): no two close numbers are subtracted."""
        if above_floor(z):
            return d / ((z + d).sqrt() + z.sqrt())
        low, high = self.value(z), self.value(z + d)
        ratio = d / (high + low).clamp_min(torch.finfo(d.dtype).tiny)
        return torch.where(z > SQRT_FLOOR, ratio, high - low)


def above_floor(z: Tensor) -> bool:
    """Whether one look shows that z is nowhere on the chord (on a GPU a look is a long wait)."""
    return z.device.type == "cpu" and z.numel() > 0 and float(z.detach().amin()) > SQRT_FLOOR


class Log1p:
    """log(1 + z)."""

    name = "log1p"

    def value(self, z: Tensor) -> Tensor:
        """phi(z), elementwise."""
        return torch.log1p(z)

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z), elementwise."""
        return 1 / (1 + z)

    def rise(self, z: Tensor, d: Tensor) -> Tensor:
        """log(1 + d / (1 + z))."""
        return torch.log1p(d / (1 + z))


class Power:
    """((1 + z)^p - 1) / p for p < 1, p != 0; a negative p saturates at -1/p."""

    def __init__(self, exponent: float) -> None:
        self.exponent = exponent
        self.name = f"power:{exponent!r}"  # in full: functions are built again from it

    def value(self, z: Tensor) -> Tensor:
        """phi(z), elementwise."""
        return torch.expm1(self.exponent * torch.log1p(z)) / self.exponent

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z), elementwise."""
        return (1 + z) ** (self.exponent - 1)

    def rise(self, z: Tensor, d: Tensor) -> Tensor:
        """(1 + z)^p times the value of the same function at d / (1 + z)."""
        return (1 + z) ** self.exponent * self.value(d / (1 + z))


def parse_activation(name: str) -> Concave:
    """Return the activation called ``name``: "sqrt", "log1p" or "power:p" with p < 1.

    "power:-1" is z / (1 + z), which saturates at 1; "power:0.5" is 2 (sqrt(1 + z) - 1).
    """
    exponent = check_activation(name)
    if exponent is not None:
        return Power(exponent)
    return Sqrt() if name == "sqrt" else Log1p()
