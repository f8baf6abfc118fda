"""Some of an explanation: some of its inputs, or one of several inputs that it is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.fields import FIELDS, show_input
from sea_nn.members.run import Check


def cut_inputs(e: Any, picked: Sequence[int]) -> dict[str, Any]:
    """The attributes in which the explanation of the picked inputs differs from that of all."""
    rows = torch.tensor(picked)
    cut: dict[str, Any] = {"checks": pick_checks(e.checks, picked), "members": ()}
    for name, field in FIELDS.items():
        head, _, tail = name.partition(".")
        value = getattr(e, head)
        if tail and value is not None:
            cut[head] = value.rows(rows)
        elif value is not None and (field.shape.startswith("N") or len(value) > 1):
            cut[head] = value[rows.to(value.device)]
    if e.function is not None:
        cut["function"] = e.function.rows(rows)
    for name in ("labels", "texts"):
        names = getattr(e, name)
        if names is not None:
            cut[name] = tuple(names[i] for i in picked)
    return cut if e.texts is None else _trim_texts(cut)


def pick_checks(checks: Sequence[Check], picked: Sequence[int]) -> tuple[Check, ...]:
    """The checks of the picked inputs under their new numbers, and those of all inputs."""
    kept = []
    for check in checks:
        if check.input is None:
            kept.append(check)
        elif check.input in picked:
            kept.append(replace(check, subject=f"input {picked.index(check.input)}"))
    return tuple(kept)


def _trim_texts(cut: dict[str, Any]) -> dict[str, Any]:
    """Parts of an explanation of texts without what only other texts have.

    These are positions behind all the picked texts, and answers that fill up their rows.
    """
    width, count = max(map(len, cut["texts"])), len(cut["texts"])
    there = cut["order"] < width

    def keep(order: Tensor) -> Tensor:
        return order[order < width].view(count, width)

    for name in ("attribution", "against", "maps", "keep_map", "remove_map"):
        if cut.get(name) is not None:
            cut[name] = cut[name][..., :width]
    cut |= {"order": keep(cut["order"]), "gains": cut["gains"][there].view(count, width)}
    if cut.get("asked") is not None:
        asked = cut["asked"].cut(cut["function"].n_answers)
        orders = {"keep": keep(asked.keep), "remove": keep(asked.remove)}
        cut["asked"] = replace(asked, sets=asked.sets[..., :width], **orders)
        cut["function"] = cut["function"].cut(width)
    return cut | {"feature_shape": (width,)}


def cut_part(e: Any, which: int | str) -> dict[str, Any]:
    """The attributes in which the explanation of one of several inputs differs from that of all."""
    names = [part.name for part in e.parts]
    number = names.index(str(which)) if which in names else which
    if not isinstance(number, int) or not 0 <= number < len(names):
        known = ", ".join(names) or "none: this is one input"
        raise InputError(f"the parts are {known}; got {which!r}")
    part = e.parts[number]
    start = sum(math.prod(p.shape) for p in e.parts[:number])
    stop = start + math.prod(part.shape)

    def cut(maps: Tensor | None, average: bool = False) -> Any:
        """The part of maps, its channels summed or averaged to one that stands for all."""
        if maps is None:
            return None
        own = maps[..., start:stop].reshape(*maps.shape[:-1], *part.shape)
        if part.channels is None:
            return own
        axis = maps.ndim - 2 + part.channels
        return own.mean(axis) if average else own.sum(axis).unsqueeze(1)

    groups = torch.arange(e.shape[0])[None] if e.features is None else e.features.cpu()
    groups = groups[:, start:stop].reshape(1, *part.shape)
    if part.channels is not None:
        groups = groups.select(part.channels, 0)
    own, numbers = groups.unique(return_inverse=True)
    n = len(own)
    inside = torch.isin(e.order, own.to(e.order.device))
    place = torch.full((e.order.shape[1],), -1)
    place[own] = torch.arange(n)
    single = n == numbers.numel()
    values = e.values[:, start:stop].reshape(len(e), *part.shape)
    empty = ("function", "predict_error", "curve", "asked", "feature_names")
    return {
        **{name: cut(getattr(e, name)) for name in ("attribution", "against")},
        **{name: cut(getattr(e, name)) for name in ("keep_map", "remove_map")},
        **dict.fromkeys(empty),
        "maps": cut(e.maps, average=True),
        "order": place.to(e.order.device)[e.order[inside]].view(len(e), n),
        "gains": e.gains[inside].view(len(e), n),
        "feature_shape": tuple(numbers.shape[1:]) if single else (n,),
        "features": None if single else numbers,
        "images": show_input(values) if part.view == "picture" else None,
        "values": None if part.channels is not None else values,
        "members": (),
        "kind": part.kind,
        "view": part.view,
        "parts": (),
    }
