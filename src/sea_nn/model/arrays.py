"""Models of NumPy arrays, such as scikit-learn's, as models of tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
