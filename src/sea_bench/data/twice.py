"""Pictures that show the same thing twice, left and right: the second copy says nothing new."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sea_bench.data import mri, pasted
from sea_bench.data.files import find_folder, read_table
from sea_bench.data.items import ImageSet, Item, MaskReader, Split

OBJECTS = replace(
    pasted.SCENES, name="objects_twice", title="birds, cats and dogs pasted twice on scenes"
)
SLICES = replace(mri.LGG, name="lgg_twice", title="MRI slices of gliomas, each twice side by side")
SIZE = 0.45  # of an object's longer side in the scene's: two fit beside each other


def load_objects_twice(
    folder: str | Path | None = None, split: Split = "test", seed: int = 0
) -> ImageSet:
    """Paste one object of the same split on each scene, at the left and at the right edge.

    The masks are "first" and "second", the two copies. There is no label: a picture is explained
    for the ImageNet class that is predicted.
    """
    place = find_folder(OBJECTS, folder)
    scenes = read_table(place / "scenes.csv", {"file": str, "split": str}, OBJECTS)
    objects = read_table(place / "objects.csv", {"file": str, "split": str}, OBJECTS)
    items = []
    for number, scene in enumerate(scenes):
        generator = np.random.default_rng([seed, number])
        choices = [row for row in objects if row["split"] == scene["split"]]
        chosen = choices[generator.integers(len(choices))]
        down = float(generator.uniform())
        left, right = (
            pasted.Paste(place / scene["file"], place / chosen["file"], SIZE, across, down)
            for across in (0.0, 1.0)
        )
        name = f"{scene['split']}-{number}-{Path(chosen['file']).stem}"
        masks: dict[str, MaskReader] = {"first": left.read_mask, "second": right.read_mask}
        items.append(Item(name, _Both(left, right), None, scene["split"], masks=masks))
    return ImageSet(OBJECTS.name, tuple(items), (), OBJECTS.terms).split(split)


def load_slices_twice(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Show every slice with a tumour twice, side by side on black; the masks are the tumours."""
    slices = mri.load_lgg(folder, split)
    items = tuple(
        Item(
            item.name,
            _Beside(item),
            item.label,
            item.split,
            item.group,
            {"first": _BesideMask(item, 0), "second": _BesideMask(item, 1)},
        )
        for item in slices
        if item.label == 1
    )
    return ImageSet(SLICES.name, items, mri.CLASSES, SLICES.terms)


class _Both:
    """Reads a scene with two objects."""

    def __init__(self, left: pasted.Paste, right: pasted.Paste) -> None:
        self.left, self.right = left, right

    def __call__(self) -> Image.Image:
        return self.right.add_to(self.left.read())


class _Beside:
    """Reads a picture twice, side by side in a black square."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def __call__(self) -> Image.Image:
        picture = self.item.read()
        side = 2 * picture.width
        whole = Image.new(picture.mode, (side, side))
        for left in (0, picture.width):
            whole.paste(picture, (left, (side - picture.height) // 2))
        return whole


class _BesideMask:
    """Reads the mask of one of the two."""

    def __init__(self, item: Item, place: int) -> None:
        self.item, self.place = item, place

    def __call__(self) -> NDArray[np.float32]:
        mask = self.item.read_mask()
        height, width = mask.shape
        whole = np.zeros((2 * width, 2 * width), np.float32)
        top, left = (2 * width - height) // 2, self.place * width
        whole[top : top + height, left : left + width] = mask
        return whole
