"""Data sets in files of many inputs: CSV and Parquet tables, ``.npz`` and ``.safetensors``.

Each file is read anew as soon as it is not the one that was read before, and each input is compared
with what it was when the run began: a file that is replaced in mid-run is noticed, row by row.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""The types of a safetensors file that are read."""


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

    def __init__(self, path: Path, read: Callable[[Path], Content], by_content: bool) -> None:
        self.path, self.read, self.by_content = path, read, by_content
        self.kept: tuple[Any, Content | None] = (None, None)

    def open(self) -> Content:
        """Read the file, unless it was read before and is the same."""
        found = self.path.stat()
        stamp = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        kept, content = self.kept
        if content is None or kept != stamp:
            content = self.read(self.path)
            self.kept = stamp, content
        return content

    def fetch(self, row: int) -> tuple[Any, str]:
        """A row's values with its label, and the hash of both."""
        try:
            content = _open(self)
            if row >= content.count:
                raise InputError(f"it has {content.count} rows now")
            values, label = content.get(row)
        except (InputError, OSError) as error:
            raise ItemError("changed", f"{self.path} was changed in the run ({error})") from error
        if not self.by_content:
            return (values, label), f"{self.kept[0][:2]}"
        plain = values.contiguous() if isinstance(values, Tensor) else values
        if isinstance(plain, Tensor):
            plain = plain.reshape(-1).view(torch.uint8).numpy()
        told = plain.encode() if isinstance(plain, str) else np.ascontiguousarray(plain).tobytes()
        return (values, label), hash_bytes(told, label)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "kept": (None, None)}  # another process reads it for itself


def open_table(path: Path, reader: Reader) -> Source:
    """A table of picture paths if it has such a column, of features otherwise."""
    file = RowFile(path, partial(_read_table, reader=reader), True)
    content = _open(file)
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
    read = partial(_read_tensors, reader=reader)
    files = [RowFile(path, read, by_content) for path in paths]
    recent: deque[int] = deque()
    digests, counts = [], []

    def open_file(which: int) -> RowFile:
        if which not in recent:
            recent.append(which)
            if len(recent) > OPEN:
                files[recent.popleft()].kept = (None, None)
        return files[which]

    for which in range(len(files)):
        file = open_file(which)
        counts.append(_open(file).count)
        digests += [file.fetch(row)[1] for row in range(counts[-1])]
    starts = np.cumsum([0, *counts])

    def fetch(index: int) -> tuple[Any, str]:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        return open_file(which).fetch(index - int(starts[which]))

    stems = [to_text((p if base is None else p.relative_to(base)).with_suffix("")) for p in paths]
    heads = [f"{stem}/" for stem in stems] if len(paths) > 1 else [""]
    ids = [f"{h}{row}" for h, count in zip(heads, counts, strict=True) for row in range(count)]
    return Source(name, ids, fetch, reader, digests)


def _open(file: RowFile) -> Content:
    """Read a file for the first time; whatever is wrong with it is said with its name."""
    try:
        return file.open()
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{file.path} does not fit into memory; divide it") from error
    except Exception as error:  # of damaged files decoders raise nearly anything
        raise InputError(f"{file.path} is damaged or something else ({error})") from error


def _read_table(path: Path, reader: Reader) -> Content:
    names, columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{path} has more than one column {twice[0]!r}; give each its own name")
    if not columns or not columns[0]:
        raise InputError(f"{path} has no rows")
    table = dict(zip(names, columns, strict=True))
    label, wanted = reader.find_column(table), reader.label_column
    if label is None and wanted is not None:
        raise InputError(f"{path} has no column {wanted!r}; it has {', '.join(names)}")
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
    if path.suffix.lower() == ".npz":
        with path.open("rb") as opened, np.load(opened) as file:  # which refuses pickles
            inputs, label = _find_entries(path, file.files, reader)
            arrays = {name: file[name] for name in (inputs, label) if name is not None}
        shapes = {name: array.shape for name, array in arrays.items()}

        def get(name: str, row: int) -> Any:
            return arrays[name][row]

    else:
        stored = _read_header(path)
        inputs, label = _find_entries(path, list(stored), reader)
        shapes = {name: stored[name][1] for name in (inputs, label) if name is not None}

        def get(name: str, row: int) -> Any:
            return _read_row(path, *stored[name], row)

    for name, shape in shapes.items():
        if not shape or shape[0] != shapes[inputs][0]:
            raise InputError(
                f"{path} has {name!r} of {list(shape)} beside {inputs!r} of "
                f"{list(shapes[inputs])}: both begin with the number of inputs"
            )
    return Content(
        shapes[inputs][0],
        lambda row: (get(inputs, row), None if label is None else get(label, row)),
    )


def _find_entries(path: Path, names: Sequence[str], reader: Reader) -> tuple[str, str | None]:
    label = reader.find_column(dict.fromkeys(names))
    if label is None and reader.label_column is not None:
        raise InputError(f"{path} has no entry {reader.label_column!r}; it has {', '.join(names)}")
    others = [n for n in names if n != label]
    if "x" not in others and len(others) != 1:
        raise InputError(
            f"{path} holds {', '.join(names) or 'nothing'}; call the inputs 'x' and their classes "
            "'label'"
        )
    return "x" if "x" in others else others[0], label


def _read_header(path: Path) -> dict[str, tuple[torch.dtype, tuple[int, ...], int]]:
    """By entry of a safetensors file its type, its shape and where it begins.

    The file is not mapped into memory: one that is cut short meanwhile would end the process.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(100 << 20, os.fstat(file.fileno()).st_size):
            raise InputError(f"{path} is not a whole safetensors file")
        facts = json.loads(file.read(size))
        end = os.fstat(file.fileno()).st_size
    found = {}
    for name, one in facts.items():
        if name != "__metadata__":
            if one["dtype"] not in TYPES:
                raise InputError(f"{path}: {name!r} is of type {one['dtype']}, which is not read")
            kind, shape = TYPES[one["dtype"]], tuple(map(int, one["shape"]))
            start = 8 + size + int(one["data_offsets"][0])
            if min(shape, default=0) < 0 or start + math.prod(shape) * kind.itemsize > end:
                raise InputError(f"{path} is cut short: {name!r} ends behind its end")
            found[name] = kind, shape, start
    return found


def _read_row(
    path: Path, kind: torch.dtype, shape: tuple[int, ...], start: int, row: int
) -> Tensor:
    size = math.prod(shape[1:]) * kind.itemsize
    with path.open("rb") as file:
        file.seek(start + row * size)
        content = file.read(size)
    if len(content) < size:
        raise InputError(f"{path} ends before its row {row}")
    return torch.frombuffer(bytearray(content), dtype=kind).reshape(shape[1:])
