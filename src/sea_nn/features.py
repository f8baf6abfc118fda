"""Which features count as one: cells of a grid, feature masks, superpixels."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError, KindError, MemberError, MissingExtraError

MAX_SEGMENTS = 4096


def group_features(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A feature mask as group numbers 0 … k-1 over the map: int64 [1, *shape]."""
    mask = torch.as_tensor(mask)
    if mask.is_floating_point() or mask.is_complex():
        raise KindError(f"feature_mask must hold whole numbers; got {mask.dtype}")
    while mask.ndim > len(shape):
        if not bool((mask == mask[:1]).all()):
            raise InputError(
                f"feature_mask must be one mask over the map {list(shape)} for all inputs (and "
                f"channels); this one, {list(mask.shape)}, differs between them. Explain inputs "
                "with masks of their own one by one"
            )
        mask = mask[0]
    try:
        mask = mask.expand(shape)
    except RuntimeError as error:
        raise InputError(
            f"feature_mask must broadcast to the map {list(shape)}; got {list(mask.shape)}"
        ) from error
    groups: Tensor = mask.unique(return_inverse=True)[1]
    return groups.reshape(1, *shape)


def broadcast_mask(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """A feature mask as group numbers that broadcast to the inputs, for members; None: none."""
    if mask is None:
        return None
    shape = tuple(x.shape[2:]) if x.ndim == 4 else tuple(x.shape[1:])
    groups = group_features(mask, shape).to(x.device)
    return groups.unsqueeze(1) if x.ndim == 4 else groups


def average_groups(maps: Tensor, groups: Tensor) -> Tensor:
    """Mean over each group: [N, m, *shape] and groups [1, *shape] -> [N, m, k]."""
    index = groups.reshape(1, 1, -1).expand(*maps.shape[:2], -1)
    empty = maps.new_zeros(*maps.shape[:2], int(groups.max()) + 1)
    sums = empty.scatter_add(2, index, maps.flatten(2))
    return sums / empty.scatter_add(2, index, torch.ones_like(index, dtype=sums.dtype))


def expand_mask(mask: Tensor, name: str, count: int, shape: tuple[int, ...]) -> Tensor:
    """A bool mask over the map, for all inputs or for each, as [N, *shape]; errors name it."""
    try:
        mask = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(f"{name} must be a bool mask of shape {shape}; got {mask!r}") from error
    if mask.dtype != torch.bool or tuple(mask.shape) not in (shape, (count, *shape)):
        raise InputError(
            f"{name} must be a bool mask of shape {shape} or {(count, *shape)}; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask.expand(count, *shape)


def mark_groups(mask: Tensor | None, groups: Tensor, count: int, name: str) -> Tensor | None:
    """Which groups a mask over the map touches, bool [N, k] for ``count`` inputs; None: no mask."""
    if mask is None:
        return None
    flat = expand_mask(mask, name, count, tuple(groups.shape[1:])).to(groups.device).flatten(1)
    hit = torch.zeros(count, int(groups.max()) + 1, device=flat.device)
    return hit.scatter_add_(1, groups.reshape(1, -1).expand(count, -1), flat.float()) > 0


def spread(values: Tensor, groups: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give every pixel its group's value: [N, k] -> [N, *shape]."""
    index = groups.reshape(1, -1).expand(len(values), -1)
    return values.gather(1, index).reshape(-1, *shape)


def number_cells(
    grid: Sequence[int], shape: Sequence[int], device: torch.device | None = None
) -> Tensor:
    """The cell of a grid (rows, columns) that each pixel belongs to, row by row: int64 [H, W].

    >>> number_cells((2, 2), (2, 4)).tolist()
    [[0, 0, 1, 1], [2, 2, 3, 3]]
    """
    rows, columns = grid
    row = cell_of(shape[0], rows, device).unsqueeze(1)
    return row * columns + cell_of(shape[1], columns, device)


def cell_of(size: int, cells: int, device: torch.device | None = None) -> Tensor:
    """Which of ``cells`` cells each of ``size`` positions belongs to: a partition, all non-empty.

    Cells differ by at most one position when ``cells`` does not divide ``size``.
    """
    return torch.arange(size, device=device) * cells // size


def clip_grid(grid: Sequence[int], shape: Sequence[int]) -> tuple[int, int]:
    """The grid that an image of this shape can fill: never finer than its pixels."""
    rows, columns = (min(int(g), int(s)) for g, s in zip(grid, shape, strict=True))
    return rows, columns


def sum_cells(maps: Tensor, grid: Sequence[int]) -> Tensor:
    """Sum over each cell of the grid: [..., H, W] -> [..., rows, columns]."""
    rows, columns = clip_grid(grid, maps.shape[-2:])
    left = functional.one_hot(cell_of(maps.shape[-2], rows, maps.device), rows).to(maps.dtype)
    right = functional.one_hot(cell_of(maps.shape[-1], columns, maps.device), columns).to(
        maps.dtype
    )
    return left.mT @ maps @ right


def superpixels(image: Tensor, n_segments: int = 50, compactness: float = 10.0) -> Tensor:
    """Return SLIC superpixels of an image [C, H, W] as numbers 0, 1, ... in a tensor [H, W].

    Any value range will do: the image is stretched to [0, 1] first. Three channels are read as RGB
    and compared as people see them (CIELAB); any other number as it is.
    """
    try:
        from skimage.segmentation import slic
    except ImportError as error:
        raise MissingExtraError(
            "superpixels need scikit-image: pip install 'sea-nn[vision]', or pass feature_mask="
        ) from error
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


def segment(x: Tensor, feature_mask: Tensor | None = None, n_segments: int = 50) -> list[Tensor]:
    """Return the segments of every input of x [N, ...], each a tensor that broadcasts to x[i].

    Args:
        x: the inputs.
        feature_mask: the caller's segments, whole numbers that broadcast to `x`, if any.
        n_segments: about how many superpixels to make of an image [C, H, W]; inputs of other kinds
            have one segment a feature.
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
    elif x.ndim == 4:
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
