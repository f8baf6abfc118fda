"""Data sets that lie in files: folders and globs of pictures, tables, tensors."""

from __future__ import annotations

import csv
import glob
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from sea_nn.datasets.arrow import import_arrow
from sea_nn.datasets.items import (
    LABEL_KEYS,
    MANIFEST,
    Item,
    Prepare,
    Reader,
    Source,
    find_label,
    hash_bytes,
)
from sea_nn.errors import InputError
from sea_nn.vision.images import load_image

PICTURES = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))
TABLES = frozenset((".csv", ".tsv", ".parquet"))
TENSORS = frozenset((".safetensors", ".npz"))
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image", "image_path")
ID_COLUMNS = ("id", "name")
INPUT_NAMES = ("x", "inputs", "input", "images", "data")
MOST_HASHED = 20 << 30
"""Up to so many bytes of pictures are hashed; of more, only sizes and times are compared."""
THREADS = max(1, min(8, os.cpu_count() or 1))


def open_files(
    text: str,
    preprocess: Prepare | None,
    label_names: Sequence[str] | None,
    label_column: str | None,
    recursive: bool,
) -> Source:
    """A path or glob as a ``Source``; what it holds decides the kind."""
    path = Path(text).expanduser()
    if path.is_file():
        if path.suffix.lower() in TABLES:
            return _open_table(path, preprocess, label_names, label_column)
        if path.suffix.lower() in TENSORS:
            return _open_shards([path], str(path), preprocess, label_names)
        if path.suffix.lower() not in PICTURES:
            known = " ".join(sorted(PICTURES | TABLES | TENSORS))
            raise InputError(f"{path} is of no known kind; known are {known}")
    if path.is_dir():
        found = _list_folder(path, recursive)
    elif path.exists() or not glob.has_magic(text):
        found = [path]
    else:
        found = [Path(p) for p in sorted(glob.glob(str(path), recursive=True)) if os.path.isfile(p)]
    pictures = [p for p in found if p.suffix.lower() in PICTURES]
    shards = [p for p in found if p.suffix.lower() in TENSORS]
    if pictures and shards:
        raise InputError(f"{text} holds both pictures and tensor files; name one kind by a glob")
    if shards:
        return _open_shards(shards, text, preprocess, label_names)
    if not pictures:
        raise InputError(f"there are no pictures, tables or tensor files in {text}")
    base = path if path.is_dir() else None
    return open_pictures(pictures, text, preprocess, label_names, base)


def _list_folder(folder: Path, recursive: bool) -> list[Path]:
    """The files of a folder, without hidden ones and without results of a run that lie in it."""
    inside = folder.rglob("*") if recursive else folder.iterdir()
    found = sorted(p for p in inside if p.is_file() and not p.name.startswith("."))
    runs = [p.parent for p in found if p.name == MANIFEST and (p.parent / "rows").is_dir()]
    return [p for p in found if not any(run in p.parents for run in runs)]


def open_pictures(
    paths: Sequence[Path],
    name: str,
    preprocess: Prepare | None,
    label_names: Sequence[str] | None = None,
    base: Path | None = None,
    labels: Sequence[Any] | None = None,
    ids: Sequence[str] | None = None,
) -> Source:
    """Picture files; without labels, a folder named like a class is the label."""
    if preprocess is None:
        raise InputError(
            "pictures need a preprocess, from a Pillow image to the model's input: pass "
            "preprocess=load_model(...).preprocess, or your own function"
        )
    known = {n.casefold().replace("_", " ") for n in label_names or ()}

    def read(index: int) -> Item:
        path = paths[index]
        label: Any = None if labels is None else labels[index]
        if labels is None and path.parent.name.casefold().replace("_", " ") in known:
            label = path.parent.name
        return Item(preprocess(load_image(path)), find_label(label, label_names))

    if ids is None:
        ids = [_text(p.relative_to(base) if base is not None else p) for p in paths]
    return Source(
        kind="pictures",
        name=name,
        ids=ids,
        read=read,
        digests=_hash_files(paths),
        paths=[_text(p) for p in paths],
        threads=THREADS,
    )


def _text(path: Path) -> str:
    """A path as text, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _hash_files(paths: Sequence[Path]) -> list[str]:
    sizes = [p.stat().st_size if p.exists() else -1 for p in paths]
    by_content = sum(sizes) <= MOST_HASHED

    def digest(path: Path) -> str:
        try:
            if by_content:
                return hash_bytes(path.read_bytes())
            state = path.stat()
            return f"{state.st_size}-{state.st_mtime_ns}"
        except OSError as error:  # it gets its own row later
            return type(error).__name__

    with ThreadPoolExecutor(THREADS) as team:
        return list(team.map(digest, paths))


def _open_table(
    path: Path,
    preprocess: Prepare | None,
    label_names: Sequence[str] | None,
    label_column: str | None,
) -> Source:
    """A table of picture paths if it has such a column, of features otherwise."""
    columns = _read_columns(path)
    if not columns or not next(iter(columns.values())):
        raise InputError(f"{path} has no rows")
    count = len(next(iter(columns.values())))
    names = LABEL_KEYS if label_column is None else (label_column,)
    if label_column is not None and label_column not in columns:
        raise InputError(f"{path} has no column {label_column!r}; it has {', '.join(columns)}")
    label = next((name for name in names if name in columns), None)
    labels = [None] * count if label is None else columns[label]
    key = next((name for name in ID_COLUMNS if name in columns), None)
    ids = None if key is None else [str(value) for value in columns[key]]
    where = next((name for name in PATH_COLUMNS if name in columns), None)
    if where is not None:
        texts = [str(value) for value in columns[where]]
        files = [path.parent / text for text in texts]  # an absolute one stays as it is
        return open_pictures(files, str(path), preprocess, label_names, None, labels, ids or texts)
    features = [name for name in columns if name not in (label, key)]
    if not features:
        raise InputError(f"{path} has no columns of paths or features")
    rows = np.column_stack([np.array([_number(v) for v in columns[name]]) for name in features])

    def read(index: int) -> Item:
        x = torch.from_numpy(rows[index].astype(np.float32))
        return Item(x, find_label(labels[index], label_names))

    return Source(
        kind="table",
        name=str(path),
        ids=ids or [str(i) for i in range(count)],
        read=read,
        digests=[hash_bytes(row.tobytes()) for row in rows],
        notes={"feature_names": features},
    )


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")  # refused for this row alone, as any NaN is


def _read_columns(path: Path) -> dict[str, list[Any]]:
    if path.suffix.lower() == ".parquet":
        table = import_arrow().parquet.read_table(path)
        return {name: table[name].to_pylist() for name in table.column_names}
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    if not rows:
        raise InputError(f"{path} is empty")
    head, body = rows[0], [row for row in rows[1:] if row]
    for number, row in enumerate(body, 2):
        if len(row) != len(head):
            raise InputError(f"{path}: line {number} has {len(row)} values for {len(head)} columns")
    return {name: [row[k] for row in body] for k, name in enumerate(head)}


def _open_shards(
    paths: Sequence[Path],
    name: str,
    preprocess: Prepare | None,
    label_names: Sequence[str] | None,
) -> Source:
    """Files of tensors: inputs under "x" (or the only entry), true classes under "label"."""
    reader = Reader(preprocess, label_names)
    counts, digests = [], []
    for path in paths:
        inputs, _ = _find_entries(path)
        counts.append(_count(path, inputs))
        digests.append(hash_bytes(path.read_bytes()))
    starts = np.cumsum([0, *counts])

    def read(index: int) -> Item:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        row = index - int(starts[which])
        inputs, labels = _find_entries(paths[which])
        value = _read_row(paths[which], inputs, row)
        label = None if labels is None else _read_row(paths[which], labels, row)
        return reader((value, label))

    stems = [path.stem for path in paths]
    return Source(
        kind="shards",
        name=name,
        ids=[
            f"{stems[k]}/{row}" if len(paths) > 1 else str(row)
            for k, count in enumerate(counts)
            for row in range(count)
        ],
        read=read,
        digests=",".join(digests),
    )


@cache
def _find_entries(path: Path) -> tuple[str, str | None]:
    if path.suffix.lower() == ".npz":
        with np.load(path) as file:
            names = list(file.files)
    else:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
    labels = next((n for n in LABEL_KEYS if n in names), None)
    others = [n for n in names if n != labels]
    chosen = next((n for n in INPUT_NAMES if n in names), others[0] if len(others) == 1 else None)
    if chosen is None:
        raise InputError(
            f"{path} holds {', '.join(names) or 'nothing'}; call the inputs 'x' and their classes "
            "'label'"
        )
    return chosen, labels


@cache
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
