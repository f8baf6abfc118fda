"""What a data set can be.

>>> source = open_source([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
>>> len(source), source.ids[1], source.load(1).x.shape
(2, '1', torch.Size([1, 8, 8]))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from sea_nn.datasets.files import open_files, open_pictures
from sea_nn.datasets.items import Item, Prepare, Reader, Source, hash_bytes, hash_tensor
from sea_nn.errors import InputError, KindError

N_PROBES = 16
"""Items of a data set without files that are read to tell whether it changed."""


def open_source(
    source: Any,
    *,
    preprocess: Prepare | None = None,
    label_names: Sequence[str] | None = None,
    label_column: str | None = None,
    recursive: bool = True,
) -> Source:
    """Return any supported data set as a ``Source``.

    Args:
        source: a folder or glob of pictures, a CSV or Parquet table (of paths or of features), a
            ``.safetensors`` or ``.npz`` file or a folder of them, a map-style data set or a
            DataLoader over one, a Hugging Face data set, a tensor or a list of tensors.
        preprocess: from a Pillow image to the model's input; pictures need it.
        label_names: the model's class names, so that labels may be names.
        label_column: the column or key of the true class; left out, one called "label".
        recursive: also take pictures from folders inside folders.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, str | Path):
        return open_files(str(source), preprocess, label_names, label_column, recursive)
    read = Reader(preprocess, label_names, label_column)
    if isinstance(source, DataLoader):
        return _open_loader(source, read)
    if isinstance(source, Tensor | np.ndarray):
        rows = torch.as_tensor(source)
        if rows.ndim < 2:
            raise InputError(f"a tensor of inputs is [N, ...]; got {list(rows.shape)}")
        return _open_tensors(rows, read)
    if isinstance(source, IterableDataset) or not hasattr(source, "__getitem__"):
        raise KindError(
            f"{type(source).__name__} cannot be read by number, so a run could not be resumed: "
            "give a map-style data set (with len() and [i]), or save it as .safetensors shards"
        )
    if isinstance(source, list | tuple):
        if all(isinstance(entry, str | Path) for entry in source):
            return open_pictures([Path(p) for p in source], "list", preprocess, label_names)
        return _open_tensors(source, read)
    return open_dataset(source, read, range(len(source)))


def open_dataset(
    data: Any, read: Callable[[Any], Item], numbers: Sequence[int], name: str | None = None
) -> Source:
    """A map-style data set; 16 items spread over it are read to tell whether it changed."""
    own = getattr(data, "_fingerprint", None)  # of Hugging Face's data sets
    if own is None:
        places = (
            np.unique(np.linspace(0, len(numbers) - 1, N_PROBES).astype(int)) if numbers else ()
        )
        own = ",".join(_hash_item(data, read, numbers[i]) for i in places)
    return Source(
        kind="dataset",
        name=name or type(data).__name__,
        ids=[str(number) for number in numbers],
        read=lambda index: read(data[numbers[index]]),
        digests=str(own),
    )


def _hash_item(data: Dataset[Any], read: Callable[[Any], Item], number: int) -> str:
    try:
        return hash_tensor(read(data[number]).x)
    except Exception as error:  # a broken item gets its own row later
        return type(error).__name__


def _open_loader(loader: DataLoader[Any], read: Callable[[Any], Item]) -> Source:
    data: Any = loader.dataset
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        raise KindError(
            "this DataLoader reads a stream, whose inputs have no numbers, so a run could not be "
            "resumed: give a map-style data set, or save it as .safetensors shards"
        )
    sampler = loader.sampler
    everything = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement
    )
    numbers = range(len(data)) if everything else sorted({int(i) for i in sampler})
    return open_dataset(data, read, numbers)


def _open_tensors(rows: Any, read: Callable[[Any], Item]) -> Source:
    def digest(index: int) -> str:
        entry = rows[index]
        value = entry[0] if isinstance(entry, tuple) and entry else entry
        if isinstance(value, np.ndarray):
            value = torch.as_tensor(value)
        return hash_tensor(value) if isinstance(value, Tensor) else hash_bytes(repr(value).encode())

    return Source(
        kind="tensors",
        name=f"{len(rows)} inputs in memory",
        ids=[str(i) for i in range(len(rows))],
        read=lambda index: read(rows[index]),
        digests=[digest(i) for i in range(len(rows))],
    )
