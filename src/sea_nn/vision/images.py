"""Pictures in: read any common image file, and turn it into a model's input.

>>> from PIL import Image
>>> preprocess = Preprocess(resize=256, crop=224)
>>> photo = Image.new("RGB", (640, 480), "red")
>>> preprocess(photo).shape                    # what the model gets
torch.Size([3, 224, 224])
>>> preprocess.display(photo).shape            # the same picture, to draw on
(224, 224, 3)
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from sea_nn.config import check_choice
from sea_nn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Interpolation = Literal["nearest", "box", "bilinear", "bicubic", "lanczos"]

# Only these decoders run: Pillow's others include one that starts Ghostscript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP")


def load_image(source: str | Path | IO[bytes]) -> Image.Image:
    """Read an image file (a path, or an open binary file) as an upright 8-bit RGB picture.

    The camera's rotation note (EXIF) is applied, transparent parts become white, of an animation
    the first frame is taken, and grey values of 16 bits are scaled to 8 (see ``to_rgb``).

    Raises:
        InputError: there is no such file, it is not a readable image, or it is too large.
    """
    name = str(getattr(source, "name", "the image"))
    if isinstance(source, str | Path):
        name = source = os.path.expanduser(source)
        if not os.path.isfile(source):  # reading a pipe or a device might never end
            raise InputError(
                f"There is no image at {source[:200]}: check the name. A folder, a pipe or a "
                "device is none"
            )
    try:
        with warnings.catch_warnings(action="ignore"):  # Pillow warns of odd metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source, formats=FORMATS) as image:
                image.load()
                try:
                    upright = ImageOps.exif_transpose(image)
                except Exception:
                    upright = image.copy()  # a broken EXIF block says nothing about rotation
        return to_rgb(upright)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise InputError(f"{name} is too large. Scale it down first. ({error})") from error
    except Exception as error:  # on damaged files, decoders raise nearly anything
        raise InputError(
            f"{name} is not an image that can be read ({error}), or damaged or cut short. Files "
            f"that work: {', '.join(FORMATS)}"
        ) from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Turn a picture of any Pillow mode into 8-bit RGB, over white where it is transparent.

    Grey values of 16 bits are divided by 257. Of fractions and of more bits nobody knows which
    value is white: they are refused.

    >>> to_rgb(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > 65535:
            raise InputError("its grey values are no numbers of 8 or 16 bits: save it with these")
        return Image.fromarray(np.round(values / 257).astype(np.uint8)).convert("RGB")
    if image.mode.lower().endswith("a") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


@dataclass(frozen=True)
class Preprocess:
    """How one model wants its pictures: resize, crop the centre, scale to [0, 1], normalise.

    Args:
        resize: length that the short side gets, or (height, width) to squash to.
        crop: side of the square cut from the centre, or (height, width).
        mean, std: one value for each channel, for pixel values in [0, 1].
        channels: 3 (RGB) or 1 (grey).
        interpolation: nearest, box, bilinear, bicubic or lanczos.
    """

    resize: int | tuple[int, int]
    crop: int | tuple[int, int]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    channels: Literal[1, 3] = 3
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.channels not in (1, 3) or {len(self.mean), len(self.std)} != {self.channels}:
            raise InputError(
                "channels are 1 (grey) or 3 (RGB), and mean and std one value for each of them; "
                f"got {self.channels} channels, {len(self.mean)} and {len(self.std)} values"
            )
        check_choice("interpolation", self.interpolation, get_args(Interpolation))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The model's input shape (channels, height, width)."""
        return (self.channels, *self._size)

    def __call__(self, image: Image.Image) -> Tensor:
        """Return the model's input for one picture: float32 [C, H, W]."""
        import torch  # here: whether a file is a picture is told without it

        pixels = torch.from_numpy(np.array(self._view(image), np.float32) / 255)
        pixels = pixels.reshape(*self._size, self.channels).permute(2, 0, 1)
        mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        return ((pixels - mean) / std).contiguous()

    def display(self, image: Image.Image) -> NDArray[np.uint8]:
        """Return the picture the model sees, resized and cropped but not normalised.

        Shape [H, W, 3], grey models included, so that a map can be laid over it.
        """
        return np.array(self._view(image).convert("RGB"))

    def window(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Return the part of a width x height picture that the model sees.

        It is (left, top, right, bottom) in pixels of the original: use it to carry boxes over.

        >>> Preprocess(resize=256, crop=224).window(512, 512)
        (32.0, 32.0, 480.0, 480.0)
        """
        if isinstance(self.resize, tuple):
            new_height, new_width = self.resize
        else:
            short = min(width, height)
            new_width, new_height = (self.resize * side // short for side in (width, height))
        crop_height, crop_width = self._size
        left, top = round((new_width - crop_width) / 2), round((new_height - crop_height) / 2)
        across, down = width / new_width, height / new_height
        right, bottom = (left + crop_width) * across, (top + crop_height) * down
        # Rounding must not push the window over the edge.
        return left * across, top * down, min(right, width), min(bottom, height)

    @property
    def _size(self) -> tuple[int, int]:
        return self.crop if isinstance(self.crop, tuple) else (self.crop, self.crop)

    def _view(self, image: Image.Image) -> Image.Image:
        image = to_rgb(image)
        if self.channels == 1:
            image = image.convert("L")
        # Resizing only the window gives the same pixels as resizing everything and cropping,
        # and keeps a very long and narrow picture from filling the memory.
        height, width = self._size
        filter_ = Image.Resampling[self.interpolation.upper()]
        return image.resize((width, height), filter_, box=self.window(*image.size))
