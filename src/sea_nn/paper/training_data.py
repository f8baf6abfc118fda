"""From heatmaps to what f is learned from: rows, sets, budgets and weights."""

import math

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.features import clip_grid
from sea_nn.paper.heatmaps import binarize, count_thresholds, pool, pool_sets
from sea_nn.paper.objective import TrainingData


def make_training_data(heatmaps: Tensor, config: SEAConfig, weights: Tensor) -> TrainingData:
    """Heatmaps [N, m, *shape] to what the objective sees: float64 rows, sets, budgets, weights.

    A constant heatmap prefers nothing: it and its sets count for nothing.
    """
    count, m = heatmaps.shape[:2]
    maps = heatmaps.detach().to(torch.float64)
    low, high = maps.flatten(2).aminmax(dim=2)
    weights = weights.to(maps) * (high > low)
    grid = None if config.grid is None else clip_grid(config.grid, maps.shape[2:])
    rows = maps.flatten(2) if grid is None else pool(maps, grid).flatten(2)
    if not config.margin_weight:
        none = rows.new_zeros(count, 0)
        sets = torch.zeros(count, 0, rows.shape[2], dtype=torch.bool, device=rows.device)
        return TrainingData(rows, weights, sets, none.long(), none)
    sets = binarize(maps.flatten(2), config.thresholds)
    k = sets.shape[2]
    if grid is not None:
        pixels = sets.reshape(count, m, k, *maps.shape[2:])
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
    return TrainingData(rows, weights, sets, budgets, weights.repeat_interleave(k, 1))


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
