"""A model with what is needed to feed it and to read its answer."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from sea_nn.errors import KindError, MissingExtraError
from sea_nn.vision.images import Preprocess


@dataclass(frozen=True)
class LoadedModel:
    """A classifier in evaluation mode and what is needed to feed it and read its answer.

    Attributes:
        model: from inputs [N, *preprocess.shape] to logits [N, number of classes].
        preprocess: from a Pillow image to one input.
        labels: the class names in the order of the logits; may be empty if unknown.
        name: the name it was asked for by.
        source: where it comes from and under which licence.
        notice: what was assumed about it and how to say otherwise; or "".
    """

    model: nn.Module
    preprocess: Preprocess
    labels: tuple[str, ...]
    name: str
    source: str = ""
    notice: str = ""

    def __post_init__(self) -> None:
        for attribute, kind in (("model", nn.Module), ("preprocess", Preprocess), ("name", str)):
            value = getattr(self, attribute)
            if not isinstance(value, kind):
                raise KindError(
                    f"a LoadedModel's {attribute} must be a {kind.__name__}; "
                    f"got {type(value).__name__}"
                )
        if isinstance(self.labels, str) or not isinstance(self.labels, Sequence):
            raise KindError(
                "a LoadedModel's labels are a tuple of class names, or () if they are not known; "
                f"got {type(self.labels).__name__}"
            )
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))

    def label(self, index: int) -> str:
        """Return the name of a class, or "class 7" where the names are not known."""
        return self.labels[index] if 0 <= index < len(self.labels) else f"class {index}"


def load_imagenet_labels() -> tuple[str, ...]:
    """Return the 1000 ImageNet class names, in the usual order.

    >>> load_imagenet_labels()[281]
    'tabby'
    """
    text = (files("sea_nn.vision") / "assets" / "imagenet_labels.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def import_extra(module: str, command: str) -> Any:
    """Import a package that only some models need; the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This model needs the package {module.partition('.')[0]} ({error}). "
            f"Install it with: {command}"
        ) from error
    except RuntimeError as error:  # torchvision beside a torch of another build
        raise MissingExtraError(
            f"The package {module.partition('.')[0]} is installed but does not work with torch "
            f"{torch.__version__} ({error}). Install builds that belong together: {command}"
        ) from error
