"""Data sets that lie in files: folders and globs of pictures or volumes, tables, tensors."""

from __future__ import annotations

import csv
import glob
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from sea_nn.datasets.items import Item, ItemError, Reader, Source, hash_bytes, plain_name
from sea_nn.datasets.storage import MANIFEST, import_arrow
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image
from sea_nn.vision.volumes import NIFTI, load_volume

PICTURES = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))
TABLES = frozenset((".csv", ".tsv", ".parquet"))
TENSORS = frozenset((".safetensors", ".npz"))
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image", "image_path")
ID_COLUMNS = ("id", "name")
MOST_HASHED = 20 << 30
"""Up to so many bytes of files are hashed; of more, only sizes and times are compared."""
THREADS = max(1, min(16, os.cpu_count() or 1))


def open_files(text: str, reader: Reader) -> Source:
    """A path or glob as a ``Source``; what it holds decides the kind."""
    path = Path(text).expanduser()
    if path.is_file() and path.suffix.lower() in TABLES:
        return _open_table(path, reader)
    if path.is_dir():
        found = _list_folder(path)
    elif path.is_file():
        found = [path]
    else:
        found = [Path(p) for p in sorted(glob.glob(str(path), recursive=True)) if os.path.isfile(p)]
    kinds = {
        "pictures": [p for p in found if p.suffix.lower() in PICTURES],
        "tensor files": [p for p in found if p.suffix.lower() in TENSORS],
        "volumes": [p for p in found if p.name.lower().endswith(NIFTI)],
    }
    there = [kind for kind, paths in kinds.items() if paths]
    if not there:
        known = " ".join(sorted({*PICTURES, *TABLES, *TENSORS, *NIFTI}))
        raise InputError(f"{text} holds no pictures, tables or tensor files; known are {known}")
    if len(there) > 1:
        raise InputError(f"{text} holds {' and '.join(there)}; name one kind by a glob")
    base = path if path.is_dir() else None
    if there == ["tensor files"]:
        return _open_tensor_files(kinds["tensor files"], text, reader, base)
    return open_pictures(kinds[there[0]], text, reader, base)


def _list_folder(folder: Path) -> list[Path]:
    """The files of a folder, without hidden ones and without results of a run that lie in it."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    runs = {p.parent for p in found if p.name == MANIFEST and (p.parent / "rows").is_dir()}
    return [p for p in found if runs.isdisjoint(p.parents)]


def open_pictures(
    paths: Sequence[Path],
    name: str,
    reader: Reader,
    base: Path | None = None,
    labels: Sequence[Any] | None = None,
    ids: Sequence[str] | None = None,
) -> Source:
    """Files of one input each; without labels, a folder named like a class is the label.

    Pictures go through the reader's preprocess; NIfTI volumes are taken as they are.
    """
    volumes = all(path.name.lower().endswith(NIFTI) for path in paths)
    if reader.preprocess is None and not volumes:
        raise InputError(
            "pictures need a preprocess, from a Pillow image to the model's input: pass "
            "preprocess=load_model(...).preprocess, or your own function"
        )
    known = {plain_name(n) for n in reader.label_names or ()}
    digest, digests = _hash_files(paths)

    def read(index: int) -> Item:
        path = paths[index]
        x = load_volume(path) if volumes else reader.to_tensor(load_image(path))
        if digest(path) != digests[index]:
            raise ItemError("changed", f"{path} was changed after the run began")
        label = None if labels is None else labels[index]
        if labels is None and plain_name(path.parent.name) in known:
            label = path.parent.name
        return Item(x, reader.find_label(label))

    if ids is None:
        ids = [_text(p if base is None else p.relative_to(base)) for p in paths]
    return Source(name, ids, read, digests, [_text(p) for p in paths], THREADS)


def _text(path: Path) -> str:
    """A path as text, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _hash_files(paths: Sequence[Path]) -> tuple[Callable[[Path], str], list[str]]:
    """How to tell whether a file is still the same, and what that is now, for each."""
    by_content = sum(p.stat().st_size for p in paths if p.exists()) <= MOST_HASHED

    def digest(path: Path) -> str:
        try:
            if not by_content:
                state = path.stat()
                return f"{state.st_size}-{state.st_mtime_ns}"
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:  # it gets its own row later
            return type(error).__name__

    with ThreadPoolExecutor(THREADS) as team:
        return digest, list(team.map(digest, paths))


def _open_table(path: Path, reader: Reader) -> Source:
    """A table of picture paths if it has such a column, of features otherwise."""
    columns = _read_columns(path)
    if not columns or not next(iter(columns.values())):
        raise InputError(f"{path} has no rows")
    count = len(next(iter(columns.values())))
    label, wanted = reader.find_column(columns), reader.label_column
    if label is None and wanted is not None:
        raise InputError(f"{path} has no column {wanted!r}; it has {', '.join(columns)}")
    labels = [None] * count if label is None else columns[label]
    key = next((name for name in ID_COLUMNS if name in columns), None)
    ids = None if key is None else [str(value) for value in columns[key]]
    where = next((name for name in PATH_COLUMNS if name in columns), None)
    if where is not None:
        texts = [str(value) for value in columns[where]]
        files = [path.parent / text for text in texts]  # an absolute one stays as it is
        return open_pictures(files, str(path), reader, None, labels, ids or texts)
    features = tuple(name for name in columns if name not in (label, key))
    if not features:
        raise InputError(f"{path} has no columns of paths or features")
    rows = np.column_stack([[_number(v) for v in columns[name]] for name in features])

    def read(index: int) -> Item:
        x = torch.from_numpy(rows[index].astype(np.float32))
        return Item(x, reader.find_label(labels[index]))

    digests = [hash_bytes(row.tobytes()) for row in rows]
    numbers = [str(i) for i in range(count)]
    return Source(str(path), ids or numbers, read, digests, feature_names=features)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")  # refused for this row alone, as any NaN is


def _read_columns(path: Path) -> dict[str, list[Any]]:
    if path.suffix.lower() == ".parquet":
        columns: dict[str, list[Any]] = import_arrow().parquet.read_table(path).to_pydict()
        return columns
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8 ({error}); save it as such") from error
    head, body = rows[0] if rows else [], [row for row in rows[1:] if row]
    for number, row in enumerate(body, 2):
        if len(row) != len(head):
            raise InputError(f"{path}: line {number} has {len(row)} values for {len(head)} columns")
    return {name: [row[k] for row in body] for k, name in enumerate(head)}


def _open_tensor_files(
    paths: Sequence[Path], name: str, reader: Reader, base: Path | None
) -> Source:
    """Files of tensors: inputs under "x" (or the only entry), true classes under "label"."""
    entries = [_find_entries(path, reader) for path in paths]
    counts = [_count(p, inputs) for p, (inputs, _) in zip(paths, entries, strict=True)]
    starts = np.cumsum([0, *counts])
    _, hashes = _hash_files(paths)

    def read(index: int) -> Item:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        row, (inputs, labels) = index - int(starts[which]), entries[which]
        label = None if labels is None else _read_row(paths[which], labels, row)
        return reader((_read_row(paths[which], inputs, row), label))

    stems = [_text((p if base is None else p.relative_to(base)).with_suffix("")) for p in paths]
    heads = [f"{stem}/" for stem in stems] if len(paths) > 1 else [""]
    return Source(
        name,
        [f"{h}{row}" for h, count in zip(heads, counts, strict=True) for row in range(count)],
        read,
        [digest for digest, count in zip(hashes, counts, strict=True) for _ in range(count)],
    )


def _find_entries(path: Path, reader: Reader) -> tuple[str, str | None]:
    if path.suffix.lower() == ".npz":
        with np.load(path) as file:
            names = list(file.files)
    else:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
    label = reader.find_column(dict.fromkeys(names))
    others = [n for n in names if n != label]
    if "x" not in others and len(others) != 1:
        raise InputError(
            f"{path} holds {', '.join(names) or 'nothing'}; call the inputs 'x' and their classes "
            "'label'"
        )
    return "x" if "x" in others else others[0], label


@lru_cache(4)  # an archive is read whole; the inputs of a shard come from one or two
def _load_npz(path: Path, name: str) -> np.ndarray[Any, Any]:
    with np.load(path) as file:
        return np.asarray(file[name])


def _count(path: Path, name: str) -> int:
    if path.suffix.lower() == ".npz":
        return len(_load_npz(path, name))
    with safe_open(path, framework="pt") as file:
        return int(file.get_slice(name).get_shape()[0])


def _read_row(path: Path, name: str, row: int) -> Any:
    if path.suffix.lower() == ".npz":
        return _load_npz(path, name)[row]
    with safe_open(path, framework="pt") as file:
        return file.get_slice(name)[row]
