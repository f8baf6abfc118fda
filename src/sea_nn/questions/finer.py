"""Sort the first cells of an order again in parts: a grid twice as fine, at the front alone.

The answer falls within the first few cells that are removed, so there the order of quarter cells
matters. A window of sixteen of them is sorted by how they answer for halves of it, as whole cells
are (``Search``); the others keep their cells' order, inside a cell by heat.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sea_nn.features import Features
from sea_nn.questions.designs import find_effects, halves, paired

WIDTH = 16
STRIDE = 8


def can_refine(features: Features) -> bool:
    """Whether these are cells of an image that can be halved along both axes."""
    layout = features.layout
    if features.groups is None or layout is None or len(layout) != 2:
        return False
    return all(2 * cells <= size for cells, size in zip(layout, features.shape, strict=True))


def count_questions(windows: int) -> int:
    """What sorting so many windows costs an input.

    >>> count_questions(5)
    300
    """
    return 4 * (WIDTH - 1) * windows


def sort_finer(
    ask: Callable[[Tensor], Tensor], features: Features, order: Tensor, heat: Tensor, windows: int
) -> tuple[Features, Tensor]:
    """Sort the first windows of the order's quarter cells by the model's answers.

    Args:
        ask: the score with only some positions left, bool [N, R, *shape] -> [N, R].
        features: cells of images.
        order: of these cells, [N, n].
        heat: where members see evidence, [N, *shape].
        windows: how many windows; each costs 60 questions.

    Returns:
        The finer features, and their order, [N, 4 n].
    """
    layout = features.layout or ()
    fine = features.on_grid([2 * cells for cells in layout], heat.device)
    rank = order.argsort(1).double()
    # Cells of the two grids line up up to rounding: a quarter's place is the mean over its pixels.
    place = fine.sum(features.expand(rank)) / fine.count().to(rank)
    warm = fine.sum(heat.double()) / fine.count().to(rank)
    warm = warm / warm.amax(1, keepdim=True).clamp(min=1e-300)
    found = (place.round() - 0.999 * warm).argsort(dim=1, stable=True)
    for low in range(0, STRIDE * windows, STRIDE):
        sets = fine.expand(paired(halves(found, low, WIDTH)))
        kept, removed = ask(sets).double().chunk(2, 1)
        effects = find_effects(kept - removed, WIDTH)
        window = found[:, low : low + WIDTH]
        best = effects.argsort(dim=1, descending=True, stable=True)
        found = torch.cat([found[:, :low], window.gather(1, best), found[:, low + WIDTH :]], 1)
    return fine, found
