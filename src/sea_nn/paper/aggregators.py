"""The other ways to make one map from many, behind the same call and result as ``ensemble``.

>>> import torch
>>> heatmaps = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
>>> aggregate(heatmaps, "mean").attribution.shape
torch.Size([2, 8, 8])
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.paper.agreement import rank
from sea_nn.paper.data import check_heatmaps, check_weights
from sea_nn.paper.ensemble import Ensemble
from sea_nn.paper.fit import History
from sea_nn.paper.greedy import sort_features

EPSILON = 1e-6


def aggregate(
    heatmaps: Tensor,
    how: str = "mean",
    *,
    weights: Tensor | None = None,
) -> Ensemble:
    """Combine heatmaps [N, m, *shape] in [0, 1] into one map an input.

    Args:
        heatmaps: as for ``ensemble``.
        how: "mean" (Agg-Mean), "variance" (Agg-Var: the mean over the spread), "geometric",
            or "borda" (mean rank).
        weights: how much each method counts, [m] or [N, m].

    Returns:
        An ``Ensemble`` without a scorer; ``gains`` are the sorted values.
    """
    if how not in AGGREGATORS:
        known = ", ".join(map(repr, AGGREGATORS))
        raise InputError(f"unknown aggregator {how!r}: choose one of {known}")
    heatmaps = check_heatmaps(heatmaps)
    weights = check_weights(weights, heatmaps)
    shape = tuple(heatmaps.shape[2:])
    rows = heatmaps.flatten(2).to(torch.float64)
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    values = AGGREGATORS[how](rows, share.unsqueeze(2))
    order, _ = sort_features(values, values.shape[1])
    dtype = torch.promote_types(heatmaps.dtype, torch.float32)  # Agg-Var overflows half precision
    return Ensemble(
        attribution=values.reshape(-1, *shape).to(dtype),
        order=order,
        gains=values.gather(1, order).to(dtype),
        scorer=None,
        history=History.of(values.new_zeros(len(values), 0, 5), order.new_zeros(len(order))),
        feature_shape=shape,
        config=SEAConfig(),
    )


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
