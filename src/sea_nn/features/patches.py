"""The patches that a vision transformer cuts an image into."""

from typing import Any

from torch import nn

MOST, LEAST = 8, 4  # cells along a side


def find_patches(model: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Cells of whole patches, at most 8 along a side of images (H, W); None if there are none.

    A transformer's first convolution takes steps of its own size: one patch each. Where there are
    more than eight along a side, neighbours go together: 14 patches are seven cells.

    >>> stem = nn.Conv2d(3, 8, 16, stride=16)
    >>> find_patches(nn.Sequential(stem, nn.MultiheadAttention(8, 2)), (224, 224))
    (7, 7)
    >>> find_patches(stem, (224, 224)) is None  # no attention: no transformer
    True
    """
    if not isinstance(model, nn.Module) or len(shape) != 2 or not attends(model):
        return None
    stem = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    if stem is None or tuple(stem.kernel_size) != tuple(stem.stride) or max(stem.stride) == 1:
        return None
    counts = [side // step for side, step in zip(shape, stem.stride, strict=True)]
    whole = all(n * step == side for n, step, side in zip(counts, stem.stride, shape, strict=True))
    sides = tuple(max(k for k in range(1, MOST + 1) if n % k == 0) for n in counts if n)
    return sides if whole and min(sides, default=0) >= LEAST else None


def attends(model: nn.Module) -> bool:
    """Whether a model has attention, by its layers' names."""
    return any("Attention" in type(module).__name__ for module in model.modules())
