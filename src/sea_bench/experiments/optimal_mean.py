"""The convex combination of members that best predicts the model (Decker et al., ICML 2024).

A rival: its weights cost forward passes, about regions hidden at random, as learning does.
"""

import math

import torch
from torch import Tensor

EPSILON = 1e-6
STEPS = 2000


def find_weights(heatmaps: Tensor, removed: Tensor, drops: Tensor) -> Tensor:
    """The weights of the mean of heatmaps that best foretells what hiding regions takes: [N, m].

    They minimise E (sum_i w_i H_i(x)[R] - drop(R))^2 over the regions R, w >= 0 with sum 1. Both
    sides are divided by their root mean square over the regions: a heatmap has no unit. What is
    returned are the weights of the heatmaps as they are, up to scale.

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
    quadratic = torch.einsum("nri,nrj->nij", inside, inside) / regions
    weights = minimize(quadratic, torch.einsum("nri,nr->ni", inside, drops) / regions)
    # A member that no region touches has no size: it counts as the smallest that has one.
    least = torch.where(size > 0, size, torch.inf).amin(1, keepdim=True)
    return weights * torch.where(size > 0, least / size, 1)


def minimize(quadratic: Tensor, linear: Tensor) -> Tensor:
    """The w >= 0 with sum 1 that minimise w'Qw - 2 c'w, for Q [N, m, m] and c [N, m].

    Accelerated projected gradient on the simplex (the programme has m variables: it is tiny).
    """
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
