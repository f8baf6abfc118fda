"""ImageNet validation pictures with boxes, and Tiny ImageNet, whose classes are ImageNet's."""

import io
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path

from PIL import Image

from sea_bench.data.files import Place, Reader, SetInfo, read_number
from sea_bench.data.items import Box, ImageSet, Item
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image
from sea_nn.vision.names import load_imagenet_labels

IMAGENET = SetInfo(
    name="imagenet",
    title="ILSVRC 2012 validation pictures with boxes",
    folder="imagenet_val_boxes",
    source="https://image-net.org (ILSVRC 2012, validation images and bounding boxes)",
    layout="images/, labels.csv (columns file, wnid, class_index, name) and boxes.csv (columns "
    "file, x1, y1, x2, y2, in pixels of the stored picture)",
    terms="ImageNet terms of access; non-commercial research",
)
TINY = SetInfo(
    name="tiny_imagenet",
    title="Tiny ImageNet validation pictures, 64 x 64, with boxes",
    folder="tiny_imagenet",
    source="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    layout="wnids.txt, words.txt, val_annotations.txt and the pictures in images/ or in a .zip "
    "file; or the unpacked archive as it is (its val/ is found)",
    terms="ImageNet terms of access; non-commercial research",
)


def read_imagenet(place: Place) -> ImageSet:
    """Validation pictures with all their boxes; the label is the ImageNet class index."""
    boxes: dict[str, list[Box]] = defaultdict(list)
    corners = dict.fromkeys(("x1", "y1", "x2", "y2"), read_number)
    columns: dict[str, Reader] = {"file": str, **corners}
    for row in place.read_table("boxes.csv", columns):
        boxes[row["file"]].append((row["x1"], row["y1"], row["x2"], row["y2"]))
    items = []
    for row in place.read_table("labels.csv", {"file": str, "class_index": int}):
        file, label = row["file"], row["class_index"]
        read = partial(load_image, place.path / "images" / file)
        items.append(Item(Path(file).stem, read, label, boxes=tuple(boxes[file]), imagenet=label))
    return ImageSet(tuple(items), load_imagenet_labels())


def read_tiny_imagenet(place: Place) -> ImageSet:
    """The validation pictures; labels follow wnids.txt, ``imagenet`` is ImageNet's index.

    The annotations count boxes by their first and last pixel; here right and bottom are edges.
    """
    wnids = place.need("wnids.txt").read_text(encoding="utf-8").split()
    lines = place.need("words.txt").read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    index = index_wnids({wnid: words.get(wnid, "") for wnid in wnids})
    inner = "val/" if (place.path / "val" / "val_annotations.txt").is_file() else ""
    archive = next(iter(sorted((place.path / inner).glob("*.zip"))), None)
    items = []
    path = place.need(f"{inner}val_annotations.txt")
    for line in path.read_text(encoding="utf-8").splitlines():
        file, wnid, *corners = line.split("\t")
        x1, y1, x2, y2 = map(read_number, corners)
        if archive is None:
            read = partial(load_image, place.path / inner / "images" / file)
        else:
            read = partial(read_zipped, archive, file)
        box = (x1, y1, x2 + 1, y2 + 1)
        label = wnids.index(wnid)
        items.append(Item(Path(file).stem, read, label, boxes=(box,), imagenet=index[wnid]))
    return ImageSet(tuple(items), tuple(load_imagenet_labels()[index[wnid]] for wnid in wnids))


def index_wnids(words: Mapping[str, str]) -> dict[str, int]:
    """Find the ImageNet class index of each wnid from its words, such as "lemon" or "reel, spool".

    The first word is looked up among the 1000 class names. Two classes may share it (a Cardigan
    is also a dog); since indices follow the order of the wnids, the neighbours decide.

    >>> index_wnids({"n02963159": "cardigan", "n02950826": "cannon"})
    {'n02950826': 471, 'n02963159': 474}
    """
    candidates = defaultdict(list)
    for number, label in enumerate(load_imagenet_labels()):
        candidates[label.partition(" (")[0].lower()].append(number)
    index: dict[str, int] = {}
    last = -1
    for wnid in sorted(words):
        name = words[wnid].partition(",")[0].strip().lower()
        later = [number for number in candidates[name] if number > last]
        if not later:
            raise InputError(f"{wnid} ({words[wnid]}) is not one of the 1000 ImageNet classes.")
        index[wnid] = last = later[0]
    return index


@lru_cache(maxsize=2)
def _open_archive(path: Path) -> tuple[zipfile.ZipFile, dict[str, str]]:
    """A zip file, in memory so that no file stays open, and its members by their last name."""
    archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    return archive, {Path(member).name: member for member in archive.namelist()}


def read_zipped(path: Path, name: str) -> Image.Image:
    """Read one picture of a zip file, wherever in it the file of that name lies."""
    archive, members = _open_archive(path)
    return load_image(io.BytesIO(archive.read(members[name])))
