"""ImageNet validation pictures with boxes, and Tiny ImageNet, whose classes are ImageNet's."""

import io
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path

from PIL import Image

from sea_bench.data.files import (
    Kind,
    SetInfo,
    find_folder,
    need,
    read_field,
    read_number,
    read_table,
)
from sea_bench.data.items import Box, ImageSet, Item, Split
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image
from sea_nn.vision.models import load_imagenet_labels

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


def load_imagenet(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Load validation pictures with all their boxes; the label is the ImageNet class index."""
    place = find_folder(IMAGENET, folder)
    boxes: dict[str, list[Box]] = defaultdict(list)
    corners = ("x1", "y1", "x2", "y2")
    columns: dict[str, Kind] = {"file": str, **dict.fromkeys(corners, read_number)}
    for row in read_table(place / "boxes.csv", columns, IMAGENET):
        x1, y1, x2, y2 = (row[key] for key in corners)
        boxes[row["file"]].append((x1, y1, x2, y2))
    items = tuple(
        Item(
            name=Path(row["file"]).stem,
            image=partial(load_image, place / "images" / row["file"]),
            label=row["class_index"],
            boxes=tuple(boxes[row["file"]]),
            imagenet=row["class_index"],
            path=place / "images" / row["file"],
        )
        for row in read_table(place / "labels.csv", {"file": str, "class_index": int}, IMAGENET)
    )
    return ImageSet(IMAGENET.name, items, load_imagenet_labels(), IMAGENET.terms).split(split)


def load_tiny_imagenet(folder: str | Path | None = None, split: Split = "test") -> ImageSet:
    """Load the validation pictures; labels follow wnids.txt, ``imagenet`` is ImageNet's index.

    The annotations count boxes by their first and last pixel; here right and bottom are edges.
    """
    place = find_folder(TINY, folder)
    inner = place / "val" if (place / "val" / "val_annotations.txt").is_file() else place
    wnids = need(place / "wnids.txt", TINY).read_text(encoding="utf-8").split()
    lines = need(place / "words.txt", TINY).read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    if missing := [wnid for wnid in wnids if wnid not in words]:
        raise InputError(f"{place / 'words.txt'} does not name {', '.join(missing[:5])}.")
    index = index_wnids({wnid: words[wnid] for wnid in wnids})
    archive = next(iter(sorted(inner.glob("*.zip"))), None)
    pictures = None if archive else need(inner / "images", TINY)
    items = []
    path = need(inner / "val_annotations.txt", TINY)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) < 6 or fields[1] not in index:
            raise InputError(
                f"Line {number} of {path} should be a file, a wnid of wnids.txt and x1, y1, x2, "
                f"y2, between tabs; it is {line!r}."
            )
        file, wnid = fields[:2]
        where = f"Line {number} of {path}: a box"
        x1, y1, x2, y2 = (read_field(field, read_number, where) for field in fields[2:6])
        read = (
            partial(read_zipped, archive, file)
            if archive
            else partial(load_image, inner / "images" / file)
        )
        items.append(
            Item(
                name=Path(file).stem,
                image=read,
                label=wnids.index(wnid),
                boxes=((x1, y1, x2 + 1, y2 + 1),),
                imagenet=index[wnid],
                path=pictures / file if pictures else None,
            )
        )
    classes = tuple(load_imagenet_labels()[index[wnid]] for wnid in wnids)
    return ImageSet(TINY.name, tuple(items), classes, TINY.terms).split(split)


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
def _open_archive(path: Path) -> zipfile.ZipFile:
    # In memory, so that no file stays open and worker processes share no file position.
    try:
        return zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    except zipfile.BadZipFile as error:
        raise InputError(f"{path} is not a whole zip file ({error}). Fetch it again.") from error


def read_zipped(archive: Path, name: str) -> Image.Image:
    """Read one picture of a zip file, wherever in it the file of that name lies."""
    content = _open_archive(archive)
    members = _list_members(archive)
    if name not in members:
        raise InputError(f"{archive} has no picture {name}.")
    return load_image(io.BytesIO(content.read(members[name])))


@lru_cache(maxsize=2)
def _list_members(path: Path) -> dict[str, str]:
    return {Path(member).name: member for member in _open_archive(path).namelist()}
