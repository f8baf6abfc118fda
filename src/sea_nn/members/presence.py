"""The presence gradient: how fast the class's probability grows as each feature gets more present.

A blend of the input and what it looks like with nothing left, cell by cell in random shares, is a
half-hidden input, as questions ask about. The gradient of the probability there by a position's
share is the input's gradient times what the position changes. It is averaged, with its sign, over
random blends: above 0 speaks for the class.
"""

import math
from functools import reduce

import torch
from torch import Tensor

from sea_nn.features import Features, number_cells
from sea_nn.model.evaluator import Evaluator


def presence_gradient(evaluator: Evaluator, passes: int = 16, cells: int = 8) -> Tensor:
    """Return the mean gradient of the probability by presence, at ``passes`` half-hidden inputs.

    Args:
        evaluator: the inputs and the model.
        passes: blends, in pairs of shares m and 1 - m; the same ones for all inputs.
        cells: along each axis with neighbours, that are present in one share each; what has none,
            the columns of a table, is a cell of its own, and so is a group of a feature mask.
    """
    x = evaluator.x
    absent = evaluator.baseline()[:, None] if evaluator.absent is None else evaluator.absent()
    number = number_positions(evaluator, cells).to(x.device)
    count = int(number.max()) + 1
    half = torch.rand(math.ceil(passes / 2), count, generator=evaluator.generator())
    shares = torch.stack([half, 1 - half], 1).flatten(0, 1)[:passes].to(x)
    total = torch.zeros_like(x)
    for part in evaluator.parts(passes):
        start = absent[part.rows, part.steps % absent.shape[1]]
        change = x[part.rows] - start
        share = shares[part.steps][:, number.flatten()].view(-1, *number.shape)
        points = torch.addcmul(start, share, change)
        part.add(total, evaluator.gradient(points, part.rows, probability=True) * change)
    return total / passes


def number_positions(evaluator: Evaluator, cells: int) -> Tensor:
    """The cell of each value of an input, int64 like one input, channels broadcast."""
    features = evaluator.features or Features.of(evaluator.x, kind=evaluator.kind)
    if features.parts:
        numbers = [_number(part, cells).expand(1, *part.input_shape) for part in features.parts]
        firsts = reduce(lambda made, n: [*made, made[-1] + int(n.max()) + 1], numbers, [0])
        pairs = zip(numbers, firsts, strict=False)
        return torch.cat([(own + first).flatten() for own, first in pairs])
    return _number(features, cells).expand(1, *features.input_shape)[0]


def _number(features: Features, cells: int) -> Tensor:
    """The cell of each position, [1, ...] with the axes of an input."""
    if features.groups is not None:
        return features.over_input(features.groups)
    kind = features.kind
    axes = [axis for axis in range(1, kind.axes) if axis != kind.channels]
    sizes = [
        min(cells, size) if axis in kind.neighbours else size
        for axis, size in zip(axes, features.shape, strict=True)
    ]
    return features.over_input(number_cells(sizes, features.shape).unsqueeze(0))
