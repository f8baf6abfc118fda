"""Fill hidden pixels smoothly: every one the weighted mean of its eight neighbours.

The linear system (ROAD, Rong et al., ICML 2022: weight 1/6 for the four direct neighbours, 1/12 for
the four diagonal ones, less at the borders) is symmetric and positive definite, so conjugate
gradients solve it for all images at once, from a guess averaged over coarser and coarser grids.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CHECK_EVERY, MOST_ITERATIONS = 8, 1000


def inpaint(x: Tensor, hidden: Tensor, *, tolerance: float = 1e-3) -> Tensor:
    """Return x with the hidden pixels filled; all of an image hidden gives its mean colour.

    Args:
        x: images [P, C, H, W].
        hidden: bool [P, H, W].
        tolerance: a channel is done when the residual's norm has fallen to this share of the right
            side's. With 1e-3 the mean error on photographs was at most 0.0005 of their range (97 %
            hidden), after 20 to 90 iterations.
    """
    inside = hidden.unsqueeze(1)
    # Only the mean colour of an image may be used where nothing of it is left.
    mean = x.mean((2, 3), keepdim=True)
    unknown = inside.to(x.dtype)
    known = torch.where(inside, 0, x - mean)
    degree = unknown * _spread(torch.ones_like(unknown))
    right = unknown * _spread(known)
    solution = unknown * _guess(known, 1 - unknown)
    # Conjugate gradients on degree * v - spread(v) = right over the unknown pixels.
    residual = right - (degree * solution - unknown * _spread(solution))
    direction, size = residual, _dot(residual, residual)
    goal = _dot(right, right) * tolerance**2
    for iteration in range(MOST_ITERATIONS):
        if iteration % CHECK_EVERY == 0:
            # Channels that are done stay as they are, so that none depends on its batch.
            active = size > goal
            if not bool(active.any()):
                break
        image = torch.addcmul(degree * direction, unknown, _spread(direction), value=-1)
        step = _divide(size, _dot(direction, image)) * active
        solution = torch.addcmul(solution, step, direction)
        residual = torch.addcmul(residual, step, image, value=-1)
        before, size = size, _dot(residual, residual)
        direction = torch.addcmul(residual, _divide(size, before), direction)
    return torch.where(inside, solution + mean, x)


def _spread(v: Tensor) -> Tensor:
    """Return the weighted sum of the eight neighbours: [1 2 1] along both axes, less the centre."""
    down = 2 * v
    down[..., 1:, :] += v[..., :-1, :]
    down[..., :-1, :] += v[..., 1:, :]
    both = 2 * down
    both[..., 1:] += down[..., :-1]
    both[..., :-1] += down[..., 1:]
    return both.sub_(v, alpha=4).div_(12)


def _guess(values: Tensor, weight: Tensor) -> Tensor:
    """Fill where the weight is 0 from a grid half as fine, which is filled the same way."""
    if max(values.shape[2:]) == 1:
        return values
    pairs: dict[str, Any] = {"kernel_size": 2, "ceil_mode": True, "divisor_override": 1}
    total = functional.avg_pool2d(weight, **pairs)
    mean = _divide(functional.avg_pool2d(values * weight, **pairs), total)
    coarse = _guess(mean, (total > 0).to(weight.dtype))
    fine = functional.interpolate(coarse, values.shape[2:], mode="bilinear", align_corners=False)
    return torch.where(weight > 0, values, fine)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((2, 3), keepdim=True)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b > 0, a / b.clamp(min=torch.finfo(b.dtype).tiny), 0)
