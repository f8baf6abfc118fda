"""One input of a data set, and a data set as names of inputs with a way to load each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError

MANIFEST = "manifest.json"
"""The file that makes a folder one of a run's results."""
IMAGE_KEYS = ("pixel_values", "image", "img", "input", "inputs", "x")
LABEL_KEYS = ("label", "labels", "target", "y", "class")

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
        return replace(
            self,
            ids=self.ids[:limit],
            digests=self.digests if isinstance(self.digests, str) else self.digests[:limit],
            paths=None if self.paths is None else self.paths[:limit],
        )


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
