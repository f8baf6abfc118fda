"""One input of a data set, made of whatever the data set gives: tensors, pairs, dicts, pictures."""

from __future__ import annotations

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
        number = int(text) if text.lstrip("-").isdecimal() else None
        names, own = [plain_name(name) for name in self.label_names or ()], self.own_names or ()
        if number is not None and 0 <= number < len(own):
            text, number = own[number], None
        if number is None and plain_name(text) in names:
            return names.index(plain_name(text))
        if number is not None and 0 <= number < (len(names) or MOST_CLASSES):
            return number
        if number is None and not names:
            return None
        raise ItemError("class", f"label {text[:80]} is none of the model's classes")

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
