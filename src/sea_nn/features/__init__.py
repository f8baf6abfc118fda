"""Features: what of an input is attributed. ``Features`` carries the idea through all rooms.

``kinds`` says what one position of a map is in each kind of input, ``groups`` which positions count
as one feature, ``segments`` makes superpixels for members.
"""

from sea_nn.features.columns import group_columns
from sea_nn.features.features import Features
from sea_nn.features.groups import (
    average_groups,
    cell_of,
    clip_grid,
    expand_mask,
    group_features,
    mark_groups,
    number_cells,
    spread,
    sum_cells,
)
from sea_nn.features.kinds import KINDS, Kind, find_kind
from sea_nn.features.segments import number_segments, segment, superpixels

__all__ = [
    "KINDS",
    "Features",
    "Kind",
    "average_groups",
    "cell_of",
    "clip_grid",
    "expand_mask",
    "find_kind",
    "group_columns",
    "group_features",
    "mark_groups",
    "number_cells",
    "number_segments",
    "segment",
    "spread",
    "sum_cells",
    "superpixels",
]
