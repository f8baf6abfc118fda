"""Files of many inputs: CSV and Parquet tables, ``.npz`` and ``.safetensors``.

Each file is read anew as soon as it is not the one that was read before, and each input is compared
with what it was when the run began: a file that is replaced in mid-run is noticed, row by row.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from sea_nn.datasets.items import find_column
from sea_nn.datasets.storage import import_arrow
from sea_nn.errors import InputError

TABLES = frozenset((".csv", ".tsv", ".parquet"))
TENSORS = frozenset((".safetensors", ".npz"))
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image", "image_path")
ID_COLUMNS = ("id", "name")
OPEN = 4  # files whose content is kept in memory


@dataclass(frozen=True)
class Content:
    """What a file holds: how many inputs, how to get one's values and label, names for tables."""

    count: int
    get: Callable[[int], tuple[Any, Any]]
    ids: Sequence[str] | None = None
    feature_names: tuple[str, ...] = ()  # of a table; none if its inputs are paths


def open_rows(path: Path, label_column: str | None) -> Content:
    """Read a file, unless it was read before and is the same."""
    try:
        now = path.stat()
        stamp = now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino
        return _read(path, label_column, stamp)
    except InputError:
        raise
    except Exception as error:  # of damaged files decoders raise nearly anything
        raise InputError(f"{path} is damaged or something else ({error})") from error


def to_text(path: Path) -> str:
    """A path as text, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@lru_cache(OPEN)
def _read(path: Path, label_column: str | None, stamp: tuple[int, ...]) -> Content:
    read = _read_tensors if path.suffix.lower() in TENSORS else _read_table
    return read(path, label_column)


def _read_table(path: Path, label_column: str | None) -> Content:
    if path.suffix.lower() == ".parquet":
        read = import_arrow().parquet.ParquetFile(path).read()
        names, columns = read.column_names, [column.to_pylist() for column in read.columns]
    else:
        names, columns = _read_csv(path)
    if len({*names}) < len(names):
        twice = max(names, key=names.count)
        raise InputError(f"{path} has more than one column {twice!r}; give each its own name")
    if not columns or not columns[0]:
        raise InputError(f"{path} has no rows")
    table = dict(zip(names, columns, strict=True))
    label = _find_label(path, names, label_column)
    count = len(columns[0])
    labels = [None] * count if label is None else table[label]
    key = next((name for name in ID_COLUMNS if name in table), None)
    if key is not None and None in table[key]:
        raise InputError(f"{path}: row {table[key].index(None) + 1} has no {key}")
    ids = None if key is None else [str(value) for value in table[key]]
    where = next((name for name in PATH_COLUMNS if name in table), None)
    if where is not None:
        texts = [str(value) for value in table[where]]
        return Content(count, lambda row: (texts[row], labels[row]), ids or texts)
    features = tuple(name for name in names if name not in (label, key))
    if not features:
        raise InputError(f"{path} has no columns of paths or features")
    rows = np.column_stack([[_number(v) for v in table[name]] for name in features])
    return Content(count, lambda row: (rows[row], labels[row]), ids, features)


def _find_label(path: Path, names: Sequence[str], label_column: str | None) -> str | None:
    label = find_column(names, label_column)
    if label is None and label_column is not None:
        raise InputError(f"{path} has no {label_column!r}; it has {', '.join(names)}")
    return label


def _number(value: Any) -> float:
    with suppress(TypeError, ValueError):
        if "_" not in str(value):  # 1_0 is ten to Python and to nobody else
            return float(value)
    return math.nan  # refused for this row alone, as any NaN is


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    head, body = rows[0] if rows else [], [row for row in rows[1:] if row]
    for number, row in enumerate(body, 2):
        if len(row) != len(head):
            raise InputError(f"{path}: line {number} has {len(row)} values for {len(head)} columns")
    return head, [[row[k] for row in body] for k in range(len(head))]


def _read_tensors(path: Path, label_column: str | None) -> Content:
    """The inputs and labels of a file of tensors, by row."""
    arrays: dict[str, Any] = {}
    if path.suffix.lower() == ".npz":
        with path.open("rb") as opened, np.load(opened) as file:  # which refuses pickles
            names = _find_entries(path, file.files, label_column)
            arrays = {name: file[name] for name in names}
            shapes = [array.shape for array in arrays.values()]
    else:
        with safe_open(path, "pt") as file:
            names = _find_entries(path, list(file.keys()), label_column)
            shapes = [tuple(file.get_slice(name).get_shape()) for name in names]
    if any(shape[:1] != shapes[0][:1] or not shape for shape in shapes):
        raise InputError(
            f"{path} has {' and '.join(names)} of {' and '.join(map(str, map(list, shapes)))}: all "
            "begin with the number of inputs"
        )

    def get(row: int) -> tuple[Any, Any]:
        if arrays:
            found = [array[row] for array in arrays.values()]
        else:  # opened for each row: one kept open that is cut short would end the process
            with safe_open(path, "pt") as file:
                found = [file.get_slice(name)[row : row + 1][0] for name in names]
        return found[0], found[1] if len(found) > 1 else None

    return Content(shapes[0][0], get)


def _find_entries(path: Path, names: Sequence[str], label_column: str | None) -> list[str]:
    """The entry of the inputs, and that of their classes if there is one."""
    label = _find_label(path, names, label_column)
    others = [n for n in names if n != label]
    if "x" not in others and len(others) != 1:
        raise InputError(
            f"{path} holds {', '.join(names) or 'nothing'}; call the inputs 'x' and their classes "
            "'label'"
        )
    return ["x" if "x" in others else others[0], *([] if label is None else [label])]
