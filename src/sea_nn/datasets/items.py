"""One input of a data set, and a data set as names of inputs with a way to read each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.vision.images import to_rgb

IMAGE_KEYS = ("pixel_values", "image", "img", "input", "inputs", "x")
LABEL_KEYS = ("label", "labels", "target", "y", "class")
MISSING = ("", "nan", "none", "null", "-1")  # what tables have for an unknown class
MOST_CLASSES = 1 << 31

Prepare = Callable[[Any], Tensor]


class ItemError(InputError):
    """One input cannot be explained; ``kind`` is the word that its row gets."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Item:
    """One input, without a batch axis, and its true class where that is known."""

    x: Tensor
    label: int | None = None


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

    def fingerprint(self, numbers: Sequence[int]) -> str:
        """One hash of the ids and contents of some inputs."""
        told = [(self.ids[number], self.digests[number]) for number in numbers]
        return hash_bytes(repr(told).encode())

    def first(self, limit: int | None) -> Source:
        """The first ``limit`` inputs only."""
        if limit is not None and limit < 1:
            raise InputError(f"limit must be at least 1; got {limit}")
        paths = None if self.paths is None else self.paths[:limit]
        return replace(self, ids=self.ids[:limit], digests=self.digests[:limit], paths=paths)


def find_digest(fetch: Callable[[int], tuple[Any, str]], index: int) -> str:
    """The hash of an input as the run begins; one that cannot be read gets its own row later."""
    try:
        return fetch(index)[1]
    except Exception as error:  # users' data sets raise nearly anything
        return type(error).__name__


@dataclass(frozen=True)
class Reader:
    """Makes an ``Item`` of whatever a data set gives: tensors, pairs, dicts, pictures.

    ``label_names`` are the model's classes, ``own_names`` the data set's own, where it numbers them
    otherwise; without a ``label_column``, one with a usual name is taken.
    """

    preprocess: Prepare | None = None
    label_names: Sequence[str] | None = None
    label_column: str | None = None
    own_names: Sequence[str] | None = None

    def knows(self, name: Any) -> bool:
        """Whether a name is that of a class of the model."""
        return plain_name(str(name)) in map(plain_name, self.label_names or ())

    def adapt(self, data: Any) -> Reader:
        """This reader with a data set's own class names, if all of them are the model's."""
        features: Any = getattr(data, "features", None)  # Hugging Face's; torchvision: ``classes``
        key = find_column(features, self.label_column) if isinstance(features, dict) else None
        names = getattr(features[key], "names", None) if key else getattr(data, "classes", None)
        if isinstance(names, list | tuple) and names and all(map(self.knows, names)):
            return replace(self, own_names=list(map(str, names)))
        return self

    def __call__(self, entry: Any) -> Item:
        """Return the input and its label."""
        label: Any = None
        if isinstance(entry, Mapping):
            column = find_column(entry, self.label_column)
            label = None if column is None else entry[column]
            found = next((key for key in IMAGE_KEYS if key in entry), None)
            if found is None:
                raise InputError(
                    f"an item has the keys {', '.join(map(str, entry))}; the input is looked for "
                    f"under {', '.join(IMAGE_KEYS)}"
                )
            entry = entry[found]
        elif isinstance(entry, tuple | list) and len(entry) in (1, 2):
            entry, label = (*entry, None)[:2]
        return Item(self.to_tensor(entry), self.find_label(label))

    def find_label(self, label: Any) -> int | None:
        """The class number that a label means: a number, or a name among the model's classes.

        None where it is not known; by a wide custom that is also what -1 means.
        """
        value = np.asarray(label.cpu() if isinstance(label, Tensor) else label)
        if value.size != 1:
            raise ItemError("class", f"a label is one class; it is of {list(value.shape)}")
        text = str(value.item()).strip().removesuffix(".0")
        if text.casefold() in MISSING:
            return None
        names = [plain_name(name) for name in self.label_names or ()]
        own, count = self.own_names or (), len(names) or MOST_CLASSES
        if text.lstrip("-").isdecimal():
            number = int(text) if len(text) < 20 else count
            if 0 <= number < len(own):
                text = own[number]
            elif 0 <= number < count:
                return number
            else:
                raise ItemError("class", f"label {text[:20]} is none of 0 to {count - 1}")
        if plain_name(text) in names:
            return names.index(plain_name(text))
        if names:
            raise ItemError("class", f"the model has no class named {text[:80]!r}")
        return None

    def to_tensor(self, value: Any) -> Tensor:
        """An array or picture as the model's input."""
        if isinstance(value, np.ndarray | np.generic | list | tuple):
            value = torch.as_tensor(np.asarray(value))
        if isinstance(value, Tensor):
            if value.is_floating_point():
                return value.detach().cpu().to(torch.float32)
            raise KindError(
                f"inputs must be floating-point tensors; got {value.dtype}. Give pixels of 8 bits "
                "as Pillow images, with a preprocess"
            )
        if hasattr(value, "convert") and hasattr(value, "size"):  # a Pillow image
            if self.preprocess is None:
                raise KindError("pictures need a preprocess, from a Pillow image to a tensor")
            return self.preprocess(to_rgb(value))
        raise KindError(f"an input must be a tensor, an array or a picture; got {type(value)}")


def find_column(names: Collection[str], label_column: str | None) -> str | None:
    """Which of these holds the true class."""
    wanted = LABEL_KEYS if label_column is None else (label_column,)
    return next((name for name in wanted if name in names), None)


def plain_name(name: str) -> str:
    """A class's name without case and underscores, to compare names of several origins."""
    return name.casefold().replace("_", " ")


def hash_bytes(content: bytes) -> str:
    """A short hash of a content."""
    return hashlib.sha256(content).hexdigest()[:16]
