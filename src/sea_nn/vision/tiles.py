"""Pictures larger than a model takes: explained tile by tile, at the caller's word."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation import Explanation
from sea_nn.explanation.fields import show_input
from sea_nn.features import IMAGE, find_kind, scale

if TYPE_CHECKING:
    from sea_nn.sea import SEA

SPENT = ("seconds", "evaluations", "by_purpose")


def explain_tiles(
    sea: SEA,
    x: Tensor,
    target: int,
    size: int,
    *,
    images: Tensor | None = None,
    **told: Any,
) -> Explanation:
    """Explain large images [N, C, H, W] for one class from their tiles.

    Every tile of ``size`` pixels a side is explained by itself, as the model sees it by itself; a
    tile counts by the model's score for the class, and where tiles overlap their maps are averaged.
    What the model would say of the whole is not asked: it cannot be. The explanation's score is
    the largest of the tiles', its features are the pixels, in the order of the map.

    Args:
        sea: explains a tile.
        x: the images, at least as large as a tile.
        target: the class. Tiles without it have low scores, and so count little.
        size: of a tile, in pixels: what the model takes.
        images: the images to show, uint8 [N, H, W, 3].
        told: further arguments of ``SEA.explain``: ``labels``, ``about``, ``running``, …
    """
    if find_kind(x) is not IMAGE or min(x.shape[2:]) < size:
        raise InputError(
            f"images must be [N, C, H, W] of at least {size} x {size} pixels; got {list(x.shape)}"
        )
    if isinstance(target, bool) or not isinstance(target, int):
        raise InputError(f"tiles need one class for all of them, a number; got {target!r}")
    weight = torch.zeros_like(x[:, 0])
    maps: dict[str, Tensor] = {}  # SEA's under "", and those of the members
    spent: dict[str, Any] = {name: Counter() for name in SPENT}
    scores: list[Tensor] = []
    for top, left in product(*(find_starts(side, size) for side in x.shape[2:])):
        place = (..., slice(top, top + size), slice(left, left + size))
        e = sea.explain(x[place], target, **told)
        if any(check.message.endswith("interrupted") for check in e.checks):
            raise KeyboardInterrupt  # of one tile; without the others there is no map
        score = e.score.to(x)
        weight[place] += 1
        every = torch.cat([e.attribution.to(x), e.maps.to(x)], 1) * score.view(-1, 1, 1, 1)
        for name, own in zip(("", *e.methods), every.unbind(1), strict=True):
            maps.setdefault(name, torch.zeros_like(weight))[place] += own
        for name in SPENT:
            spent[name].update(getattr(e.provenance, name))
        scores.append(score)
    attribution = (maps.pop("") / weight).unsqueeze(1)
    gains, order = attribution.flatten(1).sort(stable=True, dim=1, descending=True)
    return Explanation(
        attribution=attribution,
        maps=scale(torch.stack([own / weight for own in maps.values()], 1), 2),
        methods=tuple(maps),
        target=e.target,
        score=torch.stack(scores).amax(0),
        order=order,
        gains=gains,
        feature_shape=tuple(x.shape[2:]),
        images=show_input(x) if images is None else images,
        labels=e.labels,
        provenance=replace(e.provenance, call={**e.provenance.call, "tile": size}, **spent),
    )


def find_starts(length: int, size: int) -> list[int]:
    """Where tiles begin along an axis: neighbours share a half, and the last one ends with it.

    >>> find_starts(8, 4), find_starts(9, 4)
    ([0, 2, 4], [0, 2, 4, 5])
    """
    starts = list(range(0, length - size + 1, max(1, size // 2)))
    return starts if starts[-1] == length - size else [*starts, length - size]
