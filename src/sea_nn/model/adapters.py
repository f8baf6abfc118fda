"""Models made of something else: of a function of arrays, of several inputs, of one number."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError

ARRAYS = "a model of NumPy arrays is explained as sea_nn.NumpyModel(model.predict_proba)"


class NumpyModel:
    """A function of arrays, [N, ...] -> [N] or [N, K], as a model that SEA explains.

    It has no gradient: members that need one are left out, and the model is asked instead.

    >>> model = NumpyModel(lambda rows: rows.sum(1))
    >>> model(torch.ones(2, 3))
    tensor([3., 3.])
    """

    def __init__(self, predict: Callable[[Any], Any]) -> None:
        self.predict = predict

    def __call__(self, x: Tensor) -> Tensor:
        """What the function says of x, as a tensor of its type and on its device."""
        return torch.as_tensor(self.predict(x.detach().cpu().numpy())).to(x)


class PackedModel(nn.Module):
    """Call a model with several inputs from rows of their values side by side, [N, V].

    Args:
        model: a module or any callable.
        split: from rows to the inputs.
        names: of keyword arguments; None to pass the inputs by position, before further arguments.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        split: Callable[[Tensor], Sequence[Tensor]],
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.split, self.names = model, split, names

    def forward(self, rows: Tensor, *args: Any) -> Any:
        """The model's answer about rows [N, V]."""
        inputs = self.split(rows)
        if self.names is None:
            return self.model(*inputs, *args)
        return self.model(*args, **dict(zip(self.names, inputs, strict=True)))


class Reading(nn.Module):
    """A module whose output is one number an input, [N], read off another model's output."""

    def __init__(self, model: Callable[..., Any], read: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.read = model, read

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return [N]; `args` go to the model unchanged."""
        return check_value(self.read(self.model(x, *args)), len(x))


def read_value(model: Callable[..., Any], read: Callable[[Any], Tensor]) -> Callable[..., Any]:
    """Return the model as one of values, `read(output)`; a module as a module."""
    reading = Reading(model, read)
    return reading if isinstance(model, nn.Module) else reading.forward


def check_value(value: Any, count: int) -> Tensor:
    """Return what a target that is a function gave, if it is one number an input."""
    if not isinstance(value, Tensor) or value.shape != (count,):
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(
            f"a target that is a function must return one number an input, a tensor [{count}]; "
            f"got {got}"
        )
    return value
