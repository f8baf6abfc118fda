"""Means over inputs with their uncertainty, by resampling the inputs.

>>> scores = torch.tensor([[0.2, 0.5], [0.4, 0.6], [0.3, 0.7]])       # 3 inputs, 2 methods
>>> estimate = bootstrap_mean(scores)
>>> bool((estimate.low <= estimate.mean).all()), estimate.n_inputs
(True, 3)
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError

_BLOCK = 1 << 24


@dataclass(frozen=True)
class Estimate:
    """A mean (or median) over inputs for each method, and the bounds of its interval, [m] each.

    Attributes:
        mean: the mean, or the median where that was asked for.
        low: the interval's lower bound.
        high: its upper bound.
        n_inputs: the inputs used; those with nan for any method are left out for all.
    """

    mean: Tensor
    low: Tensor
    high: Tensor
    n_inputs: int


def bootstrap_mean(
    scores: Tensor,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    middle: Literal["mean", "median"] = "mean",
) -> Estimate:
    """Return the mean (or median) of scores [N, m] over inputs with its percentile interval.

    N inputs are drawn ``resamples`` times, with replacement, the same ones for all methods.
    """
    if scores.ndim != 2:
        raise InputError(f"scores must be [inputs, methods]; got {list(scores.shape)}")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1; got {level}")
    if resamples < 1:
        raise InputError(f"at least one resample is needed; got {resamples}")
    values = scores.detach().to("cpu", torch.float64)
    values = values[values.isfinite().all(1)]
    n = len(values)
    if n == 0:
        nothing = torch.full((scores.shape[1],), torch.nan, dtype=torch.float64)
        return Estimate(nothing, nothing, nothing, 0)
    generator = torch.Generator().manual_seed(seed)
    means = []
    room = n * values.shape[1] if middle == "median" else n
    for size in torch.arange(resamples).split(max(1, _BLOCK // room)):
        drawn = torch.randint(n, (len(size), n), generator=generator)
        if middle == "median":
            means.append(values[drawn].quantile(0.5, dim=1))
            continue
        times = torch.zeros(len(size), n, dtype=torch.float64)
        times.scatter_add_(1, drawn, torch.ones_like(times))
        means.append(times @ values / n)
    tail = (1 - level) / 2
    bounds = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    low, high = torch.cat(means).quantile(bounds, dim=0)
    centre = values.quantile(0.5, dim=0) if middle == "median" else values.mean(0)
    return Estimate(centre, low, high, n)


def bootstrap_difference(scores: Tensor, against: int, **options: Any) -> Estimate:
    """Return each method's mean difference to the method ``against``, input by input.

    Options are those of ``bootstrap_mean``; the median is that of the inputs' differences.

    The differences are paired, so what makes an input easy or hard for all methods cancels: an
    interval without 0 is evidence that a method differs, even where those of the means overlap.
    What differs by no more than rounding is equal.
    """
    if scores.ndim != 2 or not 0 <= against < scores.shape[1]:
        raise InputError(
            f"against must be one of the methods 0 to {scores.shape[-1] - 1}; got {against}"
        )
    other = scores[:, against : against + 1]
    equal = torch.isclose(scores, other, rtol=1e-9, atol=0)
    return bootstrap_mean((scores - other).masked_fill(equal, 0), **options)
