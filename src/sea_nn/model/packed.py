"""A model of several inputs as a model of one: their values side by side in a row."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn


class PackedModel(nn.Module):
    """Call a model with several inputs from rows of their values, [N, V].

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
