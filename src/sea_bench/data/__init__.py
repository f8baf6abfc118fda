"""Data sets: where their files lie, and readers for them.

Nothing here downloads anything. Sets that cannot be shipped are looked for in the folder that
the environment variable ``SEA_NN_DATA`` names; a missing one raises an error that says where to
get it and how to lay it out.

>>> names()[:4]
('fashion', 'btd', 'cub20', 'tiny_imagenet')
>>> describe("cub20").terms
'Caltech; non-commercial research'

After ``birds = load("cub20")``, ``birds[0].view(preprocess)`` has the model's input, the picture
to draw on, the mask and the boxes, all lined up.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sea_bench.data.items import Box, ImageSet, Item, Split, View
from sea_nn.vision.folders import DATA_VARIABLE, find_data

if TYPE_CHECKING:
    from sea_bench.data.files import SetInfo

__all__ = [
    "DATA_VARIABLE",
    "Box",
    "ImageSet",
    "Item",
    "Split",
    "View",
    "describe",
    "find_data",
    "load",
    "names",
]

# The readers need the names above, so the catalogue of them is imported when it is asked for.


def names() -> tuple[str, ...]:
    """Return the names of all data sets, whether their files are here or not."""
    from sea_bench.data.catalogue import SETS

    return tuple(SETS)


def describe(name: str) -> "SetInfo":
    """Return what a set is, where it can be had, how it is laid out, and its terms."""
    from sea_bench.data.catalogue import find_set

    return find_set(name)[0]


def load(
    name: str, folder: str | Path | None = None, split: Split = "test", **options: Any
) -> ImageSet:
    """Load a data set by name.

    Args:
        name: one of ``names()``.
        folder: the set's own folder; by default the one under ``$SEA_NN_DATA``.
        split: "test" (for sets without training pictures, all of them), "train" or "all".
        options: of the set's own loader, such as ``seed`` for "btd" and "objects_on_scenes".

    Raises:
        InputError: there is no such set, or its files are missing; says how to get them.
    """
    from sea_bench.data.catalogue import load_set

    return load_set(name, folder, split, options)
