"""What a map does when the input changes: noise that should not matter, objects that do not.

Both metrics look at maps computed twice; computing them is the caller's part.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.metrics.order import overlap, top_sets
from sea_nn.model.noise import random_map, uniform

RANDOM = "random"
Recompute = Callable[[Tensor], Mapping[str, Tensor]]
"""From inputs [N, ...] to maps [N, *shape] by method."""


def add_noise(x: Tensor, amplitude: float | Tensor = 0.02, seed: int = 0, first: int = 0) -> Tensor:
    """Return x plus uniform noise from -amplitude to amplitude; each input has its own draws."""
    noise = uniform("input_noise", x.shape, seed, first, x.device).to(x.dtype)
    return x + (2 * noise - 1) * amplitude


def drop_channel(maps: Tensor, axes: int) -> Tensor:
    """Return maps [N, 1, *shape] as [N, *shape], which has so many axes; others as they are."""
    return maps.squeeze(1) if maps.ndim == axes + 1 and maps.shape[1] == 1 else maps


def overlap_top(
    before: Tensor, after: Tensor, k: int | float = 0.1, seed: int = 0, first: int = 0
) -> Tensor:
    """Return the intersection over union of the top k positions of two maps each, [N, m] [M15].

    The maps are [N, m, *shape]; ``k`` is a number of positions or a share. The paper takes 5000 of
    224 x 224, a tenth.
    """
    if before.shape != after.shape:
        raise InputError(
            f"maps before and after must have one shape; got {list(before.shape)} and "
            f"{list(after.shape)}"
        )
    return overlap(*(top_sets(maps.flatten(2), k, seed, first) for maps in (before, after)))


def recompute_maps(
    recompute: Recompute, x: Tensor, methods: Mapping[str, Tensor], seed: int = 0, first: int = 0
) -> Tensor:
    """Return the maps of x by the given methods, [N, m, *shape], checked against the first ones.

    A method "random" that ``recompute`` does not know is drawn again, with ``seed``.
    """
    maps = recompute(x)
    if not isinstance(maps, Mapping):
        raise KindError(
            "recompute must return maps [N, *shape] by method, like the ones being scored; got "
            f"{type(maps).__name__}"
        )
    if RANDOM in methods and RANDOM not in maps:
        shape = tuple(methods[RANDOM].shape)
        maps = {**maps, RANDOM: random_map(shape, seed, first, x.device)}
    missing = [name for name in methods if name not in maps]
    if missing:
        raise InputError(f"recompute returned no maps for {', '.join(map(repr, missing))}")
    parts = []
    for name, before in methods.items():
        after = drop_channel(maps[name].detach().to(before), before.ndim)
        if after.shape != before.shape:
            raise InputError(
                f"recompute returned maps {list(after.shape)} for {name!r}; expected "
                f"{list(before.shape)}"
            )
        parts.append(after)
    return torch.stack(parts, 1)


def input_dependence(with_object: Tensor, without_object: Tensor, region: Tensor) -> Tensor:
    """Return 1 where a pasted object gets less attribution than the scene had there [M16].

    The object means nothing to a classifier of scenes. The mean over inputs is the input dependence
    rate of BAM (Yang and Kim, 2019), higher is better; both kinds of maps, [N, m, *shape], must
    have one scale. Returns [N, m], nan where the region, bool [N, *shape], is empty.
    """
    if with_object.shape != without_object.shape:
        raise InputError(
            "the maps with and without the object must have one shape; got "
            f"{list(with_object.shape)} and {list(without_object.shape)}"
        )
    if region.shape != (len(with_object), *with_object.shape[2:]):
        raise InputError(
            f"region must be {[len(with_object), *with_object.shape[2:]]}; got {list(region.shape)}"
        )
    inside = region.bool().flatten(1).unsqueeze(1)
    pasted = (with_object.flatten(2) * inside).sum(-1)
    scene = (without_object.flatten(2) * inside).sum(-1)
    return torch.where(inside.any(-1), (pasted < scene).to(pasted.dtype), torch.nan)
