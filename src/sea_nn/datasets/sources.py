"""What a data set can be.

>>> source = open_source([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
>>> len(source), source.ids[1], source.read(1).x.shape
(2, '1', torch.Size([1, 8, 8]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import default_collate

from sea_nn.datasets.files import open_files, open_pictures
from sea_nn.datasets.items import Prepare, Reader, Source, hash_bytes, plain_name
from sea_nn.errors import InputError, KindError
from sea_nn.explanation.provenance import hash_tensor

N_PROBES = 16
"""Items of a data set without files that are read to tell whether it changed."""


def open_source(
    source: Any,
    *,
    preprocess: Prepare | None = None,
    label_names: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Source:
    """Return any supported data set as a ``Source``.

    Args:
        source: a folder or glob of pictures, a CSV or Parquet table (of paths or of features), a
            ``.safetensors`` or ``.npz`` file or a folder of them, a map-style data set or a
            DataLoader over one, a Hugging Face data set, a tensor or a list of tensors.
        preprocess: from a Pillow image to the model's input; pictures need it.
        label_names: the model's class names, so that labels may be names.
        label_column: the column or key of the true class; left out, one called "label".
    """
    reader = Reader(preprocess, label_names, label_column)
    if isinstance(source, str | Path):
        return open_files(str(source), reader)
    numbers: Sequence[int] | None = None
    if isinstance(source, DataLoader):
        source, numbers = _open_loader(source)
    if isinstance(source, Tensor | np.ndarray):
        source = torch.as_tensor(source)
        if source.ndim < 2:
            raise InputError(f"a tensor of inputs is [N, ...]; got {list(source.shape)}")
        return _open_tensors(source, reader)
    if isinstance(source, IterableDataset) or not hasattr(source, "__getitem__"):
        raise KindError(
            f"{type(source).__name__} cannot be read by number, so a run could not be resumed: "
            "give a map-style data set (with len() and [i]), or save it as .safetensors files"
        )
    if isinstance(source, list | tuple):
        if source and all(isinstance(entry, str | Path) for entry in source):
            return open_pictures([Path(p) for p in source], f"{len(source)} files", reader)
        return _open_tensors(source, reader)
    return _open_dataset(source, reader, range(len(source)) if numbers is None else numbers)


def _open_dataset(data: Any, reader: Reader, numbers: Sequence[int]) -> Source:
    """A map-style data set; 16 items spread over it are read to tell whether it changed."""
    reader = replace(reader, own_names=_find_names(data, reader))
    own = getattr(data, "_fingerprint", None)  # of Hugging Face's data sets
    digests = ["" if own is None else str(own)] * len(numbers)
    if own is None:
        for place in {i * (len(numbers) - 1) // (N_PROBES - 1) for i in range(N_PROBES)}:
            if 0 <= place < len(numbers):
                try:
                    digests[place] = hash_tensor(reader(data[numbers[place]]).x)
                except Exception as error:  # a broken item gets its own row later
                    digests[place] = type(error).__name__
    ids = [str(number) for number in numbers]
    return Source(type(data).__name__, ids, lambda i: reader(data[numbers[i]]), digests)


def _find_names(data: Any, reader: Reader) -> Sequence[str] | None:
    """The data set's own class names, if all of them are the model's: then names decide."""
    features: Any = getattr(data, "features", None)  # Hugging Face's; torchvision has ``classes``
    key = reader.find_column(features) if isinstance(features, dict) else None
    names = getattr(features[key], "names", None) if key else getattr(data, "classes", None)
    known = {plain_name(name) for name in reader.label_names or ()}
    if isinstance(names, list | tuple) and names and {plain_name(str(n)) for n in names} <= known:
        return [str(n) for n in names]
    return None


def _open_loader(loader: DataLoader[Any]) -> tuple[Any, Sequence[int]]:
    """A loader's data set, and the numbers that its sampler takes, in order."""
    data: Any = loader.dataset
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        raise KindError(
            "this DataLoader reads a stream, whose inputs have no numbers, so a run could not be "
            "resumed: give a map-style data set, or save it as .safetensors files"
        )
    if loader.collate_fn is not default_collate and loader.batch_size is not None:
        raise KindError(
            "this DataLoader has a collate_fn of its own, and a run makes its own batches: give "
            "a data set whose items are the inputs, with what the function does in its items"
        )
    sampler = loader.sampler
    everything = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement
    )
    return data, range(len(data)) if everything else sorted({int(i) for i in sampler})


def _open_tensors(rows: Any, reader: Reader) -> Source:
    def digest(entry: Any) -> str:
        value = entry[0] if isinstance(entry, tuple) and entry else entry
        if isinstance(value, np.ndarray):
            value = torch.as_tensor(value)
        return hash_tensor(value) if isinstance(value, Tensor) else hash_bytes(repr(value).encode())

    ids = [str(i) for i in range(len(rows))]
    return Source(
        "the data in memory",
        ids,
        lambda index: reader(rows[index]),
        [digest(entry) for entry in rows],
    )
