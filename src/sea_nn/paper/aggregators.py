"""The other ways to make one map from many, behind the same call and result as ``ensemble``.

>>> import torch
>>> heatmaps = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
>>> aggregate(heatmaps, "mean").attribution.shape
torch.Size([2, 8, 8])
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.paper.agreement import rank
from sea_nn.paper.ensemble import Ensemble
from sea_nn.paper.fit import History
from sea_nn.paper.ties import top_features
from sea_nn.paper.validation import check_heatmaps, check_weights

EPSILON = 1e-6
STEPS = 2000


class Loss(NamedTuple):
    """A quadratic quality loss w'Qw - 2 c'w of convex weights w, for each of N inputs.

    ``robustness_loss`` and ``faithfulness_loss`` make one; ``aggregate(..., "optimal", loss=...)``
    takes it. Losses add: weighted sums of the two are the variants of Decker et al. (ICML 2024).
    """

    quadratic: Tensor  # [N, m, m]
    linear: Tensor  # [N, m]
    size: Tensor | None = None  # [N, m], what the loss divides each heatmap by, if it does


def aggregate(
    heatmaps: Tensor,
    how: str = "mean",
    *,
    weights: Tensor | None = None,
    loss: Loss | None = None,
) -> Ensemble:
    """Combine heatmaps [N, m, *shape] in [0, 1] into one map an input.

    Args:
        heatmaps: as for ``ensemble``.
        how: "mean" (Agg-Mean), "variance" (Agg-Var: the mean over the spread), "geometric",
            "borda" (mean rank), or "optimal" (the convex combination that minimises ``loss``).
        weights: how much each method counts, [m] or [N, m].
        loss: the quality loss of "optimal".

    Returns:
        An ``Ensemble`` without a scorer; ``gains`` are the sorted values.
    """
    if how not in AGGREGATORS and how != "optimal":
        known = ", ".join(map(repr, (*AGGREGATORS, "optimal")))
        raise InputError(f"unknown aggregator {how!r}: choose one of {known}")
    if weights is not None and how == "optimal":
        raise InputError("'optimal' finds the weights itself; leave weights out")
    if (loss is not None) != (how == "optimal"):
        raise InputError(
            "'optimal' needs a loss (robustness_loss or faithfulness_loss), others none"
        )
    heatmaps = check_heatmaps(heatmaps)
    weights = check_weights(weights, heatmaps)
    shape = tuple(heatmaps.shape[2:])
    rows = heatmaps.flatten(2).to(torch.float64)
    if loss is not None:
        how, weights = "mean", optimal_weights(loss).to(weights)
        if loss.size is not None:  # the weights are those of heatmaps so divided
            weights = weights * _share_sizes(loss.size.to(weights))
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    values = AGGREGATORS[how](rows, share.unsqueeze(2))
    order = top_features(values, values.shape[1])
    dtype = torch.promote_types(heatmaps.dtype, torch.float32)  # Agg-Var overflows half precision
    return Ensemble(
        attribution=values.reshape(-1, *shape).to(dtype),
        order=order,
        gains=values.gather(1, order).to(dtype),
        scorer=None,
        history=History.of(values.new_zeros(0, 5, len(values)), order.new_zeros(len(order))),
        feature_shape=shape,
        config=SEAConfig(),
    )


def _share_sizes(size: Tensor) -> Tensor:
    """The smallest size over each, [N, m], at most 1; a member without one counts as smallest."""
    least = torch.where(size > 0, size, torch.inf).amin(1, keepdim=True)
    return torch.where(size > 0, least / size, 1)


def _mean(rows: Tensor, share: Tensor) -> Tensor:
    return (share * rows).sum(1)


def _variance(rows: Tensor, share: Tensor) -> Tensor:
    """Rieger and Hansen's second aggregate: the mean over the members' local spread.

    The map's average spread is added below the fraction bar, or agreement on nothing would win.
    """
    mean = _mean(rows, share)
    spread = (share * (rows - mean.unsqueeze(1)).square()).sum(1).sqrt()
    return mean / (spread + spread.mean(1, keepdim=True)).clamp_min(EPSILON)


def _geometric(rows: Tensor, share: Tensor) -> Tensor:
    return ((share * (rows + EPSILON).log()).sum(1).exp() - EPSILON).clamp_min(0)


def _borda(rows: Tensor, share: Tensor) -> Tensor:
    return _mean((rank(rows) - 1) / max(1, rows.shape[2] - 1), share)


AGGREGATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "variance": _variance,
    "geometric": _geometric,
    "borda": _borda,
}


def robustness_loss(heatmaps: Tensor, noisy: Tensor) -> Loss:
    """E |sum_i w_i (H_i(x) - H_i(x + noise))|^2: [N, m, *shape] and [N, draws, m, *shape]."""
    change = (noisy - heatmaps.unsqueeze(1)).flatten(3).to(torch.float64)
    quadratic = torch.einsum("ndif,ndjf->nij", change, change) / noisy.shape[1]
    return Loss(quadratic, quadratic.new_zeros(quadratic.shape[:2]))


def faithfulness_loss(heatmaps: Tensor, removed: Tensor, drops: Tensor) -> Loss:
    """E (sum_i w_i H_i(x)[R] - drop(R))^2 over random regions R that were removed.

    Both sides are divided by their root mean square over the regions: a heatmap has no unit.

    Args:
        heatmaps: [N, m, *shape].
        removed: bool [N, regions, *shape].
        drops: by how much the class's score fell when each was removed, [N, regions].
    """
    inside = torch.einsum(
        "nif,nrf->nri", heatmaps.flatten(2).to(torch.float64), removed.flatten(2).to(torch.float64)
    )
    size = inside.square().mean(1).sqrt()
    inside = inside / size.unsqueeze(1).clamp_min(EPSILON)
    drops = drops.to(torch.float64)
    drops = drops / drops.square().mean(1, keepdim=True).sqrt().clamp_min(EPSILON)
    regions = inside.shape[1]
    return Loss(
        torch.einsum("nri,nrj->nij", inside, inside) / regions,
        torch.einsum("nri,nr->ni", inside, drops) / regions,
        size,
    )


def optimal_weights(loss: Loss) -> Tensor:
    """The convex weights that minimise a quadratic loss: [N, m], >= 0, summing to 1.

    Accelerated projected gradient on the simplex (the programme has m variables: it is tiny).
    """
    quadratic, linear = loss.quadratic.to(torch.float64), loss.linear.to(torch.float64)
    count, m = linear.shape
    rate = 1 / torch.linalg.matrix_norm(quadratic, 2).clamp_min(EPSILON**2)
    weights = ahead = linear.new_full((count, m), 1 / m)
    momentum = 1.0
    for _ in range(STEPS):
        gradient = (quadratic @ ahead.unsqueeze(2)).squeeze(2) - linear
        new = project_simplex(ahead - rate.unsqueeze(1) * gradient)
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        done = not count or float((new - weights).abs().amax()) < 1e-14
        weights, momentum = new, following
        if done:
            break
    return weights


def project_simplex(points: Tensor) -> Tensor:
    """The nearest points with entries >= 0 that sum to 1: [N, m] -> [N, m]."""
    ordered = points.sort(dim=1, descending=True).values
    places = torch.arange(1, points.shape[1] + 1, device=points.device)
    excess = ordered.cumsum(1) - 1
    size = (ordered * places > excess).sum(1, keepdim=True)
    level = excess.gather(1, size - 1) / size
    return (points - level).clamp_min(0)
