"""Positions of a map: which come first, in which step each goes, where its mass lies [M14].

Positions go in order of falling relevance. **Positions that tie go in a random order that is seeded
and the same for all methods**, never in order of their index: an index is information that the map
does not have, and pictures are not the same everywhere. ``seed`` starts that order, and ``first``
is the number of the first input in a larger set. A *step map* holds, for every position, the step
(1, 2, ...) that hides it; a number above the last step means never.

Maps are [N, m, *shape] and masks [N, *shape]; what compares them returns one number for each input
and map, [N, m]. An empty mask, or a map of zeros where a share of its mass is asked for, gives nan.

>>> maps = torch.tensor([[[0.0, 0.0, 1.0, 3.0]]])
>>> mask = torch.tensor([[False, False, False, True]])
>>> relevance_mass(maps, mask), rank_accuracy(maps, mask), pointing_game(maps, mask)
(tensor([[0.7500]]), tensor([[1.]]), tensor([[1.]]))
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError, KindError
from sea_nn.model.noise import permute

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


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
    place = torch.arange(n, device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, shuffle.gather(-1, order), place)


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
    count = k if isinstance(k, int) else max(1, round(k * n))
    if k <= 0 or count > n:
        raise InputError(f"k is a number or a share of the {n} positions, above 0; got {k}")
    return count


def pixel_steps(maps: Tensor, steps: int, seed: int = 0, first: int = 0) -> Tensor:
    """Return the step map that hides every position in ``steps`` equal steps.

    After step s (1 to ``steps``) the s * n // steps most relevant positions are hidden. Takes maps
    [N, m, n], returns int32 [N, m, n].
    """
    n, place = maps.shape[-1], rank_positions(maps, seed, first)
    return (((place + 1) * steps + n - 1) // n).to(torch.int32)  # the first s that reaches it


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


def gini(maps: Tensor) -> Tensor:
    """How far the map concentrates on few positions (0: even, 1: a single one).

    The Gini index, sum_i (2 i - n - 1) a_i / (n sum_i a_i) over the values a_1 <= ... <= a_n.
    """
    flat = _flatten(maps)
    n = flat.shape[-1]
    place = torch.arange(1, n + 1).to(flat)
    return ((2 * place - n - 1) * flat.sort(-1).values).sum(-1) / (n * flat.sum(-1))


def relevance_mass(maps: Tensor, masks: Tensor) -> Tensor:
    """Which share of the map's total lies on the object."""
    flat, inside = _flatten(maps), _flatten_masks(masks, maps)
    return _where_any(inside, (flat * inside.unsqueeze(1)).sum(-1) / flat.sum(-1))


def rank_accuracy(maps: Tensor, masks: Tensor, seed: int = 0, first: int = 0) -> Tensor:
    """Which share of the most relevant positions, as many as the object has, lies on it."""
    flat, inside = maps.flatten(2), _flatten_masks(masks, maps)
    size = inside.sum(-1)[:, None]
    top = rank_positions(flat, seed, first) < size.unsqueeze(-1)
    return _where_any(inside, (top & inside.unsqueeze(1)).sum(-1) / size)


def pointing_game(maps: Tensor, masks: Tensor) -> Tensor:
    """Whether the single most relevant position lies on the object: 1 or 0.

    Positions that tie for the most relevant count by their share inside: what a random choice
    among them would give on average.
    """
    flat, inside = maps.flatten(2), _flatten_masks(masks, maps)
    most = flat == flat.amax(-1, keepdim=True)
    return _where_any(inside, (most & inside.unsqueeze(1)).sum(-1) / most.sum(-1))


def jaccard(
    maps: Tensor, masks: Tensor, ks: Sequence[int | float] = SHARES, seed: int = 0, first: int = 0
) -> Tensor:
    """How far the most relevant positions are those that people marked.

    The Jaccard index of each map's top k and the people's choice, [N, m, len(ks)]: a mask, bool
    [N, *shape], taken whole at every k; or a graded annotation >= 0, of which the top k positions
    above 0 are taken. ``ks`` are numbers of positions, or shares.
    """
    flat, graded = maps.flatten(2), _flatten_masks(masks, maps, graded=True).unsqueeze(1)
    place, chosen, parts = rank_positions(flat, seed, first), graded > 0, []
    whole = ((graded == 0) | (graded == 1)).all()
    theirs = rank_positions(graded, seed, first).masked_fill(whole, 0)
    for count in (count_top(k, flat.shape[-1]) for k in ks):
        parts.append(overlap(place < count, chosen & (theirs < count)))
    return _where_any(chosen.squeeze(1), torch.stack(parts, -1))


def _flatten(maps: Tensor) -> Tensor:
    if bool((maps < 0).any()):
        raise InputError(
            "a share of a map's mass needs values that are not negative; take maps.abs(), or "
            "reduce channels with sea_nn.paper.heatmaps.reduce_channels"
        )
    return maps.flatten(2).to(torch.promote_types(maps.dtype, torch.float32))


def _flatten_masks(masks: Tensor, maps: Tensor, graded: bool = False) -> Tensor:
    """Masks as bool [N, n]; graded annotations as they are."""
    if masks.shape != (len(maps), *maps.shape[2:]):
        raise InputError(
            "masks must be [N, *shape] for maps [N, m, *shape]: expected "
            f"{[len(maps), *maps.shape[2:]]}, got {list(masks.shape)}"
        )
    flat = masks.flatten(1)
    if graded:
        if not bool((flat >= 0).all()):
            raise InputError("human annotations must not be negative or nan")
        return flat
    if bool(((flat != 0) & (flat != 1)).any()):
        raise KindError(
            f"masks must be bool, or hold only 0 and 1; got other values in {masks.dtype}. "
            "Threshold them first: masks > 0.5"
        )
    return flat.bool()


def _where_any(inside: Tensor, values: Tensor) -> Tensor:
    """Values [N, m, ...] where the input's mask is not empty, else nan."""
    some = inside.any(1).view(-1, *(1,) * (values.ndim - 1))
    return torch.where(some, values, torch.nan)
