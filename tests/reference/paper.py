"""The paper's method, slow and obvious, in float64: what everything fast is compared with.

Nothing here is imported from sea_nn: a network of four linear layers, greedy that evaluates every
candidate at every step, Algorithm 1 as printed, torch's own Adagrad. A gain ties with the largest
when it is within one part in 2^30 of it; the lowest index goes first.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

TIE = 2.0**-30


class Network(nn.Module):
    """Linear -> sqrt -> ... -> Linear with non-negative weights [M1]."""

    def __init__(self, n, widths=(512, 256, 32), phi=torch.sqrt, start=None, bias=True):
        super().__init__()
        sizes = [n, *widths, 1]
        self.phi = phi
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=bias, dtype=torch.float64) for a, b in itertools.pairwise(sizes)
        )
        for parameter in self.parameters():
            nn.init.ones_(parameter)
        if start is not None:
            low, high = start
            for parameter in self.parameters():
                nn.init.uniform_(parameter, low, high)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.phi(layer(x))
        return self.layers[-1](x).squeeze(-1)


def gains_of(f, taken: Tensor, candidates: list[int]) -> Tensor:
    """f(A + v) - f(A) for every candidate v, one batch of full evaluations."""
    batch = taken.repeat(len(candidates), 1)
    batch[torch.arange(len(candidates)), candidates] = 1.0
    return f(batch) - f(taken)


def tied(gains: Tensor, candidates: list[int]) -> list[int]:
    """The candidates whose gain ties with the largest, lowest index first."""
    best = float(gains.max())
    return sorted(
        v for v, gain in zip(candidates, gains.tolist(), strict=True) if gain >= best - TIE * best
    )


@torch.no_grad()
def greedy(f, n: int, budget: int) -> tuple[list[int], list[float]]:
    """Greedy maximisation [M4]: order and gains."""
    taken = torch.zeros(n, dtype=torch.float64)
    order, gains = [], []
    for _ in range(budget):
        candidates = [v for v in range(n) if taken[v] == 0]
        step = gains_of(f, taken, candidates)
        chosen = tied(step, candidates)[0]
        order.append(chosen)
        gains.append(float(step[candidates.index(chosen)]))
        taken[chosen] = 1.0
    return order, gains


@torch.no_grad()
def algorithm1(f, n: int) -> Tensor:
    """The attribution algorithm as the paper prints it [M6]."""
    result = torch.zeros(n, dtype=torch.float64)
    taken = torch.zeros(n, dtype=torch.float64)
    left = list(range(n))
    while left:
        gains = gains_of(f, taken, left)
        members = tied(gains, left)
        gain = float(gains[left.index(members[0])])
        if gain <= 0:
            break
        for v in members:
            result[v] = gain
        taken[members[0]] = 1.0
        left = [v for v in left if v not in members]
    return result


def top_sets(heatmap: Tensor, counts) -> list[Tensor]:
    """The k largest features of a heatmap as 0/1 vectors, lowest index first among equals."""
    order = sorted(range(len(heatmap)), key=lambda v: (-float(heatmap[v]), v))
    sets = []
    for k in counts:
        chosen = torch.zeros(len(heatmap), dtype=torch.float64)
        chosen[order[:k]] = 1.0
        sets.append(chosen)
    return sets


def objective(f, heatmaps, sets, best, heatmap_weight, margin_weight, delta=1e-5):
    """M3 without its weight decay, which the optimiser adds.

    ``sets[i][j]`` is H_i^j; ``best[i][j]`` is the greedy set of the same size.
    """
    ones = torch.ones(heatmaps.shape[1], dtype=torch.float64)
    loss = heatmap_weight * sum(f(ones) - f(h) for h in heatmaps)
    for mine, theirs in zip(sets, best, strict=True):
        for s, a in zip(mine, theirs, strict=True):
            loss = loss + margin_weight * torch.relu(delta + f(a) - f(s))
    return loss


def train(f, heatmaps, counts, *, epochs=50, heatmap_weight=10.0, margin_weight=10.0, decay=1e-6):
    """Learn f by Adagrad and clamping as the paper does; returns the loss of every epoch."""
    n = heatmaps.shape[1]
    sets = [top_sets(h, counts) for h in heatmaps]
    optimiser = torch.optim.Adagrad(f.parameters(), lr=0.01, lr_decay=0.1, weight_decay=decay)
    losses = []
    for _ in range(epochs):
        order, _ = greedy(f, n, max(counts))
        best_by_count = {}
        for k in counts:
            chosen = torch.zeros(n, dtype=torch.float64)
            chosen[order[:k]] = 1.0
            best_by_count[k] = chosen
        best = [[best_by_count[k] for k in counts] for _ in heatmaps]
        loss = objective(f, heatmaps, sets, best, heatmap_weight, margin_weight)
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for parameter in f.parameters():
                parameter.clamp_(min=0)
    return losses
