"""Data sets in files of many inputs: CSV and Parquet tables, ``.npz`` and ``.safetensors``.

Each file is read anew as soon as it is not the one that was read before, and each input is compared
with what it was when the run began: a file that is replaced in mid-run is noticed, row by row.
"""

from __future__ import annotations

import csv
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from sea_nn.datasets.files import MOST_HASHED, open_pictures, to_text
from sea_nn.datasets.items import ItemError, Reader, Source, hash_bytes
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
    feature_names: tuple[str, ...] = ()
    is_paths: bool = False


class RowFile:
    """A file of many inputs; its content is kept as long as the file stays what it was."""

    def __init__(self, path: Path, reader: Reader, by_content: bool = True) -> None:
        self.path, self.reader, self.by_content = path, reader, by_content
        self.kept: tuple[Any, Content | None] = (None, None)

    def open(self) -> Content:
        """Read the file, unless it was read before and is the same."""
        read = _read_tensors if self.path.suffix.lower() in TENSORS else _read_table
        try:
            found = self.path.stat()
            stamp = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            kept, content = self.kept
            if content is None or kept != stamp:
                content = read(self.path, self.reader)
                self.kept = stamp, content
            return content
        except InputError:
            raise
        except MemoryError as error:
            raise InputError(f"{self.path} does not fit into memory; divide it") from error
        except Exception as error:  # of damaged files decoders raise nearly anything
            raise InputError(f"{self.path} is damaged or something else ({error})") from error

    def fetch(self, row: int) -> tuple[Any, str]:
        """A row's values with its label, and the hash of both."""
        try:
            content = self.open()
            if row >= content.count:
                raise InputError(f"it has {content.count} rows now")
            values, label = content.get(row)
        except Exception as error:
            raise ItemError("changed", f"{self.path} was changed in the run ({error})") from error
        if not self.by_content:
            return (values, label), f"{self.kept[0][:2]}"
        plain = values
        if isinstance(values, Tensor):
            plain = values.contiguous().reshape(-1).view(torch.uint8).numpy()
        told = plain.encode() if isinstance(plain, str) else np.ascontiguousarray(plain).tobytes()
        return (values, label), hash_bytes(told + f"\0{label}".encode("utf-8", "backslashreplace"))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "kept": (None, None)}  # another process reads it for itself


def open_table(path: Path, reader: Reader) -> Source:
    """A table of picture paths if it has such a column, of features otherwise."""
    file = RowFile(path, reader)
    content = file.open()
    numbers = range(content.count)
    digests = [file.fetch(row)[1] for row in numbers]
    ids = content.ids or [str(row) for row in numbers]
    if not content.is_paths:
        names = content.feature_names
        return Source(str(path), ids, file.fetch, reader, digests, feature_names=names)
    rows = [content.get(row) for row in numbers]
    files = [path.parent / text for text, _ in rows]  # an absolute one stays as it is
    labels = [label for _, label in rows]
    ids = content.ids or [text for text, _ in rows]
    pictures = open_pictures(files, str(path), reader, None, labels, ids)

    def fetch(index: int) -> tuple[Any, str]:
        stored, digest = pictures.fetch(index)
        return stored, f"{digest} {file.fetch(index)[1]}"

    both = [f"{a} {b}" for a, b in zip(pictures.digests, digests, strict=True)]
    return replace(pictures, fetch=fetch, digests=both)


def open_tensor_files(
    paths: Sequence[Path], name: str, reader: Reader, base: Path | None
) -> Source:
    """Files of tensors: inputs under "x" (or the only entry), true classes under "label"."""
    by_content = sum(path.stat().st_size for path in paths) <= MOST_HASHED
    files = [RowFile(path, reader, by_content) for path in paths]
    recent: deque[RowFile] = deque()
    places, ids, digests = list[tuple[RowFile, int]](), list[str](), list[str]()

    def fetch(index: int) -> tuple[Any, str]:
        file, row = places[index]
        if file not in recent:
            recent.append(file)
            if len(recent) > OPEN:
                recent.popleft().kept = (None, None)
        return file.fetch(row)

    for file in files:
        path = file.path if base is None else file.path.relative_to(base)
        head = f"{to_text(path.with_suffix(''))}/" if len(files) > 1 else ""
        for row in range(file.open().count):
            places.append((file, row))
            ids.append(f"{head}{row}")
            digests.append(fetch(len(digests))[1])
    return Source(name, ids, fetch, reader, digests)


def _read_table(path: Path, reader: Reader) -> Content:
    names, columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{path} has more than one column {twice[0]!r}; give each its own name")
    if not columns or not columns[0]:
        raise InputError(f"{path} has no rows")
    table = dict(zip(names, columns, strict=True))
    label = _find_label(path, names, reader)
    count = len(columns[0])
    labels = [None] * count if label is None else table[label]
    key = next((name for name in ID_COLUMNS if name in table), None)
    if key is not None and None in table[key]:
        raise InputError(f"{path}: row {table[key].index(None) + 1} has no {key}")
    ids = None if key is None else [str(value) for value in table[key]]
    where = next((name for name in PATH_COLUMNS if name in table), None)
    if where is not None:
        texts = [str(value) for value in table[where]]
        return Content(count, lambda row: (texts[row], labels[row]), ids, is_paths=True)
    features = tuple(name for name in names if name not in (label, key))
    if not features:
        raise InputError(f"{path} has no columns of paths or features")
    rows = np.column_stack([[_number(v) for v in table[name]] for name in features])
    return Content(count, lambda row: (rows[row], labels[row]), ids, features)


def _find_label(path: Path, names: Sequence[str], reader: Reader) -> str | None:
    label = reader.find_column(dict.fromkeys(names))
    if label is None and reader.label_column is not None:
        raise InputError(f"{path} has no {reader.label_column!r}; it has {', '.join(names)}")
    return label


def _number(value: Any) -> float:
    try:
        if isinstance(value, str) and "_" in value:  # 1_0 is ten to Python and to nobody else
            return math.nan
        return float(value)
    except (TypeError, ValueError):
        return math.nan  # refused for this row alone, as any NaN is


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    table = import_arrow().parquet.ParquetFile(path).read()
    return list(table.column_names), [column.to_pylist() for column in table.columns]


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8 ({error}); save it as such") from error
    head, body = rows[0] if rows else [], [row for row in rows[1:] if row]
    for number, row in enumerate(body, 2):
        if len(row) != len(head):
            raise InputError(f"{path}: line {number} has {len(row)} values for {len(head)} columns")
    return head, [[row[k] for row in body] for k in range(len(head))]


def _read_tensors(path: Path, reader: Reader) -> Content:
    """The inputs and labels of a file of tensors, by row."""
    arrays: dict[str, Any] = {}
    if path.suffix.lower() == ".npz":
        with path.open("rb") as opened, np.load(opened) as file:  # which refuses pickles
            names = _find_entries(path, file.files, reader)
            arrays = {name: file[name] for name in names}
            shapes = [array.shape for array in arrays.values()]
    else:
        with safe_open(path, "pt") as file:
            names = _find_entries(path, list(file.keys()), reader)
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


def _find_entries(path: Path, names: Sequence[str], reader: Reader) -> list[str]:
    """The entry of the inputs, and that of their classes if there is one."""
    label = _find_label(path, names, reader)
    others = [n for n in names if n != label]
    if "x" not in others and len(others) != 1:
        raise InputError(
            f"{path} holds {', '.join(names) or 'nothing'}; call the inputs 'x' and their classes "
            "'label'"
        )
    return ["x" if "x" in others else others[0], *([] if label is None else [label])]
