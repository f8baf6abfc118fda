"""Objects pasted on scenes, to ask whether an object that does not matter gets attribution.

The idea is that of BAM (Yang and Kim, 2019); results on these pictures are not results on BAM.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sea_bench.data.files import SIDES, SetInfo, find_folder, read_table
from sea_bench.data.items import ImageSet, Item, Split
from sea_nn.errors import InputError
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
# BAM scales an object's longer side to 1/sqrt(3) .. 1/sqrt(2) of the scene's; so do we.
_SIZES = (3**-0.5, 2**-0.5)


def load_objects_on_scenes(
    folder: str | Path | None = None,
    split: Split = "test",
    label: Literal["scene", "object"] = "scene",
    per_scene: int = 1,
    seed: int = 0,
) -> ImageSet:
    """Paste an object of the same split on each scene, at random by ``seed``.

    The seed decides object, size and place; an item does not depend on how many are made
    ``per_scene``. The label says the kind of scene or the kind of object.

    Items of one ``group`` show the same scene, or, if objects are the labels, the same object.
    ``item.plain`` is the scene alone; its mask, like that of the item itself, is the outline of
    the pasted object.
    """
    if label not in ("scene", "object"):
        raise InputError(f"label must be 'scene' or 'object', not {label!r}.")
    place = find_folder(SCENES, folder)
    scenes = read_table(place / "scenes.csv", {"file": str, "split": SIDES, "scene": str}, SCENES)
    objects = read_table(
        place / "objects.csv", {"file": str, "split": SIDES, "object": str}, SCENES
    )
    classes = sorted({row[label] for row in (scenes if label == "scene" else objects)})
    items = []
    for number, scene in enumerate(scenes):
        choices = [row for row in objects if row["split"] == scene["split"]]
        if not choices:
            raise InputError(f"{place / 'objects.csv'} has no object of split {scene['split']!r}.")
        for copy in range(per_scene):
            generator = np.random.default_rng([seed, number, copy])
            chosen = choices[generator.integers(len(choices))]
            paste = Paste(
                place / scene["file"],
                place / chosen["file"],
                size=float(generator.uniform(*_SIZES)),
                across=float(generator.uniform()),
                down=float(generator.uniform()),
            )
            stem = f"{scene['split']}-{scene['scene']}-{Path(scene['file']).stem}"
            name = f"{stem}-{chosen['object']}-{copy}"
            group = stem if label == "scene" else chosen["file"]
            masks = {"object": paste.read_mask}
            number_of = classes.index((scene if label == "scene" else chosen)[label])
            own = None if label == "object" else number_of
            side = (scene["split"], group, masks)
            plain = Item(f"{name}-plain", paste.read_scene, own, *side, path=paste.scene)
            items.append(Item(name, paste.read, number_of, *side, plain=plain))
    return ImageSet(SCENES.name, tuple(items), tuple(classes), SCENES.terms).split(split)


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

    def read(self) -> Image.Image:
        """Return the scene with the object."""
        return self.add_to(self.read_scene())

    def add_to(self, picture: Image.Image) -> Image.Image:
        """Paste the object on a picture, and return it."""
        cutout, corner = self._fit(picture.size)
        picture.paste(cutout, corner, cutout)
        return picture

    def read_scene(self) -> Image.Image:
        """Return the scene without the object."""
        return load_image(self.scene)

    def read_mask(self) -> NDArray[np.float32]:
        """Return 1 where the object covers the scene by half or more, [height, width]."""
        scene = self.read_scene()
        cutout, (left, top) = self._fit(scene.size)
        mask = np.zeros((scene.height, scene.width), np.float32)
        covered = np.asarray(cutout.getchannel("A")) >= 128
        mask[top : top + cutout.height, left : left + cutout.width] = covered
        return mask

    def _fit(self, size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int]]:
        """Return the object as large as it is pasted, and its top left corner."""
        cutout = _read_cutout(self.cutout)
        scale = self.size / max(cutout.width / size[0], cutout.height / size[1])
        width, height = (max(1, round(side * scale)) for side in cutout.size)
        corner = round(self.across * (size[0] - width)), round(self.down * (size[1] - height))
        return cutout.resize((width, height), Image.Resampling.BILINEAR), corner


@lru_cache(maxsize=64)
def _read_cutout(path: Path) -> Image.Image:
    # load_image would lay the object over white.
    try:
        with Image.open(path) as image:
            return image.convert("RGBA")
    except (OSError, ValueError) as error:
        raise InputError(f"The object {path} cannot be read ({error}).") from error
