"""One number an input, read off a model's output of any kind: what a target that is a function is.

>>> import torch
>>> model = torch.nn.Conv2d(1, 2, 3)  # a segmentation, say
>>> area = read_value(model, lambda output: output[:, 1].sum((1, 2)))
>>> area(torch.zeros(4, 1, 8, 8)).shape
torch.Size([4])
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from sea_nn.errors import InputError


class Reading(nn.Module):
    """A module whose output is one number an input.

    Args:
        model: the model whose output is read.
        read: from that output to numbers, [N].
    """

    def __init__(self, model: Callable[..., Any], read: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.read = model, read

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return [N]; `args` go to the model unchanged."""
        return check_value(self.read(self.model(x, *args)), len(x))


def check_value(value: Any, count: int) -> Tensor:
    """Return what a target that is a function gave, if it is one number an input."""
    if not isinstance(value, Tensor) or value.shape != (count,):
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(
            f"a target that is a function must return one number an input, a tensor [{count}]; "
            f"got {got}"
        )
    return value


def read_value(model: Callable[..., Any], read: Callable[[Any], Tensor]) -> Callable[..., Any]:
    """Return the model as one of values, `read(output)`; a module as a module."""
    reading = Reading(model, read)
    return reading if isinstance(model, nn.Module) else reading.forward
