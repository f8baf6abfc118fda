"""Birds and pets with outlines: 20 classes of CUB-200-2011, and Oxford-IIIT pets."""

from functools import partial
from pathlib import Path
from typing import Any

from sea_bench.data.files import Place, Reader, SetInfo, read_mask, read_number, read_side
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
