"""What a data set can be, and how one of its inputs is loaded.

>>> source = open_source([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
>>> len(source), source.ids[1], source.load(1).x.shape
(2, '1', torch.Size([1, 8, 8]))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from sea_nn.errors import InputError, KindError

IMAGE_KEYS = ("pixel_values", "image", "img", "input", "inputs", "x")
LABEL_KEYS = ("label", "labels", "target", "y", "class")
N_PROBES = 16
"""Items of a data set without files that are read to tell whether it changed."""

Prepare = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Item:
    """One input, without a batch axis, and its true class where that is known."""

    x: Tensor
    label: int | None = None


@dataclass(frozen=True)
class Source:
    """A data set: names of its inputs, and a way to load each.

    Attributes:
        kind: "pictures", "table", "tensors", "shards" or "dataset".
        name: what to call it.
        ids: a unique name for each input.
        read: loads the input of a number.
        digests: a hash of each input's content; where that is too dear, one hash of all.
        paths: the file of each input.
        threads: how many threads may load at once.
    """

    kind: str
    name: str
    ids: Sequence[str]
    read: Callable[[int], Item]
    digests: Sequence[str] | str
    paths: Sequence[str] | None = None
    threads: int = 1
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.ids) == 0:
            raise InputError(f"{self.name} holds no inputs")
        if len(set(self.ids)) < len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise InputError(f"ids must be unique; {twice!r} names more than one input")

    def __len__(self) -> int:
        return len(self.ids)

    def load(self, index: int) -> Item:
        """Return one input.

        Raises:
            Exception: whatever a broken file or a failing data set raises.
        """
        return self.read(index)

    def fingerprint(self) -> str:
        """One hash of ids and contents."""
        whole = hashlib.sha256()
        digests = [self.digests] if isinstance(self.digests, str) else self.digests
        for text in (*self.ids, *digests):
            whole.update(text.encode("utf-8", "surrogateescape") + b"\0")
        return whole.hexdigest()[:32]

    def first(self, limit: int | None) -> Source:
        """The first ``limit`` inputs only."""
        if limit is None or limit >= len(self):
            return self
        if limit < 1:
            raise InputError(f"limit must be at least 1; got {limit}")
        return Source(
            self.kind,
            self.name,
            self.ids[:limit],
            self.read,
            self.digests if isinstance(self.digests, str) else self.digests[:limit],
            None if self.paths is None else self.paths[:limit],
            self.threads,
            self.notes,
        )


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
        from sea_nn.datasets.files import open_files

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
            from sea_nn.datasets.files import open_pictures

            return open_pictures([Path(p) for p in source], "list", preprocess, label_names)
        return _open_tensors(source, read)
    return open_dataset(source, read, range(len(source)))


@dataclass(frozen=True)
class Reader:
    """Makes an ``Item`` of whatever a data set gives: tensors, pairs, dicts, pictures."""

    preprocess: Prepare | None = None
    label_names: Sequence[str] | None = None
    label_column: str | None = None

    def __call__(self, entry: Any) -> Item:
        """Return the input and its label."""
        label: Any = None
        if isinstance(entry, Mapping):
            entry, label = self._pick(entry)
        elif isinstance(entry, tuple | list) and len(entry) in (1, 2):
            entry, label = entry[0], entry[1] if len(entry) == 2 else None
        return Item(self._to_tensor(entry), find_label(label, self.label_names))

    def _pick(self, entry: Mapping[str, Any]) -> tuple[Any, Any]:
        keys = [key for key in IMAGE_KEYS if key in entry]
        if not keys:
            raise InputError(
                f"an item has the keys {', '.join(map(str, entry))}; the input is looked for under "
                f"{', '.join(IMAGE_KEYS)}"
            )
        names = LABEL_KEYS if self.label_column is None else (self.label_column,)
        return entry[keys[0]], next((entry[name] for name in names if name in entry), None)

    def _to_tensor(self, value: Any) -> Tensor:
        if isinstance(value, np.ndarray | np.generic | list | tuple):
            value = torch.as_tensor(np.asarray(value))
        if isinstance(value, Tensor):
            if value.dtype == torch.uint8 and self.preprocess is not None:
                return self.preprocess(_to_picture(value))
            if value.is_floating_point():
                return value.detach().cpu().to(torch.float32)
            raise KindError(
                f"inputs must be floating-point tensors; got {value.dtype}. Pixels of 8 bits need "
                "a preprocess"
            )
        if hasattr(value, "convert") and hasattr(value, "size"):  # a Pillow image
            if self.preprocess is None:
                raise KindError("pictures need a preprocess, from a Pillow image to a tensor")
            return self.preprocess(value)
        raise KindError(f"an input must be a tensor, an array or a picture; got {type(value)}")


def find_label(label: Any, names: Sequence[str] | None) -> int | None:
    """The class number that a label means: a number, or a name among ``names``."""
    if label is None or (isinstance(label, float) and np.isnan(label)):
        return None
    if isinstance(label, Tensor | np.generic):
        label = label.item()
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, int):
        return int(label)
    text = str(label).strip()
    if text.lstrip("-").isdecimal():
        return int(text)
    wanted = text.casefold().replace("_", " ")
    for number, name in enumerate(names or ()):
        if name.casefold().replace("_", " ") == wanted:
            return number
    if names:
        raise InputError(f"the model has no class named {text!r}")
    return None


def hash_bytes(content: bytes | memoryview) -> str:
    """A short hash of a content."""
    return hashlib.sha256(content).hexdigest()[:16]


def hash_tensor(value: Tensor) -> str:
    """A short hash of a tensor's type, shape and values."""
    plain = value.detach().cpu().contiguous()
    head = f"{plain.dtype}{list(plain.shape)}".encode()
    return hash_bytes(head + plain.reshape(-1).view(torch.uint8).numpy().tobytes())


def open_dataset(
    data: Any, read: Callable[[Any], Item], numbers: Sequence[int], name: str | None = None
) -> Source:
    """A map-style data set; 16 items spread over it are read to tell whether it changed."""
    own = getattr(data, "_fingerprint", None)  # of Hugging Face's data sets
    if own is None:
        places = np.unique(np.linspace(0, len(numbers) - 1, N_PROBES).astype(int)) if numbers else ()
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


def _to_picture(value: Tensor) -> Any:
    """Pixels, uint8 [H, W], [H, W, 3] or [C, H, W], as a Pillow image."""
    from PIL import Image

    if value.ndim == 3 and value.shape[0] in (1, 3) and value.shape[2] not in (1, 3):
        value = value.permute(1, 2, 0)
    if value.ndim == 3 and value.shape[2] == 1:
        value = value[..., 0]
    if value.ndim not in (2, 3):
        raise InputError(f"pixels must be [H, W], [H, W, 3] or [C, H, W]; got {list(value.shape)}")
    return Image.fromarray(value.contiguous().numpy()).convert("RGB")
