"""All sets of pictures by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sea_bench.data import animals, attention, fashion, imagenet, mri, pasted
from sea_bench.data.files import SetInfo
from sea_bench.data.items import ImageSet, Split
from sea_nn.errors import InputError

READERS: dict[SetInfo, Callable[..., ImageSet]] = {
    fashion.FASHION: fashion.read_clothes,
    mri.BTD: mri.read_btd,
    animals.CUB: animals.read_birds,
    imagenet.TINY: imagenet.read_tiny_imagenet,
    imagenet.IMAGENET: imagenet.read_imagenet,
    animals.PETS: animals.read_pets,
    mri.LGG: mri.read_lgg,
    attention.ATTENTION: attention.read_attention,
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
    if split not in ("train", "test", "all"):
        raise InputError(f"split must be 'train', 'test' or 'all', not {split!r}.")
    found = READERS[info](place, **options)
    if split != "all":
        found = found.choose(lambda item: item.split == split)
    if not found:
        raise InputError(f"The data set {name} has no {split} items; try split='all'.")
    return found
