"""What f is learned from, and the terms of the objective as functions of f's values [M2, M3].

Every term takes values of f, with inputs on the first axis, and returns one number an input.
Nothing here knows how f is represented.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.features import clip_grid
from sea_nn.paper.heatmaps import binarize, count_thresholds, pool, pool_sets


@dataclass(frozen=True)
class TrainingData:
    """What f is learned from, for N inputs with n features; weights say how much each counts."""

    heatmaps: Tensor  # float64 [N, m, n]
    weights: Tensor  # [N, m]
    sets: Tensor  # binarised heatmaps, bool [N, R, n]; R may be 0
    budgets: Tensor  # size of the best set that each one is compared with, int64 [N, R]
    set_weights: Tensor  # [N, R]


@dataclass
class ObjectiveTerms:
    """The value of each term of the objective at one epoch, [N] each."""

    heatmap: Tensor
    margin: Tensor
    floor: Tensor
    decay: Tensor


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


def heatmap_term(at_ones: Tensor, at_heatmaps: Tensor, weights: Tensor) -> Tensor:
    """sum_i weights_i [f(1) - f(H_i)]: f should already be saturated on each heatmap [M2].

    >>> heatmap_term(torch.tensor([3.0]), torch.tensor([[1.0, 2.0]]), torch.ones(1, 2))
    tensor([3.])
    """
    return (weights * (at_ones.unsqueeze(1) - at_heatmaps)).sum(1)


def margin_term(at_best: Tensor, at_sets: Tensor, weights: Tensor, margin: float) -> Tensor:
    """sum_r weights_r (margin + max_{|A| <= B_r} f(A) - f(S_r))+ over binarised heatmaps [M3].

    ``at_best`` is the (greedy) maximum at each set's budget, ``at_sets`` f of the set, [N, R] each.
    """
    return (weights * (margin + at_best - at_sets).clamp_min(0)).sum(1)


def floor_term(at_ones: Tensor) -> Tensor:
    """(1 - f(1))+, which forbids the trivial f = 0 [M2]."""
    return (1 - at_ones).clamp_min(0)


def decay_term(parameters: Iterable[tuple[Tensor, Tensor]], weight_decay: float) -> Tensor:
    """weight_decay / 2 |w|^2; an entry of a tensor [N, ...] counts ``copies`` ([] or [k]) times."""
    norms = [
        torch.linalg.vector_norm(p.detach().flatten(1), dim=1).square() * copies
        if copies.ndim == 0  # the norm needs no copy of p
        else (p.detach().flatten(1).square() * copies).sum(1)
        for p, copies in parameters
    ]
    return torch.stack(norms).sum(0) * (weight_decay / 2)
