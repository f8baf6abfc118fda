"""What f is learned from, and the objective's terms as functions of f's values [M2, M3].

Every function takes values of f, with inputs on the first axis, and returns one number an input.
Nothing here knows how f is represented.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


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
