"""Members that hide parts of the input and ask the model again: occlusion and RISE."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError
from sea_nn.model.evaluator import Evaluator

Sizes = int | Sequence[int] | None


def occlusion(evaluator: Evaluator, window: Sizes = None, stride: Sizes = None) -> Tensor:
    """Return how much the class score falls when a sliding window is hidden.

    Args:
        evaluator: the inputs and the model.
        window: the window's size in positions, all channels at once. Left out, an eighth of each
            axis; a single feature for inputs without positions, [N, F].
        stride: its step. Left out, half the window.

    Where windows overlap the map is their mean; at the far edge they are cut off.
    """
    slices = _windows(tuple(evaluator.x.shape[1:]), window, stride)
    rows = torch.arange(len(evaluator.x), device=evaluator.x.device)
    before = evaluator.score(evaluator.outputs, rows).to(evaluator.x.dtype)
    total, cover = torch.zeros_like(evaluator.x), torch.zeros_like(evaluator.x[0])

    for block in evaluator.blocks(len(slices)):
        masks = evaluator.x.new_ones(block.stop - block.start, *evaluator.x.shape[1:])
        for mask, place in zip(masks, slices[block], strict=True):
            mask[place] = 0
        fall = before[:, None] - evaluator.mask(masks)
        for k, place in enumerate(slices[block]):
            total[:, *place] += fall[:, k].view(-1, *(1,) * (evaluator.x.ndim - 1))
            cover[place] += 1
    return total / cover


def rise(evaluator: Evaluator, n_masks: int = 4000, cells: int = 7, keep: float = 0.5) -> Tensor:
    """Return RISE: the mean of random smooth masks, weighed by the class's probability.

    All inputs share the masks, as in the authors' code: masks for each of them would take longer to
    make than a small network takes to answer. What is left of chance in the mean of the masks is
    therefore the same in all maps and does not average out over inputs; more masks make it smaller.

    Args:
        evaluator: the inputs [N, C, H, W] and the model.
        n_masks: random masks.
        cells: cells along each axis of the coarse random grid.
        keep: the probability that a cell is kept.

    Returns:
        Maps [N, 1, H, W], not negative.
    """
    height, width = evaluator.x.shape[2:]
    step = (math.ceil(height / cells), math.ceil(width / cells))
    random = evaluator.generator()
    grids = (torch.rand(n_masks, 1, cells + 1, cells + 1, generator=random) < keep).to(evaluator.x)
    shift_y = torch.randint(0, step[0], (n_masks,), generator=random).to(evaluator.x.device)
    shift_x = torch.randint(0, step[1], (n_masks,), generator=random).to(evaluator.x.device)
    large = ((cells + 1) * step[0], (cells + 1) * step[1])
    along_y = torch.arange(height, device=evaluator.x.device)
    along_x = torch.arange(width, device=evaluator.x.device)

    total = evaluator.x.new_zeros(len(evaluator.x), height * width)
    for block in evaluator.blocks(n_masks):
        smooth = functional.interpolate(grids[block], large, mode="bilinear")
        which = torch.arange(len(smooth), device=evaluator.x.device)
        y, x = shift_y[block, None] + along_y, shift_x[block, None] + along_x
        masks = smooth[which[:, None, None], 0, y[:, :, None], x[:, None, :]].unsqueeze(1)
        total += evaluator.mask(masks, probability=True) @ masks.flatten(1)
    return (total / (n_masks * keep)).view(-1, 1, height, width)


def count_windows(shape: tuple[int, ...], window: Sizes = None, stride: Sizes = None) -> int:
    """Return the number of windows that `occlusion` slides over one input of this shape."""
    return len(_windows(shape, window, stride))


def _windows(shape: tuple[int, ...], window: Sizes, stride: Sizes) -> list[tuple[slice, ...]]:
    """Return the index of every window into one input, channels first and whole."""
    axes = shape[1:] or shape
    if window is None:
        window = [math.ceil(size / 8) for size in axes] if len(shape) > 1 else 1
    sizes = _per_axis(window, axes, "window")
    steps = _per_axis(
        [math.ceil(s / 2) for s in sizes] if stride is None else stride, axes, "stride"
    )
    for size, width, step in zip(axes, sizes, steps, strict=True):
        if width > size or (step > width and width < size):
            raise InputError(
                f"occlusion needs stride <= window <= input on every axis; got stride {steps}, "
                f"window {sizes} and input {list(axes)}"
            )
    places = [
        [slice(i * step, i * step + width) for i in range(math.ceil((size - width) / step) + 1)]
        for size, width, step in zip(axes, sizes, steps, strict=True)
    ]
    whole = (slice(None),) * (len(shape) - len(axes))
    return [(*whole, *place) for place in itertools.product(*places)]


def _per_axis(value: int | Sequence[int], axes: tuple[int, ...], name: str) -> list[int]:
    sizes = [value] * len(axes) if isinstance(value, int) else list(value)
    if len(sizes) != len(axes):
        raise InputError(
            f"occlusion's {name} must be one whole number, or {len(axes)} of them for this "
            f"input; got {value!r}"
        )
    return sizes
