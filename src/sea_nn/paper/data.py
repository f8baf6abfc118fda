"""Heatmaps in: checked, then as rows of features and the sets they are binarised to [M3]."""

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.errors import AssumptionWarning, InputError, KindError
from sea_nn.features import clip_grid
from sea_nn.paper.heatmaps import binarize, count_thresholds, pool, pool_sets

MANY_METHODS = 16
"""More methods than this, on tables, are taken for the rows of a picture: [m, H, W]."""


def check_heatmaps(heatmaps: Tensor, quiet: bool = False) -> Tensor:
    """Heatmaps [N, m, *shape] in [0, 1], detached and real, or an error that says what is wrong.

    ``quiet`` leaves out the warnings, of constant heatmaps and of three axes that look like
    [m, H, W].
    """
    try:
        heatmaps = torch.as_tensor(heatmaps)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(
            f"heatmaps must be one tensor [N, m, *shape]; got {type(heatmaps).__name__} "
            "(stack several maps with torch.stack(maps, dim=1))"
        ) from error
    if heatmaps.is_complex():
        raise KindError("heatmaps must be real numbers; these are complex")
    if heatmaps.is_meta or heatmaps.layout != torch.strided or heatmaps.is_nested:
        raise KindError("heatmaps must be a dense tensor that holds numbers (not meta, not sparse)")
    if heatmaps.ndim < 3:
        raise InputError(
            f"heatmaps must be [N, m, *shape] (inputs, methods, features); got shape "
            f"{tuple(heatmaps.shape)}: unsqueeze(0) a single input"
        )
    count, m = heatmaps.shape[:2]
    if not quiet and heatmaps.ndim == 3 and 1 < count <= MANY_METHODS < m:
        warnings.warn(
            f"heatmaps {list(heatmaps.shape)} were read as {count} inputs with {m} methods and "
            f"{heatmaps.shape[2]} features each; for {count} heatmaps [m, H, W] of one picture, "
            "give heatmaps.unsqueeze(0)",
            AssumptionWarning,
            stacklevel=3,
        )
    if m == 0:
        raise InputError("there is no heatmap: m = 0 methods; give at least one")
    if math.prod(heatmaps.shape[2:]) == 0:
        raise InputError(f"heatmaps of shape {tuple(heatmaps.shape[2:])} have no features")
    heatmaps = heatmaps.detach()
    if not heatmaps.is_floating_point():
        heatmaps = heatmaps.to(torch.float32)
    if count == 0:
        return heatmaps
    low, high = heatmaps.flatten(2).aminmax(dim=2)
    for bad, what in (
        (~(low.isfinite() & high.isfinite()), "holds NaN or infinite values: replace or drop it"),
        ((low < 0) | (high > 1), "leaves [0, 1]: use sea_nn.paper.heatmaps.scale first"),
    ):
        if bool(bad.any()):
            raise InputError(f"{_name_first(bad)} {what}")
    still = low == high
    if not quiet and bool(still.any()):
        warnings.warn(
            f"{_name_first(still)} is constant, prefers no feature, and does not count",
            stacklevel=3,
        )
    return heatmaps.clone() if heatmaps.is_inference() else heatmaps


def _name_first(chosen: Tensor) -> str:
    i, method = chosen.nonzero()[0].tolist()
    more = int(chosen.sum()) - 1
    others = f" (and {more} more)" if more else ""
    return f"the heatmap of input {i}, method {method}{others}"


def check_weights(weights: Tensor | None, heatmaps: Tensor) -> Tensor:
    """Weights as float64 [N, m]; all ones if None."""
    count, m = heatmaps.shape[:2]
    try:
        weights = torch.as_tensor([1.0] * m if weights is None else weights, dtype=torch.float64)
        weights = weights.detach().to(heatmaps.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(f"weights must be numbers, one a method; got {weights!r}") from error
    if weights.shape not in ((m,), (count, m)):
        raise InputError(
            f"weights must be [m] = [{m}] or [N, m] = [{count}, {m}]; got {tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InputError("weights must be finite and >= 0")
    return weights.expand(count, m)


@dataclass(frozen=True)
class TrainingData:
    """What f is learned from, for N inputs with n features; weights say how much each counts."""

    heatmaps: Tensor  # float64 [N, m, n]
    weights: Tensor  # [N, m]
    sets: Tensor  # binarised heatmaps, bool [N, R, n], R / m of each; R may be 0
    budgets: Tensor  # size of the best set that each one is compared with, int64 [N, R]


def find_grid(config: SEAConfig, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the grid that heatmaps of this shape are pooled onto; None: each feature alone."""
    if config.grid is None:
        return None
    if len(shape) != 2:
        raise InputError(
            f"a grid needs heatmaps with two axes [N, m, H, W]; these have shape {shape} an input: "
            "set grid=None"
        )
    return clip_grid(config.grid, shape)


def make_training_data(heatmaps: Tensor, config: SEAConfig, weights: Tensor) -> TrainingData:
    """Heatmaps [N, m, *shape] to what the objective sees: float64 rows, sets, budgets, weights.

    A constant heatmap prefers nothing: it and its sets count for nothing.
    """
    count, m = heatmaps.shape[:2]
    maps = heatmaps.detach().to(torch.float64)
    low, high = maps.flatten(2).aminmax(dim=2)
    weights = weights.to(maps) * (high > low)
    grid = find_grid(config, tuple(maps.shape[2:]))
    rows = maps.flatten(2) if grid is None else pool(maps, grid).flatten(2)
    if not config.margin_weight:
        sets = torch.zeros(count, 0, rows.shape[2], dtype=torch.bool, device=rows.device)
        return TrainingData(rows, weights, sets, sets.sum(2))
    sets = binarize(maps.flatten(2), config.thresholds)
    if grid is not None:
        pixels = sets.unflatten(3, maps.shape[2:])
        sets = pool_sets(pixels, grid, at_least=config.reading == "authors").flatten(3)
    sets = sets.flatten(1, 2)
    if not config.heatmap_weight and not bool(sets.any(2).any(1).all()):
        raise InputError(
            "every binarised heatmap of some input is empty once pooled onto the grid, and "
            "heatmap_weight is 0: nothing would be learned. Use a finer grid or smaller thresholds"
        )
    budgets = sets.sum(2, dtype=torch.int32).long()  # ten times faster than in int64
    if config.reading == "authors":
        asked = torch.tensor(count_thresholds(config.thresholds, math.prod(maps.shape[2:])))
        budgets = asked.clamp(max=rows.shape[2]).repeat(count, m).to(budgets)
    return TrainingData(rows, weights, sets, budgets)
