"""A model with what is needed to feed it and to read its answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from sea_nn.errors import KindError
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
