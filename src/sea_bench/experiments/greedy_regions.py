"""Another method, to compare SEA with: greedy regions, after SMDL-Attribution.

Chen et al. ("Less is more: fewer interpretable region via submodular subset selection", ICLR 2024)
order regions by greedy maximisation of a set function that asks the model about every candidate at
every step. This is a compact form of the idea: regions are the cells of a grid, and a set's value
is p(class | only it is left) - p(class | only the rest is left).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sea_nn.features import number_cells
from sea_nn.questions.ask import make_ask

CELLS = 8
"""Cells along each side."""


def greedy_regions(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Return maps [N, 1, H, W] of the order in which greedy takes the n cells: 1, ..., 1 / n.

    Greedy asks about every cell that is left, two evaluations each: n (n + 1) in all.
    """
    ask = make_ask(model, x, target)
    place = number_cells((CELLS, CELLS), x.shape[2:], x.device)
    n_cells = CELLS**2
    taken = torch.zeros(len(x), n_cells, dtype=torch.bool, device=x.device)
    map_ = torch.zeros(len(x), n_cells, device=x.device)
    single = torch.eye(n_cells, dtype=torch.bool, device=x.device)
    for step in range(n_cells):
        left = (~taken).nonzero()[:, 1].view(len(x), n_cells - step)
        sets = taken.unsqueeze(1) | single[left]
        best = left.gather(1, ask(sets[..., place]).argmax(1, keepdim=True))
        taken.scatter_(1, best, True)
        map_.scatter_(1, best, 1 - step / n_cells)
    return map_[:, place].unsqueeze(1)


OTHERS: dict[str, Callable[..., Tensor]] = {"greedy_regions": greedy_regions}
COSTS = {"greedy_regions": CELLS**2 * (CELLS**2 + 1)}
"""Model evaluations an input."""


def find_method(name: str) -> str | Callable[..., Tensor]:
    """Return what ``compute_maps`` takes for a member of an experiment: a name, or a function."""
    return OTHERS.get(name, name)
