"""Objects pasted on scenes, to ask whether an object that does not matter gets attribution.

``load_objects_on_scenes`` makes such pictures from scenes and cut-outs. ``load_bam`` reads the
benchmark that had the idea (Yang and Kim, "BAM", 2019). They are different sets: results on the
first are not results on BAM.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sea_bench.data.files import SIDES, SetInfo, find_folder, list_images, need, read_table
from sea_bench.data.items import Box, ImageSet, Item, Split
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
BAM = SetInfo(
    name="bam",
    title="Benchmarking Attribution Methods: COCO objects on MiniPlaces scenes",
    folder="bam",
    source="https://github.com/google-research-datasets/bam, whose scripts build it",
    layout="obj/, scene/ and scene_only/, each with train/CLASS/OBJECT-SCENE-NUMBER.jpg, "
    "val/OBJECT-SCENE-NUMBER.jpg, val.txt and val_loc.txt",
    terms="Apache-2.0 for the scripts; COCO and MiniPlaces terms for the pictures",
)
# BAM scales an object's longer side to 1/sqrt(3) .. 1/sqrt(2) of the scene's; so do we.
_SIZES = (3**-0.5, 2**-0.5)
_SPLITS = {"train": "train", "val": "test"}


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
    """A cut-out pasted on a scene.

    Attributes:
        scene: file of the scene.
        cutout: file of the object, with transparency around it.
        size: the object's longer side, as a share of the scene's side of that direction.
        across, down: its place, from 0 (left, top) to 1 (right, bottom); it never sticks out.
    """

    scene: Path
    cutout: Path
    size: float
    across: float
    down: float

    def read(self) -> Image.Image:
        """Return the scene with the object."""
        scene = self.read_scene()
        cutout, corner = self._fit(scene.size)
        scene.paste(cutout, corner, cutout)
        return scene

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


def load_bam(
    folder: str | Path | None = None,
    split: Split = "test",
    label: Literal["scene", "object"] = "scene",
) -> ImageSet:
    """Load BAM as its scripts lay it out; its validation pictures are our "test" split.

    Boxes come from val_loc.txt (and loc.txt for training pictures), which lists top, left,
    bottom, right. The object outlines of BAM are stored as a pickle, which is not read: pickles
    can run code. ``item.plain`` is the picture of the same name in scene_only/.
    """
    if label not in ("scene", "object"):
        raise InputError(f"label must be 'scene' or 'object', not {label!r}.")
    place = find_folder(BAM, folder)
    root = need(place / ("obj" if label == "object" else "scene"), BAM)
    rows: list[tuple[str, Path, int]] = []
    if split in ("test", "all"):
        for line in need(root / "val.txt", BAM).read_text(encoding="utf-8").splitlines():
            file, _, number = line.rpartition(" ")
            rows.append(("test", root / "val" / file, int(number)))
    folders = sorted(path for path in root.glob("train/*") if path.is_dir())
    if split in ("train", "all"):
        need(root / "train", BAM)
        for index, own in enumerate(folders):
            rows.extend(("train", path, index) for path in list_images(own))
    names = {index: own.name for index, own in enumerate(folders)}
    for _, path, index in rows:
        names.setdefault(index, path.stem.split("-")[0 if label == "object" else 1])
    boxes = _read_places(root / "val_loc.txt") | _read_places(root / "loc.txt")
    items = []
    for side, path, index in rows:
        only = place / "scene_only"
        only = only / "val" if side == "test" else only / "train" / path.stem.split("-")[1]
        known: dict[str, Any] = {
            "split": side,
            "boxes": (boxes[path.name],) if path.name in boxes else (),
        }
        plain, alone = None, only / path.name
        if alone.is_file():
            read = partial(load_image, alone)
            scene = None if label == "object" else index
            plain = Item(f"{path.stem}-plain", read, scene, path=alone, **known)
        read = partial(load_image, path)
        items.append(Item(path.stem, read, index, plain=plain, path=path, **known))
    classes = tuple(names.get(k, f"class {k}") for k in range(max(names, default=-1) + 1))
    return ImageSet(BAM.name, tuple(items), classes, BAM.terms).split(split)


def _read_places(path: Path) -> dict[str, Box]:
    """Read lines "file top,left,bottom,right" into boxes."""
    boxes: dict[str, Box] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            file, _, numbers = line.partition(" ")
            top, left, bottom, right = (float(number) for number in numbers.split(","))
            boxes[file] = (left, top, right, bottom)
    return boxes
