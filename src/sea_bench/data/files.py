"""Finding and reading the files of data sets, with errors that say how to get what is missing."""

import csv
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from sea_nn.errors import InputError
from sea_nn.vision.folders import DATA_VARIABLE

Kind = Callable[[str], Any] | Sequence[str]
SIDES = ("train", "test")
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif")


@dataclass(frozen=True)
class SetInfo:
    """What a data set is, where it can be had, the files expected in its folder, its terms of use.

    The folder is under ``$SEA_NN_DATA``; empty if the caller must always name one.
    """

    name: str
    title: str
    folder: str
    source: str
    layout: str
    terms: str

    @property
    def advice(self) -> str:
        """How to get the set and where to put it."""
        place = f"${DATA_VARIABLE}/{self.folder}" if self.folder else "a folder of your choice"
        return f"Get it from {self.source}, and put into {place}: {self.layout}."


def find_folder(info: SetInfo, folder: str | Path | None) -> Path:
    """Return the set's folder: the given one, or the one under ``$SEA_NN_DATA``."""
    root = os.environ.get(DATA_VARIABLE)
    if folder is not None:
        path = Path(folder).expanduser()
    elif not info.folder:
        raise InputError(
            f"Name the folder of {info.name} ({info.title}). It should hold: {info.layout}."
        )
    elif not root:
        raise InputError(
            f"The data set {info.name} ({info.title}) was not found: {DATA_VARIABLE} is not set "
            f"and no folder was given. {info.advice} Terms: {info.terms}."
        )
    else:
        path = Path(root).expanduser() / info.folder
    if not path.is_dir():
        raise InputError(
            f"The data set {info.name} ({info.title}) was not found: there is no folder {path}. "
            f"{info.advice} Terms: {info.terms}."
        )
    return path


def need(path: Path, info: SetInfo) -> Path:
    """Return ``path`` if it exists; otherwise say what the set should look like."""
    if not path.exists():
        raise InputError(f"The data set {info.name} is not complete: {path} is missing. "
                         f"{info.advice}")  # fmt: skip
    return path


def list_images(folder: Path) -> list[Path]:
    """Return the image files of a folder (not of folders in it), by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_ENDINGS)


def read_table(path: Path, columns: Mapping[str, Kind], info: SetInfo) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with a header that has at least these columns.

    ``columns`` say what the fields become: `str`, `int`, `read_number`, or the values allowed.
    """
    try:
        with need(path, info).open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{path} has no column {', '.join(missing)}; its columns are "
                    f"{', '.join(reader.fieldnames or ()) or 'missing'}."
                )
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no CSV file in UTF-8 ({error}).") from error
    for line, row in enumerate(rows, start=2):
        if any(row[name] is None for name in columns):
            raise InputError(f"Line {line} of {path} has fewer fields than the header.")
    return [
        {
            name: read_field(row[name], kind, f"Line {line} of {path}: {name}")
            for name, kind in columns.items()
        }
        for line, row in enumerate(rows, start=2)
    ]


def read_field(text: str, kind: Kind, where: str) -> Any:
    """Return a field as what it should be, or say where it is not."""
    if not callable(kind):
        if text in kind:
            return text
        wanted = f"one of {', '.join(kind)}"
    else:
        try:
            return kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
    raise InputError(f"{where} should be {wanted}; it is {text!r}.")


def read_number(text: str) -> float:
    """Return a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def read_values(path: Path) -> NDArray[np.float32]:
    """Read a mask file as its raw grey values [height, width]; true and false become 1 and 0.

    ``load_image`` is not used: it would turn the codes 1, 2, 3 of a trimap, or the two colours
    of a bitmap, into shades.
    """
    try:
        with Image.open(path) as image:
            plain = image.mode in ("1", "L", "P") or image.mode[0] in "IF"
            values = np.array(image if plain else image.convert("L"))
    except FileNotFoundError:
        raise InputError(f"There is no mask at {path}.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"The mask {path} cannot be read ({error}).") from error
    return values.astype(np.float32)


def read_binary_mask(path: Path) -> NDArray[np.float32]:
    """Read a mask of two values: 1 where it is not zero."""
    return (read_values(path) > 0).astype(np.float32)


def read_graded_mask(path: Path) -> NDArray[np.float32]:
    """Read a mask of shades: 0 to 1, 0 to 255 or, in 16 bits, 0 to 65535, all brought to 0 to 1."""
    values = read_values(path)
    most = values.max(initial=0)
    return values if most <= 1 else values / np.float32(255 if most <= 255 else 65535)


def read_code(path: Path, code: int) -> NDArray[np.float32]:
    """Read one class of a mask of codes: 1 where the mask has this code."""
    return np.equal(read_values(path), code).astype(np.float32)
