"""Fashion-MNIST's files; a sample and a CNN are shipped (``sea_nn.vision.shipped``)."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sea_nn.errors import InputError
from sea_nn.vision.folders import DATA_VARIABLE, find_data
from sea_nn.vision.shipped import CLASSES

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
_PREFIXES = {"train": "train", "test": "t10k"}
_UBYTE = 0x08  # the only IDX element type that MNIST-like sets use


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or plain, into an array of its own shape.

    Layout: two zero bytes, the element type, the number of axes, one big-endian 32-bit length
    for each axis, then the elements.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise InputError(f"There is no IDX file at {path}.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); it may be cut short.") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise InputError(f"{path} is not an IDX file: it must start with two zero bytes.")
    kind, n_axes = content[2], content[3]
    if kind != _UBYTE or n_axes == 0:
        raise InputError(
            f"{path} holds IDX elements of type 0x{kind:02x} on {n_axes} axes; "
            "expected unsigned bytes (0x08) on at least one axis."
        )
    start = 4 + 4 * n_axes
    if len(content) < start:
        raise InputError(f"{path} ends inside its IDX header.")
    shape = struct.unpack(f">{n_axes}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path} says its shape is {shape}, which takes {math.prod(shape)} bytes, "
            f"but {len(content) - start} follow the header. Fetch the file again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def load_fashion(
    split: Literal["train", "test"], folder: str | Path | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a whole split: images uint8 [N, 28, 28] and labels [N].

    The IDX files are looked for in ``folder`` if one is given, otherwise in
    ``$SEA_NN_DATA/fashion_mnist`` and then where Debian's package puts them.
    """
    if split not in _PREFIXES:
        raise InputError(f"split must be 'train' or 'test', not {split!r}.")
    images_path, labels_path = _find_files(_PREFIXES[split], folder)
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise InputError(
            f"Expected images [N, 28, 28] and labels [N], but {images_path} has the shape "
            f"{images.shape} and {labels_path} the shape {labels.shape}."
        )
    if labels.size and labels.max() >= len(CLASSES):
        raise InputError(f"{labels_path} has the label {labels.max()}; the last class is 9.")
    return images, labels.astype(np.int64)


def _find_files(prefix: str, folder: str | Path | None) -> tuple[Path, Path]:
    """Return the images and the labels file from the first folder that has both."""
    if folder is not None:
        places = [Path(folder).expanduser()]
    else:
        ours = find_data("fashion_mnist")
        places = [DEBIAN_FOLDER] if ours is None else [ours, DEBIAN_FOLDER]
    for place in places:
        for ending in (".gz", ""):
            images = place / f"{prefix}-images-idx3-ubyte{ending}"
            labels = place / f"{prefix}-labels-idx1-ubyte{ending}"
            if images.is_file() and labels.is_file():
                return images, labels
    looked = " and ".join(str(place) for place in places)
    raise InputError(
        f"Fashion-MNIST was not found; looked for {prefix}-images-idx3-ubyte(.gz) and "
        f"{prefix}-labels-idx1-ubyte(.gz) in {looked}. Install Debian's package "
        "(apt install dataset-fashion-mnist), or put the four files of "
        "https://github.com/zalandoresearch/fashion-mnist into "
        f"${DATA_VARIABLE}/fashion_mnist."
    )
