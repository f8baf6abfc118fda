"""Objects pasted on scenes: once, to ask whether what does not matter gets attribution, and twice.

The idea of the first is that of BAM (Yang and Kim, 2019); results on these pictures are not results
on BAM. Of two equal objects, and of a brain's slice shown twice, the second says nothing new.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sea_bench.data import mri
from sea_bench.data.files import Mask, Place, SetInfo, read_side
from sea_bench.data.items import ImageSet, Item
from sea_nn.vision.images import load_image

SCENES = SetInfo(
    name="objects_on_scenes",
    title="birds, cats and dogs pasted on scenes of six kinds",
    folder="objects_on_scenes",
    source="Intel image classification (https://www.kaggle.com/puneet6060/"
    "intel-image-classification) for scenes; cut-outs from CUB-200-2011 and Oxford-IIIT pets",
    layout="scenes.csv (columns file, split, scene), objects.csv (columns file, split, object) and "
    "the files they name; objects are PNG files with transparency",
    terms="those of Intel scenes, CUB and Oxford pets; non-commercial research",
)
OBJECTS = replace(SCENES, name="objects_twice", title="birds, cats and dogs pasted twice on scenes")
SLICES = replace(mri.LGG, name="lgg_twice", title="MRI slices of gliomas, each twice side by side")
SIZES = (3**-0.5, 2**-0.5)
"""BAM scales an object's longer side to these shares of the scene's; so do we."""
SIZE_OF_TWO = 0.45  # two fit beside each other


@dataclass(frozen=True)
class Paste:
    """A cut-out, with transparency around it, pasted on a scene.

    Its longer side is a share of the scene's side of that direction, ``size``; its place runs from
    0 (left, top) to 1 (right, bottom), so that it never sticks out.
    """

    scene: Path
    cutout: Path
    size: float
    across: float
    down: float

    def read(self, picture: Image.Image | None = None) -> Image.Image:
        """Return the scene, or a picture of it that is given, with the object."""
        picture = picture or load_image(self.scene)
        cutout, corner = self._fit(picture.size)
        picture.paste(cutout, corner, cutout)
        return picture

    def read_mask(self) -> Mask:
        """Return 1 where the object covers the scene by half or more, [height, width]."""
        mask = Image.new("L", load_image(self.scene).size)
        cutout, corner = self._fit(mask.size)
        mask.paste(cutout.getchannel("A"), corner)
        return (np.asarray(mask) >= 128).astype(np.float32)

    def _fit(self, size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int]]:
        """Return the object as large as it is pasted, and its top left corner."""
        cutout = _read_cutout(self.cutout)
        scale = self.size / max(cutout.width / size[0], cutout.height / size[1])
        width, height = (max(1, round(side * scale)) for side in cutout.size)
        corner = round(self.across * (size[0] - width)), round(self.down * (size[1] - height))
        return cutout.resize((width, height), Image.Resampling.BILINEAR), corner


@lru_cache(maxsize=64)
def _read_cutout(path: Path) -> Image.Image:
    with Image.open(path) as image:  # load_image would lay the object over white
        return image.convert("RGBA")


def _list_pairs(
    place: Place, copies: int | None
) -> Iterator[tuple[int, int, dict[str, Any], dict[str, Any], np.random.Generator]]:
    """Scenes by number and copy, an object of the same split for each, and what draws further.

    The draws of one do not depend on how many there are; without copies they differ from those of
    a first copy.
    """
    scenes = place.read_table("scenes.csv", {"file": str, "split": read_side, "scene": str})
    objects = place.read_table("objects.csv", {"file": str, "split": read_side, "object": str})
    for number, scene in enumerate(scenes):
        choices = [row for row in objects if row["split"] == scene["split"]]
        for copy in range(copies or 1):
            generator = np.random.default_rng([0, number, copy] if copies else [0, number])
            chosen = choices[generator.integers(len(choices))]
            yield number, copy, scene, chosen, generator


def read_objects_on_scenes(place: Place, per_scene: int = 1) -> ImageSet:
    """An object on each scene; the label is the kind of scene.

    Items of one ``group`` show the same scene. ``item.plain`` is the scene alone; its mask, like
    that of the item itself, is the outline of the pasted object.
    """
    pairs = list(_list_pairs(place, per_scene))
    classes = tuple(sorted({scene["scene"] for _, _, scene, _, _ in pairs}))
    items = []
    for _, copy, scene, chosen, draw in pairs:
        path = place.path / scene["file"]
        size, across, down = draw.uniform(*SIZES), draw.uniform(), draw.uniform()
        paste = Paste(path, place.path / chosen["file"], size, across, down)
        group = f"{scene['split']}-{scene['scene']}-{path.stem}"
        name = f"{group}-{chosen['object']}-{copy}"
        about = (classes.index(scene["scene"]), scene["split"], group, {"object": paste.read_mask})
        plain = Item(f"{name}-plain", partial(load_image, path), *about)
        items.append(Item(name, paste.read, *about, plain=plain))
    return ImageSet(tuple(items), classes)


def read_objects_twice(place: Place) -> ImageSet:
    """One object on each scene, at the left and at the right edge.

    The masks are "first" and "second", the two copies. There is no label: a picture is explained
    for the ImageNet class that is predicted.
    """
    items = []
    for number, _, scene, chosen, draw in _list_pairs(place, None):
        paths = place.path / scene["file"], place.path / chosen["file"]
        paste = Paste(*paths, SIZE_OF_TWO, 0.0, draw.uniform())
        both = (paste, replace(paste, across=1.0))
        masks = {name: one.read_mask for name, one in zip(("first", "second"), both, strict=True)}
        name = f"{scene['split']}-{number}-{Path(chosen['file']).stem}"
        items.append(Item(name, partial(_read_both, *both), None, scene["split"], masks=masks))
    return ImageSet(tuple(items))


def _read_both(left: Paste, right: Paste) -> Image.Image:
    return right.read(left.read())


def read_slices_twice(place: Place) -> ImageSet:
    """Every slice with a tumour twice, side by side on black; the masks are the tumours."""
    slices, items = mri.read_lgg(place), []
    for item in slices.choose(lambda item: item.label == 1):
        sides = {"first": (0,), "second": (1,)}
        masks = {name: partial(_read_mask_beside, item, at) for name, at in sides.items()}
        items.append(replace(item, read=partial(_read_beside, item), masks=masks))
    return ImageSet(tuple(items), slices.classes)


def _lay_beside(picture: Image.Image, sides: Sequence[int] = (0, 1)) -> Image.Image:
    """A picture at the left (0), at the right (1) or at both sides of a black square."""
    width, height = picture.size
    whole = Image.new(picture.mode, (2 * width, 2 * width))
    for side in sides:
        whole.paste(picture, (side * width, (2 * width - height) // 2))
    return whole


def _read_beside(item: Item) -> Image.Image:
    return _lay_beside(item.read())


def _read_mask_beside(item: Item, sides: Sequence[int]) -> Mask:
    return np.asarray(_lay_beside(Image.fromarray(item.read_mask()), sides))
