"""All data sets by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from sea_bench.data import animals, attention, fashion, imagenet, mri, pasted, twice
from sea_bench.data.files import SetInfo
from sea_bench.data.items import ImageSet, Item, Split
from sea_nn.errors import InputError
from sea_nn.vision import shipped

FASHION = SetInfo(
    name="fashion",
    title="Fashion-MNIST, 28 x 28 grey pictures of clothes",
    folder="fashion_mnist",
    source="Debian's package dataset-fashion-mnist (apt install dataset-fashion-mnist), or "
    "https://github.com/zalandoresearch/fashion-mnist",
    layout="the four IDX files, gzipped or not",
    terms="MIT, copyright Zalando SE",
)


def load_fashion(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Load Fashion-MNIST as items; ``sea_bench.data.fashion`` has it as arrays."""
    items = []
    for side in ("train", "test"):
        if split in (side, "all"):
            images, labels = fashion.load_fashion(side, folder)
            items += [
                Item(f"{side}-{i}", partial(Image.fromarray, image), int(label), side)
                for i, (image, label) in enumerate(zip(images, labels, strict=True))
            ]
    return ImageSet(FASHION.name, tuple(items), shipped.CLASSES, FASHION.terms).split(split)


SETS: dict[str, tuple[SetInfo, Callable[..., ImageSet]]] = {
    info.name: (info, loader)
    for info, loader in (
        (FASHION, load_fashion),
        (mri.BTD, mri.load_btd),
        (animals.CUB, animals.load_cub20),
        (imagenet.TINY, imagenet.load_tiny_imagenet),
        (imagenet.IMAGENET, imagenet.load_imagenet),
        (animals.PETS, animals.load_pets),
        (mri.LGG, mri.load_lgg),
        (attention.ATTENTION, attention.load_human_attention),
        (attention.MASKED, attention.load_masked_folder),
        (pasted.SCENES, pasted.load_objects_on_scenes),
        (twice.OBJECTS, twice.load_objects_twice),
        (twice.SLICES, twice.load_slices_twice),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of all data sets, whether their files are here or not."""
    return tuple(SETS)


def describe(name: str) -> SetInfo:
    """Return what a set is, where it can be had, how it is laid out, and its terms."""
    return _find(name)[0]


def load(
    name: str, folder: str | Path | None = None, split: Split = "test", **options: Any
) -> ImageSet:
    """Load a data set by name.

    Its folder is by default the one under ``$SEA_NN_DATA``. The test split of a set without
    training pictures is all of it. Options are those of the set's own loader, such as ``seed``.

    Raises:
        InputError: there is no such set, or its files are missing; says how to get them.
    """
    _, loader = _find(name)
    if split not in ("train", "test", "all"):
        raise InputError(f"split must be 'train', 'test' or 'all', not {split!r}.")
    try:
        loaded = loader(folder, split, **options)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise InputError(f"The data set {name} has no such option: {error}.") from error
        raise
    if not loaded:
        raise InputError(f"The data set {name} has no {split} items; try split='all'.")
    return loaded


def _find(name: str) -> tuple[SetInfo, Callable[..., ImageSet]]:
    if name not in SETS:
        raise InputError(f"There is no data set {name!r}. Choose from: {', '.join(SETS)}.")
    return SETS[name]
