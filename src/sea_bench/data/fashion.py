"""Fashion-MNIST's files; a sample and a CNN are shipped (``sea_nn.vision.shipped``)."""

import gzip
import struct
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sea_bench.data.files import Place, SetInfo
from sea_bench.data.items import ImageSet, Item
from sea_nn.errors import InputError
from sea_nn.vision.shipped import CLASSES, load_sample

FASHION = SetInfo(
    name="fashion",
    title="Fashion-MNIST, 28 x 28 grey pictures of clothes",
    folder="fashion_mnist",
    source="Debian's package dataset-fashion-mnist (apt install dataset-fashion-mnist), or "
    "https://github.com/zalandoresearch/fashion-mnist",
    layout="the four IDX files, gzipped or not",
    terms="MIT, copyright Zalando SE",
    elsewhere=(Path("/usr/share/datasets/fashion-mnist"),),
)
_PREFIXES = {"train": "train", "test": "t10k"}
_UBYTE = 0x08  # the only IDX element type that MNIST-like sets use


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or plain, into an array of its own shape.

    Layout: two zero bytes, the element type, the number of axes, one big-endian 32-bit length
    for each axis, then the elements.
    """
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if content[:3] != bytes([0, 0, _UBYTE]):
        raise InputError(f"{path} is no IDX file of unsigned bytes. Fetch the file again.")
    start = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def load_fashion(
    split: str, place: str | Path | Place | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a whole split, "train" or "test": images uint8 [N, 28, 28] and labels [N]."""
    place, paths = place if isinstance(place, Place) else FASHION.find(place), []
    for kind in ("images-idx3", "labels-idx1"):
        name = f"{_PREFIXES[split]}-{kind}-ubyte"
        packed = place.path / f"{name}.gz"
        paths.append(packed if packed.is_file() else place.need(name))
    images, labels = map(read_idx, paths)
    if images.shape != (len(labels), 28, 28):
        raise InputError(f"{paths[0]} has the shape {images.shape}, {paths[1]} {labels.shape}.")
    return images, labels.astype(np.int64)


def read_clothes(place: Place) -> ImageSet:
    """Both splits as items."""
    items = []
    for side in _PREFIXES:
        images, labels = load_fashion(side, place)
        items += [
            Item(f"{side}-{i}", partial(Image.fromarray, image), int(label), side)
            for i, (image, label) in enumerate(zip(images, labels, strict=True))
        ]
    return ImageSet(tuple(items), CLASSES)


def read_sample() -> ImageSet:
    """The 200 pictures that are shipped, of the test split."""
    sample = load_sample()
    pictures = (sample.images[:, 0] * 255).round().to(torch.uint8).numpy()
    items = tuple(
        Item(f"sample-{i}", partial(Image.fromarray, picture), int(label))
        for i, (picture, label) in enumerate(zip(pictures, sample.labels, strict=True))
    )
    return ImageSet(items, sample.names)
