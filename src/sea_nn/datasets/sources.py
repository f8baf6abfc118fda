"""What a data set can be.

>>> source = open_source([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
>>> len(source), source.ids[1], source.read(1).x.shape
(2, '1', torch.Size([1, 8, 8]))
"""

from __future__ import annotations

import copy
import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import default_collate

from sea_nn.datasets.fingerprint import fingerprint, hash_texts
from sea_nn.datasets.items import Item, ItemError, Reader
from sea_nn.datasets.storage import RESULTS, THREADS
from sea_nn.datasets.tables import TABLES, TENSORS, open_rows, to_text
from sea_nn.errors import InputError, KindError
from sea_nn.vision.images import load_image
from sea_nn.vision.names import NIFTI, PICTURES
from sea_nn.vision.volumes import load_volume

N_PROBES = 16
"""Items of a data set without files that are read to tell whether it changed."""
MOST_READ = 2 << 30  # bytes of one file
READER = Reader()


@dataclass(frozen=True)
class Source:
    """A data set: names of its inputs, and a way to read each.

    ``fetch`` gives what is stored of the input of a number, and its hash as it is now, or "" where
    that cannot be told; it may raise anything. ``make`` turns what was fetched into an input.
    ``digests`` are the hashes as the run began, "" where reading all would cost too much.
    """

    name: str
    ids: Sequence[str]
    fetch: Callable[[int], tuple[Any, str]]
    make: Callable[[Any], Item]
    digests: Sequence[str]
    paths: Sequence[str] | None = None  # the file of each input
    threads: int = 1  # that may read at once
    feature_names: tuple[str, ...] = ()  # of a table's columns

    def __post_init__(self) -> None:
        if len(self.ids) == 0:
            raise InputError(f"{self.name} holds no inputs")
        (most, times), *_ = Counter(self.ids).most_common(1)
        if times > 1:
            raise InputError(f"ids must be unique; {most!r} names more than one input")

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: int) -> Item:
        """The input of a number, if it is still what it was when the source was opened."""
        stored, digest = self.fetch(index)
        if digest and self.digests[index] != digest:
            raise ItemError("changed", f"{self.ids[index]} was changed after the run began")
        return self.make(stored)

    @property
    def fingerprint(self) -> str:
        """One hash of the ids and contents of all inputs."""
        pairs = zip(self.ids, self.digests, strict=True)
        return hash_texts([text for pair in pairs for text in pair])

    def first(self, limit: int | None) -> Source:
        """The first ``limit`` inputs only."""
        paths = None if self.paths is None else self.paths[:limit]
        return replace(self, ids=self.ids[:limit], digests=self.digests[:limit], paths=paths)


def open_source(source: Any, reader: Reader = READER, out: Path | None = None) -> Source:
    """Return any supported data set as a ``Source``.

    Args:
        source: a folder or glob of pictures, a CSV or Parquet table (of paths or of features), a
            ``.safetensors`` or ``.npz`` file or a folder of them, a map-style data set or a
            DataLoader over one, a Hugging Face data set, a tensor or a list of tensors.
        reader: makes inputs of what is read.
        out: the folder of the results; inputs must not lie in it.
    """
    if isinstance(source, str | Path):
        return _open_files(str(source), reader, out)
    loader = source if isinstance(source, DataLoader) else None
    data: Any = source if loader is None else loader.dataset
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        raise KindError(
            f"{type(data).__name__} cannot be read by number, so a run could not be resumed: "
            "give a map-style data set (with len() and [i]), or save it as .safetensors files"
        )
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(data)
    if isinstance(data, Tensor) and data.ndim < 2:
        raise InputError(f"a tensor of inputs is [N, ...]; got {list(data.shape)}")
    if isinstance(data, list | tuple) and data and all(isinstance(p, str | Path) for p in data):
        return _open_pictures([Path(p) for p in data], f"{len(data)} files", reader)
    return _open_items(data, reader, range(len(data)) if loader is None else _take(loader))


def _open_files(text: str, reader: Reader, out: Path | None) -> Source:
    """A path or glob as a ``Source``; what it holds decides the kind."""
    path, found = Path(text).expanduser(), _list_files(text)
    if found == [path] and path.suffix.lower() in TABLES:
        return _open_table(path, reader)
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
    paths = kinds[there[0]]
    if among := [one for one in paths if out in one.resolve().parents]:
        raise InputError(
            f"the results would lie among the inputs: {among[0]} is in {out}. Choose a folder for "
            "them that holds no inputs"
        )
    open_kind = _open_rows if there == ["tensor files"] else _open_pictures
    return open_kind(paths, text, reader, path if path.is_dir() else None)


def _list_files(text: str) -> list[Path]:
    """The files that a path or glob means, without hidden ones and without results of runs.

    Links to folders are not followed where a folder or ``**`` is gone through, so that links in a
    circle end.
    """
    path = Path(text).expanduser()
    try:
        if path.is_dir():
            found = sorted(path.rglob("*"))
        elif path.exists():
            found = [path]
        else:  # the module glob would follow links for **, for ever
            start = Path(path.anchor)
            found = sorted(start.glob(str(path.relative_to(start))))
        found = [p for p in found if p.is_file() and (p == path or not p.name.startswith("."))]
    except OSError as error:
        raise InputError(f"{text[:200]} cannot be read ({error.strerror})") from error
    return [path for path in found if not RESULTS.fullmatch(path.name)]


def _open_pictures(
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

    def fetch(index: int) -> tuple[Any, str]:
        content = _read_file(paths[index])
        digest = hashlib.sha256(content).hexdigest()[:16]
        digest += "" if labels is None else f" {labels[index]}"
        return (index, content, digest), digest

    def make(stored: Any) -> Item:
        index, content, digest = stored
        path = paths[index]
        if volumes:
            x = load_volume(path)
            if fetch(index)[1] != digest:
                raise ItemError("changed", f"{path} was changed while it was read")
        else:
            file = io.BytesIO(content)
            file.name = to_text(path)  # for messages
            x = reader.to_tensor(load_image(file))
        label = path.parent.name if labels is None else labels[index]
        named = labels is not None or reader.knows(label)
        return Item(x, reader.find_label(label) if named else None)

    with ThreadPoolExecutor(THREADS) as team:
        digests = list(team.map(partial(_find_digest, fetch), range(len(paths))))
    if ids is None:
        ids = [to_text(p if base is None else p.relative_to(base)) for p in paths]
    return Source(name, ids, fetch, make, digests, [to_text(p) for p in paths], THREADS)


def _find_digest(fetch: Callable[[int], tuple[Any, str]], index: int) -> str:
    """The hash of an input as the run begins; one that cannot be read gets its own row later."""
    try:
        return fetch(index)[1]
    except Exception as error:  # users' data sets raise nearly anything
        return type(error).__name__


def _read_file(path: Path) -> bytes:
    """The content of a regular file; a pipe or a device would not end."""
    if not os.path.isfile(path):
        raise ItemError("load", f"{to_text(path)[:200]} is no regular file, or not there")
    if (size := os.path.getsize(path)) > MOST_READ:
        raise ItemError("load", f"{path} has {size} bytes; at most {MOST_READ} are read")
    return path.read_bytes()


def _open_table(path: Path, reader: Reader) -> Source:
    """A table of picture paths if it has such a column, of features otherwise."""
    rows = _open_rows([path], str(path), reader, None)
    if rows.feature_names:
        return rows
    texts, labels = zip(*(rows.fetch(row)[0] for row in range(len(rows))), strict=True)
    files = [path.parent / text for text in texts]  # an absolute one stays as it is
    return _open_pictures(files, rows.name, reader, None, labels, rows.ids)


def _open_rows(paths: Sequence[Path], name: str, reader: Reader, base: Path | None) -> Source:
    """Files of many inputs each: tables, or tensors "x" with their true classes "label"."""
    places, ids = list[tuple[Path, int]](), list[str]()
    for path in paths:
        content = open_rows(path, reader.label_column)
        stem = to_text((path if base is None else path.relative_to(base)).with_suffix(""))
        for row, id_ in enumerate(content.ids or map(str, range(content.count))):
            places.append((path, row))
            ids.append(f"{stem}/{id_}" if len(paths) > 1 else id_)

    def fetch(index: int) -> tuple[Any, str]:
        path, row = places[index]
        try:
            entry = open_rows(path, reader.label_column).get(row)
        except Exception as error:
            raise ItemError("changed", f"{path} was changed in the run ({error})") from error
        return entry, fingerprint(entry)

    digests = [fetch(index)[1] for index in range(len(ids))]
    return Source(name, ids, fetch, reader, digests, feature_names=content.feature_names)


def _open_items(data: Any, reader: Reader, numbers: Sequence[int]) -> Source:
    """What is read by number; of a data set that is not in memory, 16 items tell of a change."""
    memory = isinstance(data, Tensor | list | tuple)
    name = "the data in memory" if memory else type(data).__name__
    reader = reader.adapt(data)
    version = getattr(data, "_fingerprint", "")  # of Hugging Face's data sets
    version = version and fingerprint((version, reader.own_names))
    probes = {i * (len(numbers) - 1) // (N_PROBES - 1) for i in range(N_PROBES)}
    compared: Collection[int] = range(len(numbers)) if memory else () if version else probes

    def fetch(index: int) -> tuple[Any, str]:
        entry = data[numbers[index]]
        entry = copy.deepcopy(entry) if memory else entry  # it may be written to meanwhile
        return entry, fingerprint((entry, reader.own_names)) if index in compared else ""

    ids = list(map(str, numbers))
    digests = [_find_digest(fetch, i) if i in compared else version for i in range(len(ids))]
    return Source(name, ids, fetch, reader, digests)


def _take(loader: DataLoader[Any]) -> Sequence[int]:
    """The numbers that a loader's sampler takes, in order."""
    if loader.collate_fn is not default_collate and loader.batch_size is not None:
        raise KindError(
            "this DataLoader has a collate_fn of its own, and a run makes its own batches: give "
            "a data set whose items are the inputs, with what the function does in its items"
        )
    with torch.random.fork_rng(devices=[]):  # which a sampler that shuffles draws from
        return sorted({int(i) for i in loader.sampler})
