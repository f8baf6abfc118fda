"""Where a map puts its mass: on a few positions, on an object, where people look [M14].

Maps are [N, m, *shape] and masks [N, *shape]; every function returns one number for each input and
map, [N, m]. An empty mask, or a map of zeros where a share of its mass is asked for, gives nan.

>>> maps = torch.tensor([[[0.0, 0.0, 1.0, 3.0]]])
>>> mask = torch.tensor([[False, False, False, True]])
>>> relevance_mass(maps, mask), rank_accuracy(maps, mask), pointing_game(maps, mask)
(tensor([[0.7500]]), tensor([[1.]]), tensor([[1.]]))
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.metrics.order import count_top, overlap, rank_positions

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def gini(maps: Tensor) -> Tensor:
    """Return the Gini index: 0 for an even map, towards 1 for one position that has all.

    sum_i (2 i - n - 1) a_i / (n sum_i a_i) over the values a_1 <= ... <= a_n.
    """
    flat = _flatten(maps)
    n = flat.shape[-1]
    place = torch.arange(1, n + 1, device=flat.device, dtype=flat.dtype)
    ordered = flat.sort(-1).values
    return ((2 * place - n - 1) * ordered).sum(-1) / (n * flat.sum(-1))


def relevance_mass(maps: Tensor, masks: Tensor) -> Tensor:
    """Return the share of each map's total that lies inside the mask."""
    flat, inside = _flatten(maps), _flatten_masks(masks, maps)
    return _where_any(inside, (flat * inside.unsqueeze(1)).sum(-1) / flat.sum(-1))


def rank_accuracy(maps: Tensor, masks: Tensor, seed: int = 0, first: int = 0) -> Tensor:
    """Return the share of the k most relevant positions inside the mask, k the mask's size."""
    flat, inside = maps.flatten(2), _flatten_masks(masks, maps)
    size = inside.sum(-1)[:, None, None]
    top = rank_positions(flat, seed, first) < size
    hits = (top & inside.unsqueeze(1)).sum(-1)
    return _where_any(inside, hits / size.squeeze(-1))


def pointing_game(maps: Tensor, masks: Tensor) -> Tensor:
    """Return 1 where the most relevant position lies inside the mask, else 0.

    Positions that tie for the most relevant count by their share inside: what a random choice
    among them would give on average.
    """
    flat, inside = maps.flatten(2), _flatten_masks(masks, maps)
    most = flat == flat.amax(-1, keepdim=True)
    hits = (most & inside.unsqueeze(1)).sum(-1) / most.sum(-1)
    return _where_any(inside, hits)


def jaccard(
    maps: Tensor, human: Tensor, ks: Sequence[int | float] = SHARES, seed: int = 0, first: int = 0
) -> Tensor:
    """Return the Jaccard index of each map's top k and the human's choice, [N, m, len(ks)] [M14].

    ``human`` is a mask, bool [N, *shape], taken whole at every k; or a graded annotation >= 0, of
    which the top k positions above 0 are taken. ``ks`` are numbers of positions, or shares.
    """
    flat = maps.flatten(2)
    n = flat.shape[-1]
    counts = [count_top(k, n) for k in ks]
    if not counts:
        raise InputError("ks must name at least one number of positions")
    graded = _flatten_masks(human, maps, graded=True)
    chosen, binary = graded > 0, bool(((graded == 0) | (graded == 1)).all())
    place = rank_positions(flat, seed, first)
    theirs = None if binary else rank_positions(graded.unsqueeze(1), seed, first).squeeze(1)
    parts = []
    for count in counts:
        picked = chosen if theirs is None else chosen & (theirs < count)
        parts.append(overlap(place < count, picked.unsqueeze(1)))
    return _where_any(chosen, torch.stack(parts, -1))


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
