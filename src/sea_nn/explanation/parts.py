"""An explanation of several inputs, part by part: each is an explanation of its own kind."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.features import Kind, find_kind
from sea_nn.paper.heatmaps import scale


@dataclass(frozen=True)
class Part:
    """One of several inputs.

    Attributes:
        name: its argument's, or "input 0", "input 1", …
        kind: of input.
        view: how it is shown.
        shape: of one such input, channels included.
        channels: the axis of ``shape`` along which values belong to one position, from 1; None:
            there is none.
    """

    name: str
    kind: str
    view: str
    shape: tuple[int, ...]
    channels: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))


def find_part(parts: tuple[Part, ...], which: int | str) -> int:
    """The number of a part by its number or name."""
    names = [part.name for part in parts]
    if which in names:
        return names.index(str(which))
    if isinstance(which, int) and 0 <= which < len(names):
        return which
    known = ", ".join(names) or "none: this is one input"
    raise InputError(f"the parts are {known}; got {which!r}")


def cut_part(e: Any, which: int | str) -> dict[str, Any]:
    """The attributes in which the explanation of one part differs from that of all."""
    number = find_part(e.parts, which)
    part = e.parts[number]
    start = sum(math.prod(p.shape) for p in e.parts[:number])
    stop = start + math.prod(part.shape)

    def cut(maps: Tensor, average: bool = False) -> Tensor:
        own = maps[..., start:stop].reshape(*maps.shape[:-1], *part.shape)
        if part.channels is None:
            return own
        axis = maps.ndim - 2 + part.channels
        return own.mean(axis) if average else own.sum(axis)

    groups = torch.arange(e.shape[0])[None] if e.features is None else e.features.cpu()
    own_groups = groups[:, start:stop].reshape(1, *part.shape)
    if part.channels is not None:
        own_groups = own_groups.select(part.channels, 0)
    own, numbers = own_groups.unique(return_inverse=True)
    n = len(own)
    inside = torch.isin(e.order, own.to(e.order.device))
    place = torch.full((e.order.shape[1],), -1)
    place[own] = torch.arange(n)
    order = place.to(e.order.device)[e.order[inside]].view(len(e), n)

    def add(maps: Tensor) -> Tensor:
        return maps if part.channels is None else maps.unsqueeze(1)

    single = n == numbers.numel()
    values = e.values[:, start:stop].reshape(len(e), *part.shape)
    return {
        "attribution": add(cut(e.attribution)),
        "maps": cut(e.maps, average=True),
        "order": order,
        "gains": e.gains[inside].view(len(e), n),
        "feature_shape": tuple(numbers.shape[1:]) if single else (n,),
        "features": None if single else numbers,
        "images": show_input(values) if part.view == "picture" else None,
        "values": None if part.channels is not None else values,
        "against": None if e.against is None else add(cut(e.against)),
        "function": None,
        "predict_error": None,
        "curve": None,
        "asked": None,
        "members": (),
        "feature_names": None,
        "kind": part.kind,
        "view": part.view,
        "parts": (),
    }


def show_input(x: Tensor, kind: Kind | None = None) -> Tensor | None:
    """Images and volumes of 1 or 3 channels as pictures, from least to largest value."""
    kind = find_kind(x) if kind is None else kind
    axis = kind.channels
    if axis is None or kind.view not in ("picture", "slices") or x.shape[axis] not in (1, 3):
        return None
    stretched = scale(x.detach().float()).mul(255).round().to(torch.uint8)
    colours = stretched if x.shape[axis] == 3 else stretched.repeat_interleave(3, axis)
    return colours.movedim(axis, -1).contiguous().cpu()
