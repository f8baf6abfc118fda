"""Data sets by name: where their files lie, and readers for them.

Nothing here downloads anything. Sets that cannot be shipped are looked for in the folder that
the environment variable ``SEA_NN_DATA`` names; a missing one raises an error that says where to
get it and how to lay it out.

>>> describe("cub20").terms
'Caltech; non-commercial research'

After ``birds = load("cub20")``, ``birds[0].view(preprocess)`` has the model's input, the mask
and the boxes, all lined up.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sea_bench.data import fashion, imagenet, marked, mri, pasted
from sea_bench.data.files import SetInfo
from sea_bench.data.items import ImageSet, Item, Split
from sea_nn.errors import InputError

__all__ = ["SETS", "ImageSet", "Item", "Split", "describe", "load"]

READERS: dict[SetInfo, Callable[..., ImageSet]] = {
    fashion.FASHION: fashion.read_clothes,
    mri.BTD: mri.read_btd,
    marked.CUB: marked.read_birds,
    imagenet.TINY: imagenet.read_tiny_imagenet,
    imagenet.IMAGENET: imagenet.read_imagenet,
    marked.PETS: marked.read_pets,
    mri.LGG: mri.read_lgg,
    marked.ATTENTION: marked.read_attention,
    pasted.SCENES: pasted.read_objects_on_scenes,
    pasted.OBJECTS: pasted.read_objects_twice,
    pasted.SLICES: pasted.read_slices_twice,
}
SETS = {info.name: info for info in READERS}


def describe(name: str) -> SetInfo:
    """Return what a set is, where it can be had, how it is laid out, and its terms."""
    if name not in SETS:
        raise InputError(f"There is no data set {name!r}. Choose from: {', '.join(SETS)}.")
    return SETS[name]


def load(
    name: str, folder: str | Path | None = None, split: Split = "test", **options: Any
) -> ImageSet:
    """Load a data set by name.

    Its folder is by default the one under ``$SEA_NN_DATA``. The test split of a set without
    training pictures is all of it. Options are those of the set's own reader.

    Raises:
        InputError: there is no such set, or its files are missing; says how to get them.
    """
    info = describe(name)
    place = info.find(folder)
    found = READERS[info](place, **options)
    if split != "all":
        found = found.choose(lambda item: item.split == split)
    if not found:
        raise InputError(f"The data set {name} has no {split} items; try split='all'.")
    return found
