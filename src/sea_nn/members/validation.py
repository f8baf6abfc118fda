"""What a member needs of a call, and what it has to return."""

from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import MemberError, UnfitError
from sea_nn.features import Kind, find_kind
from sea_nn.features.kinds import SERIES
from sea_nn.members.registry import Member, get, names
from sea_nn.model.evaluator import Evaluator


def check_needs(member: Member, evaluator: Evaluator) -> None:
    """Refuse inputs and models that a member is not made for, and name the members that are."""
    kind = evaluator.kind
    if "image" in member.needs and kind.view != "picture":
        others = [n for n in names() if "image" not in get(n).needs]
        raise UnfitError(
            f"{member.name} explains images [N, C, H, W], and the input is a {kind.name} of shape "
            f"{list(evaluator.x.shape)}; members for it: {', '.join(others)}"
        )
    if "module" in member.needs and evaluator.module is None:
        others = [n for n in names() if "module" not in get(n).needs]
        raise UnfitError(
            f"{member.name} looks inside the model, so it needs a torch.nn.Module and not a plain "
            f"function; members that take one: {', '.join(others)}"
        )


def check_maps(label: str, maps: Any, x: Tensor, kind: Kind) -> Tensor:
    """Return what a member gave as maps of the shape of x, or with one channel."""
    if not isinstance(maps, Tensor):
        raise MemberError(f"{label} must return a tensor of maps, got {type(maps).__name__}")
    maps = maps.detach()
    axis = kind.channels or 1  # a series' members may give one map for all channels, too
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if maps.shape == (*x.shape[:axis], *x.shape[axis + 1 :]) != x.shape[:1]:
        maps = maps.unsqueeze(axis)
    single = kind.axes > 2 and maps.shape == one
    if single and kind.channels is None:
        maps = maps.expand_as(x)  # each channel of a series has features of its own
    elif maps.shape != x.shape and not single:
        raise MemberError(
            f"{label} must return maps of the input's shape {list(x.shape)}, or with one channel; "
            f"got {list(maps.shape)}"
        )
    # A copy where the member gave what others still use.
    own: Tensor = maps.to(x.device, x.dtype).clone(memory_format=torch.contiguous_format)
    return own


def find_mismatch(model: Any, x: Tensor) -> str:
    """Say how a model and its inputs do not fit together, where that can be seen."""
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if first is None or (first.device == x.device and first.dtype == x.dtype):
        single = find_kind(x) is SERIES and len(x) in (1, 3)
        return " (is the batch axis missing? a single image is x[None])" if single else ""
    return f" (the model is {first.dtype} on {first.device}: move one to the other)"
