"""What one feature is called: a pixel, a cell, a column, a time step, a word."""

from sea_nn.explanation.explanation import Explanation

WORDS = {
    "image": ("pixel", "pixels"),
    "table": ("column", "columns"),
    "series": ("time step", "time steps"),
    "text": ("word", "words"),
}
GROUPS = {
    "image": ("cell", "cells"),
    "table": ("group of columns", "groups of columns"),
    "series": ("span of time", "spans of time"),
}


def name_features_of(e: Explanation) -> tuple[str, str]:
    """What to call one feature of an explanation, and several.

    A series' single values are time steps; where several positions are one feature, it is a cell of
    an image's grid, a region of its mask, a group of columns, a span of time.
    """
    if e.features is None:
        return WORDS.get(e.kind, ("feature", "features"))
    if e.kind == "image" and len(e.feature_shape) == 1:
        return "region", "regions"
    return GROUPS.get(e.kind, ("feature", "features"))


def say_count(count: int, noun: str) -> str:
    """A count with its noun.

    >>> say_count(1, "input"), say_count(1200, "input")
    ('1 input', '1,200 inputs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
