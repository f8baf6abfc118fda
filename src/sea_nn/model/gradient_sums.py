"""Sums of gradients over many points of each input, in parts that cross the borders of inputs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.model.evaluator import Evaluator


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


def sum_gradients(
    evaluator: Evaluator,
    count: int,
    points: Points,
    combine: Combine | None = None,
    weights: Tensor | None = None,
    probability: bool = False,
) -> Tensor:
    """Return, for every input, the sum of gradients over `count` points, [N, ...].

    Args:
        evaluator: the model and the inputs.
        count: points an input.
        points: `points(part)` returns the points [P, ...] of a part. Parts cross the borders
            between inputs.
        combine: `combine(grads, part)` returns what to add up, the gradients themselves if
            left out; called right after `points` with the same part.
        weights: what each point counts [count], 1 if left out.
        probability: whether gradients are of the class's probability, not of its logit.
    """
    total = torch.zeros_like(evaluator.x)

    def visit(start: int, stop: int) -> None:
        flat = torch.arange(start, stop, device=evaluator.x.device)
        part = Part(start, stop, flat // count, flat % count)
        grads = evaluator.gradient(points(part), part.rows, probability)
        if combine is not None:
            grads = combine(grads, part)
        if count == 1 and weights is None:
            total[start:stop] = grads
            return
        # One sum an input rather than a scattered add: the same order, so the same bits.
        for row, place, numbers in part.cut(count):
            some = grads[place]
            total[row] += some.sum(0) if weights is None else _add_up(some, weights[numbers])

    evaluator.sweep(len(evaluator.x) * count, visit)
    return total


def input_gradients(evaluator: Evaluator) -> Tensor:
    """Return d score / d input at the inputs by the model as it is, computed once."""
    return evaluator.share(
        "gradient", lambda: sum_gradients(evaluator, 1, lambda part: evaluator.x[part.rows])
    )


def _add_up(grads: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of gradients [p, ...] by weights [p].

    As a product of a row and a matrix, in the order that the gradients lie in memory, each is read
    once: on a GPU eight times as fast as a product by element and a sum over the first axis.
    """
    last = grads.ndim == 4 and grads.is_contiguous(memory_format=torch.channels_last)
    flat = grads.permute(0, 2, 3, 1) if last else grads
    with torch.autocast(grads.device.type, enabled=False):  # a caller's would round the product
        total = (weights @ flat.reshape(len(grads), -1)).view(flat.shape[1:])
    return total.permute(2, 0, 1) if last else total
