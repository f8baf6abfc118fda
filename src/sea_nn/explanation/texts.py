"""Explanations of texts, whose numbers of words differ."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any


def trim_texts(e: Any, cut: dict[str, Any], picked: Iterable[int]) -> dict[str, Any]:
    """Parts of an explanation of texts without positions that are behind all picked texts."""
    cut["texts"] = tuple(e.texts[i] for i in picked)
    width = max(map(len, cut["texts"]))
    if width == e.order.shape[1]:
        return cut
    there = cut["order"] < width
    count = len(cut["texts"])
    order = cut["order"][there].view(count, width)
    trimmed = {name: cut[name][..., :width] for name in ("attribution", "maps")}
    trimmed |= {"order": order, "gains": cut["gains"][there].view(count, width)}
    f = cut.get("function")
    if f is not None:
        weight, against = f.weight[:, :width], f.against[:, :width]
        trimmed["function"] = replace(f, weight=weight, against=against)
    return {**cut, **trimmed, "feature_shape": (width,)}
