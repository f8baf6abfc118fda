"""Segments for members that switch parts of an input off: superpixels, or a caller's mask."""

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError, MemberError
from sea_nn.extras import import_extra
from sea_nn.features.kinds import Kind, find_kind

MAX_SEGMENTS = 4096


def superpixels(image: Tensor, n_segments: int = 50, compactness: float = 10.0) -> Tensor:
    """Return SLIC superpixels of an image [C, H, W] as numbers 0, 1, ... in a tensor [H, W].

    Any value range will do: the image is stretched to [0, 1] first. Three channels are read as RGB
    and compared as people see them (CIELAB); any other number as it is.
    """
    slic = import_extra("skimage.segmentation", "a member with superpixels of its own").slic
    if image.ndim != 3:
        raise InputError(f"an image must be [C, H, W]; got {list(image.shape)}")
    pixels = image.detach().to("cpu", torch.float64).permute(1, 2, 0).numpy()
    low, high = pixels.min(), pixels.max()
    pixels = (pixels - low) / (high - low) if high > low else np.zeros_like(pixels)
    colour = image.shape[0] == 3
    for tighter in (1, 10, 100, 1000):
        labels = slic(
            pixels,
            n_segments=n_segments,
            # Lab values run to 100, others to 1, and both are weighed against distances.
            compactness=tighter * compactness / (1 if colour else 100),
            convert2lab=colour,
            channel_axis=-1,
            start_label=0,
        )
        segments = number_segments(torch.as_tensor(labels))
        # On noisy pictures SLIC melts everything into one; squarer segments prevent that.
        if int(segments.max()) + 1 >= n_segments / 2:
            break
    return segments


def number_segments(mask: Tensor) -> Tensor:
    """Return a mask of whole numbers with its values renumbered 0, 1, ... without gaps."""
    if mask.is_floating_point() or mask.dtype == torch.bool:
        raise KindError(f"feature_mask must hold whole segment numbers, got {mask.dtype}")
    numbers: Tensor = torch.unique(mask, return_inverse=True)[1]
    return numbers


def segment(
    x: Tensor,
    feature_mask: Tensor | None = None,
    n_segments: int = 50,
    kind: Kind | None = None,
) -> list[Tensor]:
    """Return the segments of every input of x [N, ...], each a tensor that broadcasts to x[i].

    Args:
        x: the inputs.
        feature_mask: the caller's segments, whole numbers that broadcast to `x`, if any.
        n_segments: about how many superpixels to make of an image [C, H, W]; inputs of other kinds
            have one segment a feature.
        kind: of the inputs; left out, found from x.
    """
    if feature_mask is not None:
        if not _broadcasts(feature_mask.shape, x.shape):
            raise InputError(
                f"feature_mask must broadcast to the input {list(x.shape)}; "
                f"got {list(feature_mask.shape)}"
            )
        if feature_mask.ndim < x.ndim:
            feature_mask = feature_mask.unsqueeze(0)
        masks = feature_mask if len(feature_mask) == len(x) else [feature_mask[0]] * len(x)
        segments = [number_segments(mask.to(x.device)) for mask in masks]
    elif (find_kind(x) if kind is None else kind).view == "picture":
        segments = [superpixels(image, n_segments).to(x.device) for image in x]
    else:
        every = torch.arange(x[0].numel(), device=x.device).view(x.shape[1:])
        segments = [every] * len(x)
    most = max(int(s.max()) + 1 for s in segments)
    if most > MAX_SEGMENTS:
        raise MemberError(
            f"{most} segments are too many for a linear surrogate (at most {MAX_SEGMENTS}); group "
            "features with feature_mask=, whole numbers of the input's shape"
        )
    return segments


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, whole) for size, whole in pairs)
