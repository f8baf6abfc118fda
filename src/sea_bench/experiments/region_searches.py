"""A search for an order of regions that asks the model, to compare SEA with.

``greedy_regions`` is a compact form of SMDL-Attribution (Chen et al., ICLR 2024), not its code: on
the cells of one grid, a set's value is p(class | only it is left) - p(class | only the rest is
left), and every cell that is left is asked about at every step.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sea_bench.experiments.asking import fill_all, make_score
from sea_bench.experiments.rivals import greedy
from sea_nn.features import Features

CELLS = 8
"""Cells along each side."""
COSTS = {"greedy_regions": CELLS**2 * (CELLS**2 + 1)}
"""Model evaluations an input."""


def greedy_regions(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Return maps [N, 1, H, W] of the order in which greedy takes the n cells: 1, ..., 1 / n."""
    features = Features.of(x).on_grid((CELLS, CELLS), x.device)
    score = make_score(model, x, target, features, fill_all(x, features, "blur"))
    order = greedy(score, len(x), features.n, both=True).to(x.device)
    falling = 1 - torch.arange(features.n, device=x.device) / features.n
    flat = torch.zeros(len(x), features.n, device=x.device)
    return features.expand(flat.scatter(1, order, falling.expand(len(x), -1))).unsqueeze(1)


def find_method(name: str) -> str | Callable[..., Tensor]:
    """Return what ``compute_maps`` takes for a member of an experiment: a name, or a function."""
    return greedy_regions if name == "greedy_regions" else name
