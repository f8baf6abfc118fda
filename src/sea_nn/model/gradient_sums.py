"""Sums of gradients over many points of each input, in parts that cross the borders of inputs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sea_nn.model.compiled import Compiled
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.first_layer import FirstLayer
from sea_nn.model.outputs import TensorModel

APART_FROM = 48
"""Points from which on it pays to run the first layer apart: for fewer, launches take longer."""
SUMS = 1 << 30
"""Bytes that sums of gradients behind a first layer may take at once."""


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


def sum_gradients(
    evaluator: Evaluator,
    count: int,
    points: Points,
    combine: Combine | None = None,
    weights: Tensor | None = None,
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
    """
    first = None if combine is not None else _find_first(evaluator, count)
    if first is None:
        return _add_gradients(evaluator, 0, len(evaluator.x), count, points, combine, weights)
    return sum_behind(evaluator, first, count, points, weights)


def sum_behind(
    evaluator: Evaluator,
    layer: FirstLayer,
    count: int,
    points: Points,
    weights: Tensor | None = None,
) -> Tensor:
    """Return what `sum_gradients` does, by sums of gradients behind the first layer."""
    total = torch.empty_like(evaluator.x)
    rest = TensorModel(layer.rest, check=False)
    code = None if evaluator.compiled is None else Compiled(rest, layer.rest)
    behind = replace(evaluator, model=rest, first=layer, compiled=code)

    def visit(first: int, last: int) -> None:
        slopes = _add_gradients(behind, first, last, count, points, None, weights)
        total[first:last] = layer.pull(evaluator.x[first:last], slopes)

    # Of the sums, and of the layer's answers.
    size = math.prod(layer.shape) * evaluator.x.element_size()
    block = min(SUMS // (2 * size), evaluator.limit or len(evaluator.x))
    # The passes behind the layer say what they cost themselves.
    replace(evaluator, tick=lambda count: None).sweep(len(evaluator.x), visit, size=max(1, block))
    return total


def _find_first(evaluator: Evaluator, count: int) -> FirstLayer | None:
    """Return the first layer to take out of sums of `count` gradients, if that pays."""
    if evaluator.kept is None or count == 1 or len(evaluator.x) * count < APART_FROM:
        return None
    return evaluator.kept.find_first(evaluator)


def _add_gradients(
    evaluator: Evaluator,
    first: int,
    last: int,
    count: int,
    points: Points,
    combine: Combine | None,
    weights: Tensor | None,
) -> Tensor:
    """Return what `sum_gradients` does, for the inputs `first` to `last`."""
    shape = evaluator.x.shape[1:] if evaluator.first is None else evaluator.first.shape
    total = evaluator.x.new_zeros(last - first, *shape)
    begin, end = first * count, last * count
    run = None if evaluator.kept is None else evaluator.kept.start(evaluator)

    def visit(low: int, high: int) -> None:
        start, stop = begin + low, begin + high
        flat = torch.arange(start, stop, device=evaluator.x.device)
        part = Part(start, stop, flat // count, flat % count)
        if run is None:
            grads = evaluator.gradient(points(part), part.rows)
        else:
            grads = run(points(part), part.rows, stop == end)
        if combine is not None:
            grads = combine(grads, part)
        if count == 1 and weights is None:
            total[low:high] = grads
            return
        # One sum an input rather than a scattered add: the same order, so the same bits.
        for row, place, numbers in part.cut(count):
            some = grads[place]
            total[row - first] += some.sum(0) if weights is None else add_up(some, weights[numbers])

    size = None if run is None else run.divide(end - begin, count == 1)
    evaluator.sweep(end - begin, visit, size=size)
    return total


def input_gradients(evaluator: Evaluator) -> Tensor:
    """Return d score / d input at the inputs by the model as it is, computed once."""
    quiet = replace(evaluator, tick=lambda count: None)
    return evaluator.share(
        "gradient", lambda: sum_gradients(quiet, 1, lambda part: evaluator.x[part.rows])
    )
