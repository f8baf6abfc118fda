"""The area under curves of answers [M13]."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def trapezoid(curves: Tensor, dx: float = 1.0) -> Tensor:
    """Return the area under curves [..., points] by the trapezoid rule.

    >>> trapezoid(torch.tensor([1.0, 0.5, 0.0]))
    tensor(1.)
    """
    return (curves.sum(-1) - (curves[..., 0] + curves[..., -1]) / 2) * dx


def simpson(curves: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return the area under curves [..., points] by Simpson's rule, points 1 apart.

    With an even number of points the rule leaves one interval over; it is taken by the trapezoid
    rule once at the end and once at the start, and the two areas are averaged (what SciPy's
    ``simps`` did when the paper was written). Of each curve only the ``counts`` [...] leading
    points are used, if given.

    >>> simpson(torch.tensor([0.0, 1.0, 4.0]))
    tensor(2.6667)
    """
    points = curves.shape[-1]
    rows = [pad(_simpson_weights(count), (0, points - count)) for count in range(points + 1)]
    table = torch.stack(rows).to(curves)
    weights = table[-1] if counts is None else table[counts]
    return (curves * weights).sum(-1)


def _simpson_weights(count: int) -> Tensor:
    weights = torch.zeros(count, dtype=torch.float64)
    if count % 2 == 0 and count:
        weights[:-1] = _simpson_weights(count - 1)
        weights[-2:] += 0.5
        return (weights + weights.flip(0)) / 2
    for start in range(0, count - 2, 2):
        weights[start : start + 3] += weights.new_tensor([1.0, 4.0, 1.0]) / 3
    return weights
