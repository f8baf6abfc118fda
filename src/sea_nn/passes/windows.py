"""Which positions of an image a layer's answers read.

>>> around = measure(nn.Conv2d(1, 1, 3, padding=1), (4, 4))
>>> around.reads[5].tolist()
[0, 1, 2, 4, 5, 6, 8, 9, 10]
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from sea_nn.passes.norm_folding import is_frozen_norm, is_plain, is_unheard

POINTWISE = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SiLU,
    nn.GELU,
    nn.Hardswish,
    nn.Sigmoid,
    nn.Tanh,
    nn.Dropout,
    nn.Dropout2d,
    nn.Identity,
)
"""Layers that give every position of an image its own answer, as norms in evaluation mode do."""
WINDOWS = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)
"""Layers whose every answer reads a window of positions."""


@dataclass(frozen=True)
class Geometry:
    """Which positions of an image a layer's answers read.

    Attributes:
        shape: of the answers, (H, W).
        reads: for each answer the positions it reads [n_out, K], `n_in` for those in the padding.
        readers: for each position the answers that read it [n_in, M], filled up with `n_out`.
    """

    shape: tuple[int, int]
    reads: Tensor
    readers: Tensor


def is_local(layer: nn.Module) -> bool:
    """Whether a layer's answers read no more than a window each, as `measure` knows how."""
    if not is_unheard(layer):
        return False
    if type(layer) is nn.Conv2d:
        return is_plain(layer)
    if type(layer) is nn.MaxPool2d:
        whole = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
        return whole and not layer.ceil_mode and not layer.return_indices
    if type(layer) is nn.AvgPool2d:
        whole = layer.padding in (0, (0, 0)) and layer.divisor_override is None
        return whole and not layer.ceil_mode
    return type(layer) in POINTWISE or is_frozen_norm(layer)


def measure(layer: Any, shape: tuple[int, int]) -> Geometry:
    """Return which positions of an image (H, W) a layer's answers read."""
    n_in = shape[0] * shape[1]
    numbers = torch.arange(1.0, n_in + 1, dtype=torch.float64).view(1, 1, *shape)
    spread = getattr(layer, "dilation", 1)
    found = unfold(numbers, layer.kernel_size, spread, layer.padding, layer.stride)
    reads = found[0].T.long() - 1
    n_out = len(reads)
    reads = torch.where(reads < 0, n_in, reads).int().contiguous()
    # The other way round: sort the pairs by the position that is read.
    answers = torch.arange(n_out).repeat_interleave(reads.shape[1])
    read, order = reads.view(-1).sort(stable=True)
    inside = read < n_in
    read, answers = read[inside], answers[order[inside]]
    counts = torch.bincount(read, minlength=n_in)
    turn = torch.arange(len(read)) - (counts.cumsum(0) - counts)[read]
    readers = torch.full((n_in, int(counts.max())), n_out)
    readers[read, turn] = answers
    return Geometry(find_shape(layer, shape), reads, readers)


def find_shape(layer: Any, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the shape of a layer's answers to an image (H, W)."""
    spread = getattr(layer, "dilation", 1)
    height, width = (
        (side + 2 * pad - far * (size - 1) - 1) // step + 1
        for side, size, step, pad, far in zip(
            shape,
            *map(_pair, (layer.kernel_size, layer.stride, layer.padding, spread)),
            strict=True,
        )
    )
    return height, width


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)
