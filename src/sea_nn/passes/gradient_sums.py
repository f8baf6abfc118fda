"""Sums of gradients over many points of each input, in parts that cross the borders of inputs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sea_nn.passes.first_layer import FirstLayer


@dataclass(frozen=True)
class Part:
    """Evaluations `start` to `stop` of a sweep over `count` points an input.

    Attributes:
        start: the first evaluation's number, row * count + step.
        stop: one more than the last one's.
        rows: the input of each, [P].
        steps: the point of each, [P].
    """

    start: int
    stop: int
    rows: Tensor
    steps: Tensor

    def cut(self, count: int) -> Iterator[tuple[int, slice, slice]]:
        """Yield the inputs of a part: the row, its place in the part, and its points' numbers."""
        for row in range(self.start // count, (self.stop - 1) // count + 1):
            low, high = max(self.start, row * count), min(self.stop, (row + 1) * count)
            place = slice(low - self.start, high - self.start)
            yield row, place, slice(low - row * count, high - row * count)


Points = Callable[[Part], Tensor]
Combine = Callable[[Tensor, Part], Tensor]


class Sweep(Protocol):
    """Runs the gradient passes of one sweep."""

    def divide(self, total: int, alone: bool) -> int | None:
        """Return the size of a pass for `total` points, or None to choose by memory."""

    def __call__(self, points: Tensor, rows: Tensor, last: bool) -> Tensor:
        """Return d score / d input at `points` [P, ...], variants of the inputs `rows` [P]."""


class Recorder(Protocol):
    """Keeps what was prepared for a model between calls, see `sea_nn.passes.cuda_graphs`."""

    def start(self, task: Any) -> Sweep:
        """Return what runs the gradient passes of one sweep."""

    def find_first(self, task: Any) -> FirstLayer | None:
        """Return the first layer to run apart for inputs of this shape."""

    def is_proved(self, task: Any) -> bool:
        """Return whether gradients of fast forms were the model's before, for such inputs."""

    def prove(self, task: Any) -> None:
        """Remember that they were."""

    def release(self) -> None:
        """Give back memory."""


def add_up(grads: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of gradients [p, ...] by weights [p].

    As a product of a row and a matrix, in the order that the gradients lie in memory, each is read
    once: on a GPU eight times as fast as a product by element and a sum over the first axis.
    """
    last = grads.ndim == 4 and grads.is_contiguous(memory_format=torch.channels_last)
    flat = grads.permute(0, 2, 3, 1) if last else grads
    with torch.autocast(grads.device.type, enabled=False):  # a caller's would round the product
        total = (weights @ flat.reshape(len(grads), -1)).view(flat.shape[1:])
    return total.permute(2, 0, 1) if last else total
