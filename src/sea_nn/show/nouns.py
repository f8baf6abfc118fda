"""What one feature is called: a pixel, a cell, a column, a value, a word."""

from sea_nn.explanation.explanation import Explanation

SINGLE = {
    "picture": ("pixel", "pixels"),
    "slices": ("voxel", "voxels"),
    "bars": ("column", "columns"),
    "lines": ("time step", "time steps"),
    "words": ("word", "words"),
}
SEVERAL = {
    "picture": ("cell", "cells"),
    "slices": ("cell", "cells"),
    "bars": ("group of columns", "groups of columns"),
    "lines": ("span of time", "spans of time"),
    "words": ("span of words", "spans of words"),
}
OTHER = ("feature", "features")


def name_features_of(e: Explanation) -> tuple[str, str]:
    """What to call one feature of an explanation, and several.

    Where several positions are one feature, it is a cell of a picture's grid, a region of its mask,
    a group of columns, a span of time.
    """
    if e.features is None:
        return SINGLE.get(e.view, OTHER)
    if e.view in ("picture", "slices") and len(e.feature_shape) == 1:
        return "region", "regions"
    return SEVERAL.get(e.view, OTHER)


def say_count(count: int, noun: str) -> str:
    """A count with its noun.

    >>> say_count(1, "input"), say_count(1200, "input")
    ('1 input', '1,200 inputs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
