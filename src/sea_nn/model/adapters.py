"""Models made of something else: of a function of arrays, of several inputs, of one number."""

from collections.abc import Callable
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


class Adapted(nn.Module):
    """Another model, called in a way of its own.

    Args:
        model: a module or any callable.
        call: `(model, x, *args) -> output`; it must not hold the model, which may be copied.
    """

    def __init__(self, model: Callable[..., Any], call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x: Tensor, *args: Any) -> Any:
        """What the call makes of the model; `args` are the model's further arguments."""
        return self.call(self.model, x, *args)


def read_value(model: Callable[..., Any], read: Callable[[Any], Tensor]) -> Callable[..., Any]:
    """Return the model as one of values, `read(output)` [N]; a module as a module."""

    def call(model: Callable[..., Any], x: Tensor, *args: Any) -> Tensor:
        return check_value(read(model(x, *args)), len(x))

    adapted = Adapted(model, call)
    return adapted if isinstance(model, nn.Module) else adapted.forward


def check_value(value: Any, count: int) -> Tensor:
    """Return what a target that is a function gave, if it is one number an input."""
    if not isinstance(value, Tensor) or value.shape != (count,):
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(
            f"a target that is a function must return one number an input, a tensor [{count}]; "
            f"got {got}"
        )
    return value
