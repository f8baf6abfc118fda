"""In which step each position is hidden: by pixel, or by greedy windows.

A *step map* holds, for every position, the step (1, 2, ...) that hides it; a number above the last
step means never. Positions go in order of falling relevance. **Positions that tie go in a random
order that is seeded and the same for all methods**, never in order of their index: an index is
information that the map does not have, and pictures are not the same everywhere. ``seed`` starts
that order, and ``first`` is the number of the first input in a larger set, whatever is asked for.
"""

import torch
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError, KindError
from sea_nn.model.noise import permute


def rank_positions(maps: Tensor, seed: int = 0, first: int = 0) -> Tensor:
    """Return each position's place, 0 for the most relevant, int64 like maps [N, m, n].

    >>> rank_positions(torch.tensor([[[0.1, 0.9, 0.5]]]))
    tensor([[[2, 0, 1]]])
    """
    n = maps.shape[-1]
    shuffle = permute("ties", len(maps), n, seed, first, maps.device)
    shuffle = shuffle.unsqueeze(1).expand(maps.shape)
    # A stable sort of the shuffled map leaves ties as they were shuffled.
    order = maps.gather(-1, shuffle).argsort(dim=-1, descending=True, stable=True)
    order = shuffle.gather(-1, order)
    place = torch.arange(n, device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, place)


def top_sets(maps: Tensor, k: int | float, seed: int = 0, first: int = 0) -> Tensor:
    """Return the k most relevant positions of each map, bool like maps [N, m, n]."""
    return rank_positions(maps, seed, first) < count_top(k, maps.shape[-1])


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Return the intersection over union of sets of positions, bool [..., n]; 0 of empty ones."""
    return (a & b).sum(-1) / (a | b).sum(-1).clamp(min=1)


def count_top(k: int | float, n: int) -> int:
    """Return k as a number of positions: a whole number as it is, a share of the n rounded.

    >>> count_top(50, 784), count_top(0.1, 784)
    (50, 78)
    """
    if isinstance(k, bool) or not isinstance(k, int | float):
        raise KindError(f"k is a number of positions or a share below 1, not {type(k).__name__}")
    count = k if isinstance(k, int) else max(1, round(k * n)) if 0 < k < 1 else -1
    if count < 1:
        raise InputError(f"k must be a whole number from 1, or a share between 0 and 1; got {k}")
    if count > n:
        raise InputError(f"the top {count} positions were asked for, and there are {n}")
    return count


def pixel_steps(maps: Tensor, steps: int, seed: int = 0, first: int = 0) -> Tensor:
    """Return the step map that hides every position in ``steps`` equal steps.

    After step s (1 to ``steps``) the s * n // steps most relevant positions are hidden. Takes maps
    [N, m, n], returns int16 [N, m, n].
    """
    n = maps.shape[-1]
    _check_steps(steps, n, "positions")
    place = rank_positions(maps, seed, first)
    return (((place + 1) * steps + n - 1) // n).to(torch.int16)  # the first s that reaches it


def window_steps(
    maps: Tensor, size: int, count: int, *, edge: bool = True, seed: int = 0, first: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the step map of the greedy windows, and how many windows there was room for.

    Step s hides the size x size window of the largest mean relevance among those that overlap no
    earlier one. Greedy windows can block each other, so fewer than ``count`` may fit. With ``edge``
    they may touch the lower and the right border; the authors' code lets them start at rows and
    columns 0 to S - size - 1, one short of that.

    Returns:
        int16 [N, m, H, W] with ``count + 1`` where no window came, and int64 [N, m].
    """
    if maps.ndim != 4:
        raise InputError(f"windows are for maps of images, [N, m, H, W]; got {list(maps.shape)}")
    height, width = maps.shape[2:]
    slack = 0 if edge else 1
    _check_steps(count, height * width, "pixels")
    if size < 1 or size + slack > min(height, width):
        raise InputError(
            f"windows of {size} x {size} do not fit into {height} x {width}; choose a size from 1 "
            f"to {min(height, width) - slack}"
        )
    # One axis after the other: 2 * size additions a window instead of size * size.
    means = functional.avg_pool2d(maps.to(torch.float64), (size, 1), stride=1)
    means = functional.avg_pool2d(means, (1, size), stride=1)
    means = means[..., : means.shape[2] - slack, : means.shape[3] - slack]
    # To a billionth of the largest, so that rounding errors rank nothing.
    largest = means.abs().amax((2, 3), keepdim=True)
    means = (means / torch.where(largest > 0, largest, 1) * 1e9).round()
    worth = -rank_positions(means.flatten(2), seed, first).double()
    place = torch.arange(worth.shape[-1], device=maps.device)
    rows, columns = place // means.shape[3], place % means.shape[3]
    down, across = (torch.arange(side, device=maps.device) for side in (height, width))
    steps = torch.full(maps.shape, count + 1, dtype=torch.int16, device=maps.device)
    found = torch.zeros(maps.shape[:2], dtype=torch.int64, device=maps.device)
    for step in range(1, count + 1):
        best, corner = worth.max(-1, keepdim=True)
        top, left, room = rows[corner], columns[corner], best > -torch.inf  # [N, m, 1] each
        inside = (down >= top) & (down < top + size) & room
        inside = inside[..., None] & ((across >= left) & (across < left + size))[..., None, :]
        steps.masked_fill_(inside, step)
        found += room.squeeze(-1)
        near = ((rows - top).abs() < size) & ((columns - left).abs() < size)
        worth.masked_fill_(near, -torch.inf)
    return steps, found


def _check_steps(steps: int, n: int, what: str) -> None:
    if not 1 <= steps <= min(n, torch.iinfo(torch.int16).max - 1):
        raise InputError(
            f"steps must be from 1 to the number of {what}, {n}, and at most 32766; got {steps}"
        )
