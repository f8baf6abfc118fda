"""One light type for every image data set: items that read their picture when asked.

>>> from sea_nn.vision.images import Preprocess
>>> grey = Image.new("L", (80, 60), 128)
>>> item = Item("grey", read=lambda: grey, label=0, boxes=((20.0, 15.0, 60.0, 45.0),))
>>> view = item.view(Preprocess(resize=30, crop=30))
>>> view.tensor.shape, view.boxes                 # the box as the model sees it
(torch.Size([3, 30, 30]), ((5.0, 7.5, 25.0, 22.5),))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sea_bench.data.files import Mask
from sea_nn.errors import InputError
from sea_nn.vision.images import Preprocess

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels: edges, so that width is right - left."""
Split = Literal["train", "test", "all"]


class View(NamedTuple):
    """An item as one model sees it; every part lines up with the model's input pixel by pixel.

    Masks of zeros and ones stay so; boxes are cut off at the edge of the view.
    """

    tensor: Tensor  # [C, H, W]
    mask: Tensor | None  # float32 [H, W] in [0, 1]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Item:
    """One picture of a data set and what is known about it. Nothing is read before it is asked for.

    Attributes:
        name: unique within its set.
        read: reads the picture.
        label: index into the set's ``classes``; None where nobody labelled it.
        split: "train" or "test".
        group: items of one group (one patient, say) must stay on one side of a split.
        masks: readers of float32 [height, width] in [0, 1]; the first is the usual one. A mask may
            have another resolution than the picture: it covers the same area.
        boxes: object boxes in pixels of the picture.
        imagenet: the ImageNet class index, where the label has one.
        plain: the same picture without its object, where there is such a picture.
    """

    name: str
    read: Callable[[], Image.Image]
    label: int | None = None
    split: str = "test"
    group: str = ""
    masks: Mapping[str, Callable[[], Mask]] = field(default_factory=dict)
    boxes: tuple[Box, ...] = ()
    imagenet: int | None = None
    plain: "Item | None" = None

    def read_mask(self, kind: str | None = None) -> Mask:
        """Return a mask [height, width] in [0, 1] as stored, by default the first kind."""
        kind = next(iter(self.masks), "") if kind is None else kind
        if kind not in self.masks:
            known = ", ".join(self.masks) or "none"
            raise InputError(f"The item {self.name} has no mask {kind!r}; it has {known}.")
        return self.masks[kind]()

    def view(self, preprocess: Preprocess, mask: str | None = None) -> View:
        """Return the picture, a mask (by default the first) and the boxes as a model sees them."""
        picture = self.read()
        size, wanted = picture.size, bool(self.masks) or mask is not None
        fitted = fit_mask(self.read_mask(mask), size, preprocess) if wanted else None
        boxes = (fit_box(box, size, preprocess) for box in self.boxes)
        return View(preprocess(picture), fitted, tuple(box for box in boxes if box is not None))


def fit_mask(mask: Mask, size: tuple[int, int], preprocess: Preprocess) -> Tensor:
    """Cut and resize a mask as ``preprocess`` does with its picture of (width, height) ``size``.

    Returns float32 [H, W]. A mask of zeros and ones is rounded back to them.
    """
    height, width = mask.shape
    left, top, right, bottom = preprocess.window(*size)
    across, down = width / size[0], height / size[1]
    window = (left * across, top * down, min(right * across, width), min(bottom * down, height))
    _, out_height, out_width = preprocess.shape
    whole, bilinear = Image.fromarray(np.ascontiguousarray(mask)), Image.Resampling.BILINEAR
    resized = whole.resize((out_width, out_height), bilinear, box=window)
    fitted = torch.from_numpy(np.array(resized)).clamp(0, 1)
    binary = bool(((mask == 0) | (mask == 1)).all())
    return (fitted >= 0.5).float() if binary else fitted


def fit_box(box: Box, size: tuple[int, int], preprocess: Preprocess) -> Box | None:
    """Return a box of a (width, height) picture in pixels of the view, or None if it is outside.

    >>> fit_box((0, 0, 64, 64), (128, 64), Preprocess(resize=32, crop=32))
    (0.0, 0.0, 16.0, 32.0)
    """
    left, top, right, bottom = preprocess.window(*size)
    _, height, width = preprocess.shape
    across, down = width / (right - left), height / (bottom - top)
    x1, x2 = (min(max((x - left) * across, 0.0), float(width)) for x in (box[0], box[2]))
    y1, y2 = (min(max((y - top) * down, 0.0), float(height)) for y in (box[1], box[3]))
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 else None


def fill_boxes(boxes: Sequence[Box], height: int, width: int) -> Tensor:
    """Return bool [height, width]: the pixels whose centre lies in any of the boxes."""
    y = torch.arange(height)[:, None] + 0.5
    x = torch.arange(width) + 0.5
    inside = torch.zeros(height, width, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        inside |= (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return inside


@dataclass(frozen=True)
class ImageSet(Sequence[Item]):
    """A data set: a sequence of items, and their class names in the order of the labels.

    ``notes`` are what readers of results should know, such as removed copies.
    """

    items: tuple[Item, ...]
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def choose(self, keep: Callable[[Item], bool]) -> "ImageSet":
        """Return the items for which ``keep`` says yes."""
        return replace(self, items=tuple(item for item in self.items if keep(item)))

    def sample(self, count: int, seed: int = 0) -> "ImageSet":
        """Return ``count`` items drawn at random without repetition, in the set's order."""
        chosen = np.random.default_rng(seed).choice(len(self), count, replace=False)
        return replace(self, items=tuple(self.items[i] for i in sorted(chosen)))
