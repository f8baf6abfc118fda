"""Some inputs of an explanation: their checks, and texts, whose numbers of words differ."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sea_nn.members.checks import Check


def find_input(check: Check) -> int | None:
    """The number of the input that a check is about; None if it is about all of them.

    >>> find_input(Check("fail", "input 3", "the model does not react to it"))
    3
    """
    found = re.fullmatch(r"input (\d+)", check.subject)
    return None if found is None else int(found[1])


def pick_checks(checks: Sequence[Check], picked: Sequence[int]) -> tuple[Check, ...]:
    """The checks of the picked inputs under their new numbers, and those of all inputs."""
    kept = []
    for check in checks:
        i = find_input(check)
        if i is None:
            kept.append(check)
        elif i in picked:
            kept.append(replace(check, subject=f"input {picked.index(i)}"))
    return tuple(kept)


def trim_texts(e: Any, cut: dict[str, Any], picked: Iterable[int]) -> dict[str, Any]:
    """Parts of an explanation of texts without what only other texts have.

    These are positions behind all the picked texts, and answers that fill up their rows.
    """
    cut["texts"] = tuple(e.texts[i] for i in picked)
    if cut["asked"] is not None and cut["function"] is not None:
        cut["asked"] = cut["asked"].cut(cut["function"].n_answers)
    width = max(map(len, cut["texts"]))
    if width == e.order.shape[1]:
        return cut
    there = cut["order"] < width
    count = len(cut["texts"])
    order = cut["order"][there].view(count, width)
    maps = ("attribution", "against", "maps", "keep_map", "remove_map")
    trimmed = {name: cut[name][..., :width] for name in maps if cut[name] is not None}
    trimmed |= {"order": order, "gains": cut["gains"][there].view(count, width)}
    asked, f = cut.get("asked"), cut.get("function")
    if asked is not None:
        orders = {
            name: order[order < width].view(count, width)
            for name, order in (("keep", asked.keep), ("remove", asked.remove))
        }
        trimmed["asked"] = replace(asked, sets=asked.sets[..., :width], **orders)
    trimmed["function"] = None if f is None else f.cut(width)
    return {**cut, **trimmed, "feature_shape": (width,)}
