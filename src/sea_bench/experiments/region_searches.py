"""Other methods, to compare SEA with: searches for an order of regions that ask the model.

All work on the cells of one grid, and a set's value is p(class | only it is left) - p(class | only
the rest is left): two evaluations. They are compact forms of the published ideas, not their code.

- ``greedy_regions``, after SMDL-Attribution (Chen et al., ICLR 2024): every cell that is left is
  asked about at every step.
- ``bidirectional_regions``, after LiMA (Chen et al., arXiv 2504.00470): the same, but each step
  also puts the worst cell at the end of the order, so there are half as many steps.
- ``window_regions``, after PhaseWin (Gu et al., arXiv 2606.18008): in each phase every cell that is
  left is asked about once, and the best 16 are a window, half of which greedy takes one by one.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sea_bench.experiments.asking import fill_all, make_score
from sea_nn.features import Features, number_cells

CELLS = 8
"""Cells along each side."""
WINDOW = 16
Value = Callable[[Tensor], Tensor]
"""From sets of cells, bool [N, R, n], to their values, [N, R]."""


def greedy_regions(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Return maps [N, 1, H, W] of the order in which greedy takes the n cells: 1, ..., 1 / n."""
    return _paint(x, _search_greedily(_make_value(model, x, target), len(x), x.device))


def bidirectional_regions(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Return maps [N, 1, H, W] of the order that grows from both ends."""
    return _paint(x, _search_both_ends(_make_value(model, x, target), len(x), x.device))


def window_regions(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Return maps [N, 1, H, W] of the order found in windows."""
    return _paint(x, _search_windows(_make_value(model, x, target), len(x), x.device))


def _search_greedily(value: Value, count: int, device: torch.device) -> Tensor:
    """Take the best of all cells left, one by one: the order, [N, n]."""
    n = CELLS**2
    taken = torch.zeros(count, n, dtype=torch.bool, device=device)
    order = []
    for _ in range(n):
        left = _list_left(taken)
        best = left.gather(1, _ask_each(value, taken, left).argmax(1, keepdim=True))
        taken = taken.scatter(1, best, True)
        order.append(best)
    return torch.cat(order, 1)


def _search_both_ends(value: Value, count: int, device: torch.device) -> Tensor:
    """Take the best of the cells left for the front and the worst for the end: the order."""
    n = CELLS**2
    front = torch.zeros(count, n, dtype=torch.bool, device=device)
    placed, first, last = front, list[Tensor](), list[Tensor]()
    for _ in range(n // 2):
        left = _list_left(placed)
        found = _ask_each(value, front, left)
        best = left.gather(1, found.argmax(1, keepdim=True))
        # Where all values tie, the best and the worst must still be two cells.
        found = found.scatter(1, found.argmax(1, keepdim=True), torch.inf)
        worst = left.gather(1, found.argmin(1, keepdim=True))
        front = front.scatter(1, best, True)
        placed = placed.scatter(1, torch.cat([best, worst], 1), True)
        first.append(best)
        last.append(worst)
    return torch.cat([*first, *reversed(last)], 1)


def _search_windows(value: Value, count: int, device: torch.device) -> Tensor:
    """Screen all cells left, take half of the best 16 one by one, and so on: the order."""
    n = CELLS**2
    taken = torch.zeros(count, n, dtype=torch.bool, device=device)
    order: list[Tensor] = []
    while len(order) < n:
        left = _list_left(taken)
        found = _ask_each(value, taken, left)
        place = found.topk(min(WINDOW, left.shape[1]), 1).indices
        window, found = left.gather(1, place), found.gather(1, place)
        for step in range(min(WINDOW // 2, n - len(order))):
            if step:  # the screening has asked about the first step already
                found = _ask_each(value, taken, window)
            at = found.argmax(1, keepdim=True)
            best = window.gather(1, at)
            taken = taken.scatter(1, best, True)
            order.append(best)
            kept = torch.ones_like(window, dtype=torch.bool).scatter(1, at, False)
            window = window[kept].view(count, -1)
    return torch.cat(order, 1)


def _list_left(taken: Tensor) -> Tensor:
    """The cells that are not taken, as many of every input: bool [N, n] -> [N, left]."""
    return (~taken).nonzero()[:, 1].view(len(taken), -1)


def _ask_each(value: Value, taken: Tensor, cells: Tensor) -> Tensor:
    """The value of what is taken with each of some cells [N, k]: [N, k]."""
    single = torch.eye(taken.shape[1], dtype=torch.bool, device=taken.device)
    return value(taken.unsqueeze(1) | single[cells])


def _make_value(model: nn.Module, x: Tensor, target: Tensor) -> Value:
    cells = number_cells((CELLS, CELLS), x.shape[2:], x.device)
    features = Features.of(x, feature_mask=cells)
    score = make_score(model, x, target, features, fill_all(x, features, "blur"))
    return lambda sets: (score(sets) - score(~sets)).to(torch.float32)


def _paint(x: Tensor, order: Tensor) -> Tensor:
    n = order.shape[1]
    falling = 1 - torch.arange(n, device=x.device) / n
    map_ = torch.zeros(len(x), n, device=x.device).scatter(1, order, falling.expand(len(x), -1))
    return map_[:, number_cells((CELLS, CELLS), x.shape[2:], x.device)].unsqueeze(1)


def _count_windows() -> int:
    """The cells that ``_search_windows`` asks about."""
    n, count = CELLS**2, 0
    for left in range(n, 0, -WINDOW // 2):
        width = min(WINDOW, left)
        count += left + sum(width - step for step in range(1, min(WINDOW // 2, left)))
    return count


OTHERS: dict[str, Callable[..., Tensor]] = {
    "greedy_regions": greedy_regions,
    "bidirectional_regions": bidirectional_regions,
    "window_regions": window_regions,
}
COSTS = {
    "greedy_regions": CELLS**2 * (CELLS**2 + 1),
    "bidirectional_regions": CELLS**2 * (CELLS**2 + 2) // 2,
    "window_regions": 2 * _count_windows(),
}
"""Model evaluations an input."""


def find_method(name: str) -> str | Callable[..., Tensor]:
    """Return what ``compute_maps`` takes for a member of an experiment: a name, or a function."""
    return OTHERS.get(name, name)
