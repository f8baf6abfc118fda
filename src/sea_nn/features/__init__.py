"""Features: what of an input is attributed. ``Features`` carries the idea through all rooms.

``features`` says what one position of a map is in each kind of input and which positions count as
one feature; ``segments`` finds features from data.
"""

from sea_nn.features.features import (
    IMAGE,
    KINDS,
    SERIES,
    SEVERAL,
    TABLE,
    TEXT,
    VIEWS,
    Features,
    Kind,
    attends,
    check_input,
    expand_mask,
    find_kind,
    find_patches,
    number_cells,
    read_tensor,
    scale,
    smooth,
    sum_cells,
)
from sea_nn.features.segments import group_columns, segment

__all__ = [
    "IMAGE",
    "KINDS",
    "SERIES",
    "SEVERAL",
    "TABLE",
    "TEXT",
    "VIEWS",
    "Features",
    "Kind",
    "attends",
    "check_input",
    "expand_mask",
    "find_kind",
    "find_patches",
    "group_columns",
    "number_cells",
    "read_tensor",
    "scale",
    "segment",
    "smooth",
    "sum_cells",
]
