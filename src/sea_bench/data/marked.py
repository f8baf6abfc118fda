"""Photographs with what is marked in them: birds and pets in outline, and where people look."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sea_bench.data.files import Mask, Place, Reader, SetInfo, read_mask, read_number, read_side
from sea_bench.data.items import ImageSet, Item
from sea_nn.vision.images import load_image

CUB = SetInfo(
    name="cub20",
    title="20 bird classes of CUB-200-2011",
    folder="cub20",
    source="https://www.vision.caltech.edu/datasets/cub_200_2011 (images and segmentations)",
    layout="images/CLASS/NAME.jpg, masks/CLASS/NAME.png, classes.txt (lines 'number CLASS') and "
    "labels.csv (columns file, class_id, split, box_x, box_y, box_w, box_h, in pixels of the "
    "stored picture)",
    terms="Caltech; non-commercial research",
)
PETS = SetInfo(
    name="pets",
    title="Oxford-IIIT pets of breeds that are ImageNet classes, with trimaps",
    folder="pets_trimaps",
    source="https://www.robots.ox.ac.uk/~vgg/data/pets",
    layout="images/NAME.jpg, trimaps/NAME.png (1 pet, 2 background, 3 border) and labels.csv "
    "(columns file, breed, imagenet_index)",
    terms="CC BY-SA 4.0",
)
ATTENTION = SetInfo(
    name="human_attention",
    title="25 photographs with 7 maps of human attention each",
    folder="human_attention",
    source="https://github.com/czhao39/neurips-attention (Langlois et al., NeurIPS 2021)",
    layout="images/image_r_NUMBER.jpg and maps/imgNUMBER.npz, which holds one uint8 array a kind",
    terms="photographs CC BY 4.0; no licence stated for the maps",
)
KINDS = ("humanPC", "chainKDE", "discr", "freeFIX", "objFIX", "patchRate", "salFIX")
"""The kinds of map. ``humanPC`` is what the six others share: in every one of the 25 photographs
it is, to rounding, a weighted sum of them. The six come from localisation by memory, from
discrimination, from fixations (free viewing, object search, saliency search) and from rating
patches."""


def read_birds(place: Place) -> ImageSet:
    """The birds with their outlines, boxes and the official split."""
    lines = place.need("classes.txt").read_text(encoding="utf-8").splitlines()
    folders = dict(line.split(None, 1) for line in lines if line.strip())
    number = list(folders).index
    columns: dict[str, Reader] = {"file": str, "class_id": number, "split": read_side}
    columns |= {f"box_{key}": read_number for key in "xywh"}
    items = []
    for row in place.read_table("labels.csv", columns):
        x, y, width, height = (row[f"box_{key}"] for key in "xywh")
        file = Path(row["file"])
        read = partial(load_image, place.path / "images" / file)
        mask = partial(read_mask, place.path / "masks" / file.with_suffix(".png"))
        about: dict[str, Any] = {"masks": {"bird": mask}, "boxes": ((x, y, x + width, y + height),)}
        name = str(file.with_suffix(""))
        items.append(Item(name, read, row["class_id"], row["split"], **about))
    classes = tuple(name.partition(".")[2].replace("_", " ").strip() for name in folders.values())
    return ImageSet(tuple(items), classes)


def read_pets(place: Place) -> ImageSet:
    """The pets: masks ``pet`` (without the border) and ``border``, a strip along the outline.

    Labels count the breeds; ``imagenet`` is the ImageNet class index of the breed.
    """
    rows = place.read_table("labels.csv", {"file": str, "breed": str, "imagenet_index": int})
    breeds = sorted({row["breed"] for row in rows})
    items = []
    for row in rows:
        trimap = place.path / "trimaps" / Path(row["file"]).with_suffix(".png")
        masks = {"pet": partial(read_mask, trimap, 1), "border": partial(read_mask, trimap, 3)}
        read, label = partial(load_image, place.path / "images" / row["file"]), row["breed"]
        more: dict[str, Any] = {"masks": masks, "imagenet": row["imagenet_index"]}
        items.append(Item(Path(row["file"]).stem, read, breeds.index(label), **more))
    return ImageSet(tuple(items), tuple(breed.replace("_", " ") for breed in breeds))


def read_attention(place: Place) -> ImageSet:
    """The 25 photographs; ``item.view(preprocess, mask="freeFIX")`` picks a kind of map.

    The pictures have no labels. This is not the benchmark of Mohseni et al.
    """
    items = []
    for path in place.list_images("images"):
        maps = place.need(f"maps/img{path.stem.rpartition('_')[2]}.npz")
        masks = {kind: partial(_read_map, maps, kind) for kind in KINDS}
        items.append(Item(path.stem, partial(load_image, path), masks=masks))
    return ImageSet(tuple(items))


def _read_map(path: Path, kind: str) -> Mask:
    with np.load(path, allow_pickle=False) as maps:
        return np.asarray(maps[kind], np.float32) / np.float32(255)
