"""Heatmaps in, one map out: the paper's method on one page [M2 to M10].

    heatmaps [N, m, *shape] -> (pool onto a grid) -> learn one f an input -> Algorithm 1 -> map

>>> import torch
>>> from sea_nn import ensemble
>>> heatmaps = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
>>> result = ensemble(heatmaps)
>>> result.attribution.shape, result.scorer.top(4).shape
(torch.Size([2, 8, 8]), torch.Size([2, 4]))
"""

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.config import SEAConfig, check_config
from sea_nn.errors import InputError
from sea_nn.paper.agreement import rank
from sea_nn.paper.dsf import DSF, attribute, join
from sea_nn.paper.exact import check_count, sort_features
from sea_nn.paper.fit import fit, make_training_data
from sea_nn.paper.heatmaps import (
    LEAST_GAIN,
    check_heatmaps,
    check_weights,
    read_constraints,
    upsample,
)

ROOM = 1 << 20
"""Weights of first layers that are learned at once: some 100 MiB."""
EPSILON = 1e-6
AGGREGATORS = ("mean", "variance", "geometric", "borda")


@dataclass(frozen=True)
class Ensemble:
    """What ``ensemble`` returns for N inputs with n features each.

    Attributes:
        attribution: the maps, [N, *shape]: each feature's marginal gain when it was taken.
        order: features as Algorithm 1 took them, [N, n]; tied features stand together.
        gains: their attribution in that order, [N, n]; never grows.
        scorer: the learned f, a batch of N functions; None of an aggregate.
        history: the objective without its weight decay in each epoch, [N, epochs].
        feature_shape: shape of the feature space: the heatmaps' own, or the grid's.
        config: the settings used.
    """

    attribution: Tensor
    order: Tensor
    gains: Tensor
    scorer: DSF | None
    history: Tensor
    feature_shape: tuple[int, ...]
    config: SEAConfig

    def __repr__(self) -> str:
        count, n = self.order.shape
        shape = list(self.attribution.shape)
        return f"Ensemble({count} inputs, {n} features, attribution {shape})"


@torch.inference_mode(False)  # functions are learned by their gradients
def ensemble(
    heatmaps: Tensor,
    config: SEAConfig | None = None,
    *,
    weights: Tensor | None = None,
    required: Tensor | None = None,
    forbidden: Tensor | None = None,
    epsilon: float = LEAST_GAIN,
    quiet: bool = False,
) -> Ensemble:
    """Learn one submodular function an input from its heatmaps, and attribute by marginal gain.

    The order of the features is about that of a weighed mean of the heatmaps; the steep start of
    the activation makes the map sharp, whether or not the heatmaps agree. With the default start f
    does not see redundancy: a copy of a feature is attributed as much as the first.
    ``sea_nn.paper.sharpen`` compares maps at equal sharpness.

    Args:
        heatmaps: [N, m, *shape] with values in [0, 1] (``sea_nn.paper.scale`` gets them
            there). Work is done in float64 on the tensor's device; maps come back in its own
            precision.
        config: settings; the default is ``SEAConfig()``.
        weights: how much each method counts, [m] or [N, m]; 2 is the same as giving it twice.
        required: bool mask, [*shape] or [N, *shape], of features that must count: each keeps a
            gain of at least ``epsilon`` in every context (Sensitivity(a), [M8]).
        forbidden: bool mask of features that must not count (Sensitivity(b)): exactly 0.
        epsilon: the least gain of a required feature, in units of f.
        quiet: give no warning of constant heatmaps, which do not count, nor of zero maps.

    Raises:
        InputError: NaN or infinite heatmaps, values outside [0, 1], no method, wrong shapes.
    """
    config = check_config(config)
    heatmaps = check_heatmaps(heatmaps, quiet)
    weights = check_weights(weights, heatmaps)
    count, shape = len(heatmaps), tuple(heatmaps.shape[2:])
    if config.grid is not None and len(shape) != 2:
        raise InputError(f"a grid needs heatmaps [N, m, H, W], not of shape {shape}: set grid=None")
    grid = None if config.grid is None else tuple(map(min, config.grid, shape))
    masks = read_constraints(required, forbidden, epsilon, count, shape, grid)
    bound = any(bool(mask.any()) for mask in masks)
    dtype = torch.promote_types(heatmaps.dtype, torch.float32)
    n, pixels = math.prod(grid or shape), math.prod(shape)
    check_count(n if config.margin_weight == 0 else pixels)  # sets are sorted before pooling
    remove_ties = config.reading == "paper"
    units = 1 if config.constant_start else max(config.widths, default=1)
    size = max(1, ROOM // (pixels * units))
    parts: list[tuple[Tensor, ...]] = []
    scorers: list[DSF] = []
    vanished = False
    for start in range(0, max(count, 1), size):
        rows = slice(start, start + size)
        needed, kept_out = (mask[rows].to(heatmaps.device) for mask in masks)
        given = make_training_data(heatmaps[rows], config, weights[rows])
        f, history = fit(given, config, (needed, kept_out, epsilon) if bound else None)
        order, gains, values = attribute(f, remove_ties)
        gains = gains.to(dtype)
        # Where every heatmap is constant, nothing was learned.
        silent = ~given.weights.any(1) & (not bound and pixels > 1)
        gains[silent], values[silent] = 0, 0
        vanished |= bool((gains[~silent, 0] <= 0).any())
        painted = values.reshape(-1, *(grid or shape))
        if grid is not None:
            painted = upsample(painted, shape)
        parts.append((painted.to(dtype), order, gains, history))
        scorers.append(f)
    if vanished and not quiet:
        warnings.warn(
            "the learned function vanished for some inputs, so their maps are zero: "
            "lower learning_rate, or train='features' only",
            stacklevel=2,
        )
    maps, order, gains, history = map(torch.cat, zip(*parts, strict=True))
    return Ensemble(maps, order, gains, join(scorers), history, grid or shape, config)


def ensemble_class(
    heatmaps: Tensor,
    config: SEAConfig | None = None,
    *,
    weights: Tensor | None = None,
    **options: object,
) -> Ensemble:
    """One class-level map from the heatmaps of many inputs of a class [M9].

    All inputs' heatmaps and binarised heatmaps supervise one f, which is attributed once.
    Arguments are those of ``ensemble``; the result is of one input: attribution [1, *shape].
    """
    heatmaps = check_heatmaps(heatmaps, quiet=bool(options.get("quiet")))
    weights = check_weights(weights, heatmaps).reshape(1, -1)
    rows = heatmaps.flatten(0, 1).unsqueeze(0)
    return ensemble(rows, config, weights=weights, **options)  # type: ignore[arg-type]


def aggregate(heatmaps: Tensor, how: str = "mean", *, weights: Tensor | None = None) -> Ensemble:
    """Combine heatmaps [N, m, *shape] in [0, 1] into one map an input without learning anything.

    Args:
        heatmaps: as for ``ensemble``.
        how: "mean" (Agg-Mean), "variance" (Agg-Var: the mean over the spread, after Rieger and
            Hansen), "geometric", or "borda" (mean rank).
        weights: how much each method counts, [m] or [N, m].

    Returns:
        An ``Ensemble`` without a scorer; ``gains`` are the sorted values.

    >>> heatmaps = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> aggregate(heatmaps, "mean").attribution.shape
    torch.Size([2, 8, 8])
    """
    if how not in AGGREGATORS:
        known = ", ".join(map(repr, AGGREGATORS))
        raise InputError(f"unknown aggregator {how!r}: choose one of {known}")
    heatmaps = check_heatmaps(heatmaps)
    weights = check_weights(weights, heatmaps).unsqueeze(2)
    rows = heatmaps.flatten(2).to(torch.float64)
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    if how == "geometric":
        values = ((share * (rows + EPSILON).log()).sum(1).exp() - EPSILON).clamp_min(0)
    elif how == "borda":
        values = (share * (rank(rows) - 1)).sum(1) / max(1, rows.shape[2] - 1)
    else:
        values = (share * rows).sum(1)
    if how == "variance":
        spread = (share * (rows - values.unsqueeze(1)).square()).sum(1).sqrt()
        # The map's average spread is added, or agreement on nothing would win.
        values = values / (spread + spread.mean(1, keepdim=True)).clamp_min(EPSILON)
    order, _ = sort_features(values, values.shape[1])
    dtype = torch.promote_types(heatmaps.dtype, torch.float32)  # Agg-Var overflows half precision
    shape = tuple(heatmaps.shape[2:])
    return Ensemble(
        attribution=values.reshape(-1, *shape).to(dtype),
        order=order,
        gains=values.gather(1, order).to(dtype),
        scorer=None,
        history=values[:, :0],
        feature_shape=shape,
        config=SEAConfig(),
    )
