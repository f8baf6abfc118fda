"""What a data set can be.

>>> source = open_source([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
>>> len(source), source.ids[1], source.read(1).x.shape
(2, '1', torch.Size([1, 8, 8]))
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import default_collate

from sea_nn.datasets.files import list_files, open_pictures
from sea_nn.datasets.fingerprint import fingerprint
from sea_nn.datasets.items import Prepare, Reader, Source, find_digest, plain_name
from sea_nn.datasets.tables import TABLES, TENSORS, open_table, open_tensor_files
from sea_nn.errors import InputError, KindError
from sea_nn.vision.names import NIFTI, PICTURES

N_PROBES = 16
"""Items of a data set without files that are read to tell whether it changed."""


def open_source(
    source: Any,
    *,
    preprocess: Prepare | None = None,
    label_names: Sequence[str] | None = None,
    label_column: str | None = None,
    out: Path | None = None,
) -> Source:
    """Return any supported data set as a ``Source``.

    Args:
        source: a folder or glob of pictures, a CSV or Parquet table (of paths or of features), a
            ``.safetensors`` or ``.npz`` file or a folder of them, a map-style data set or a
            DataLoader over one, a Hugging Face data set, a tensor or a list of tensors.
        preprocess: from a Pillow image to the model's input; pictures need it.
        label_names: the model's class names, so that labels may be names.
        label_column: the column or key of the true class; left out, one called "label".
        out: the folder of the results; inputs must not lie in it.
    """
    reader = Reader(preprocess, label_names, label_column)
    if isinstance(source, str | Path):
        return _open_files(str(source), reader, out)
    numbers: Sequence[int] | None = None
    if isinstance(source, DataLoader):
        source, numbers = _open_loader(source)
    if isinstance(source, Tensor | np.ndarray):
        source = torch.as_tensor(source)
        if source.ndim < 2:
            raise InputError(f"a tensor of inputs is [N, ...]; got {list(source.shape)}")
        return _open_items("the data in memory", source, reader)
    if isinstance(source, IterableDataset) or not hasattr(source, "__getitem__"):
        raise KindError(
            f"{type(source).__name__} cannot be read by number, so a run could not be resumed: "
            "give a map-style data set (with len() and [i]), or save it as .safetensors files"
        )
    if isinstance(source, list | tuple):
        if source and all(isinstance(entry, str | Path) for entry in source):
            return open_pictures([Path(p) for p in source], f"{len(source)} files", reader)
        return _open_items("the data in memory", source, reader)
    numbers = range(len(source)) if numbers is None else numbers
    reader = replace(reader, own_names=_find_names(source, reader))
    return _open_items(type(source).__name__, source, reader, numbers)


def _open_files(text: str, reader: Reader, out: Path | None) -> Source:
    """A path or glob as a ``Source``; what it holds decides the kind."""
    path, found = Path(text).expanduser(), list_files(text, out)
    if out is not None:
        for one in found:
            if out in one.resolve().parents:
                raise InputError(
                    f"the results would lie among the inputs: {one} is in {out}. Choose a folder "
                    "for them that holds no inputs"
                )
    if len(found) == 1 and found[0] == path and path.suffix.lower() in TABLES:
        return open_table(path, reader)
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
        return open_tensor_files(kinds["tensor files"], text, reader, base)
    return open_pictures(kinds[there[0]], text, reader, base)


def _open_items(
    name: str, data: Any, reader: Reader, numbers: Sequence[int] | None = None
) -> Source:
    """What is read by number; of a data set that is not in memory, 16 items tell of a change."""
    memory = numbers is None
    numbers = range(len(data)) if numbers is None else numbers
    version = str(getattr(data, "_fingerprint", ""))  # of Hugging Face's data sets
    places = {i * (len(numbers) - 1) // (N_PROBES - 1) for i in range(N_PROBES)}

    def fetch(index: int) -> tuple[Any, str]:
        entry = data[numbers[index]]
        if memory:  # which may be written to while it is worked on
            entry = copy.deepcopy(entry)
        tells = not version and (memory or index in places)
        return entry, fingerprint(entry) if tells else ""

    told = range(len(numbers)) if memory else places
    digests = [
        find_digest(fetch, index) if index in told and not version else version
        for index in range(len(numbers))
    ]
    return Source(name, list(map(str, numbers)), fetch, reader, digests)


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
