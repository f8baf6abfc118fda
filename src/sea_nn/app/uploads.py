"""What people upload: pictures, tables and texts, judged by content before they are decoded.

Nothing is written to disk, no name decides what a file is, and what is too large is refused by its
header: a small file may stand for gigabytes of pixels.
"""

import csv
import io
import math
import warnings

import torch
from PIL import Image
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.vision.images import FORMATS, load_image

MOST_BYTES = 10 << 20
MOST_PIXELS = 40_000_000
MOST_ROWS = 200
MOST_LETTERS = 5_000


def read_picture(content: bytes) -> Image.Image:
    """Decode a picture: JPEG, PNG, GIF, BMP, TIFF or WebP by content, of at most 40 megapixels.

    >>> read_picture(b"<svg onload='alert(1)'/>")
    Traceback (most recent call last):
    ...
    sea_nn.errors.InputError: this is no picture that can be read: send a JPEG, PNG, GIF, WebP, ...
    """
    check_size(content)
    file = io.BytesIO(content)
    file.name = "the picture"
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd metadata, and of large pictures
            width, height = Image.open(file, formats=FORMATS).size
    except Exception as error:  # on hostile files, decoders raise nearly anything
        raise InputError(
            "this is no picture that can be read: send a JPEG, PNG, GIF, WebP, BMP or TIFF file"
        ) from error
    if width * height > MOST_PIXELS:
        raise InputError(
            f"the picture has {width:,} x {height:,} pixels, and at most {MOST_PIXELS:,} are "
            "read: scale it down first. Models look at a few hundred a side"
        )
    return load_image(file)


def read_table(content: bytes, columns: int) -> tuple[list[str], Tensor]:
    r"""Read rows of numbers from CSV text: their names, and float32 [rows, columns].

    A first line that holds no numbers is a heading. A first column beyond ``columns`` is the name
    of each row; otherwise rows are numbered from 1.

    >>> read_table(b"who,age,height\nAnn,31,1.7\nBob,40,1.8", 2)[0]
    ['Ann', 'Bob']
    """
    text = _read_text(content)
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if any(map(str.strip, row))]
    except csv.Error as error:
        raise InputError(f"this is no CSV file that can be read ({error})") from error
    if rows and not any(map(_is_number, rows[0])):
        rows = rows[1:]
    if not 0 < len(rows) <= MOST_ROWS:
        raise InputError(f"send 1 to {MOST_ROWS} rows of numbers; got {len(rows)}")
    names, values = [], []
    for number, row in enumerate(rows, 1):
        named = len(row) == columns + 1
        names.append(row.pop(0)[:80] if named else f"row {number}")
        if len(row) != columns:
            raise InputError(f"row {number} has {len(row)} columns; the model takes {columns}")
        for cell in row:
            if not _is_number(cell):
                raise InputError(f"row {number} holds {cell[:40]!r}, which is no finite number")
        values.append([float(cell) for cell in row])
    return names, torch.tensor(values)


def read_words(content: bytes) -> str:
    """Read a text of at most 5,000 letters.

    >>> read_words(b" a text ")
    'a text'
    """
    text = _read_text(content).strip()
    if not 0 < len(text) <= MOST_LETTERS:
        raise InputError(f"send a text of 1 to {MOST_LETTERS:,} letters; got {len(text):,}")
    return text


def check_size(content: bytes) -> None:
    """Refuse files that are empty or too large."""
    if not 0 < len(content) <= MOST_BYTES:
        raise InputError(f"send a file of 1 byte to {MOST_BYTES >> 20} MB; got {len(content):,}")


def _read_text(content: bytes) -> str:
    check_size(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("this is no text: send a file in UTF-8") from error


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
