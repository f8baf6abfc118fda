"""A first layer that is linear, taken out of the passes along straight lines.

Behind an affine layer L a straight line stays straight, L(a + t (b - a)) = L(a) + t (L(b) - L(a)),
and the gradients of all its points can be added up before they pass back through L. So L runs twice
a line, not twice a point. On a GPU that is a tenth of integrated gradients: the gradient of a first
convolution writes three channels, where its kernels are made for many.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sea_nn.fold import CONVOLUTIONS, agrees, is_free, passing
from sea_nn.readers import Readers

if TYPE_CHECKING:
    from sea_nn.evaluator import Evaluator

_PADS = ("constant_pad_nd", "reflection_pad", "replication_pad")
LINEAR = {"convolution", _PADS[0], *(f"{pad}{n}d" for pad in _PADS[1:] for n in (1, 2, 3))}
"""What a first layer may do to its input."""


class Stem:
    """The layer that alone reads a model's input.

    Args:
        layer: the layer.
        size: the numbers it makes of one input of the shape it was found for.
    """

    def __init__(self, layer: nn.Module, size: int = 0) -> None:
        self.layer, self.size = layer, size

    @torch.no_grad()
    def push(self, x: Tensor) -> Tensor:
        """Return the layer's output, rounded once: all points of a line share its errors."""
        weights = {name: p.detach().double() for name, p in self.layer.named_parameters()}
        output: Tensor = torch.func.functional_call(self.layer, weights, (x.double(),))
        return output.to(x.dtype)

    def pull(self, x: Tensor, slopes: Tensor) -> Tensor:
        """Return the gradient at the inputs x, from the one at the layer's output."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            output = self.layer(leaf)
        return torch.autograd.grad(output, leaf, slopes)[0]

    def removed(self) -> AbstractContextManager[None]:
        """Make the layer pass on what it is given: the model then starts behind it."""
        return passing(self.layer)


def find_stem(task: Evaluator) -> Stem | None:
    """Return the first layer if nothing else reads the input and all it does is to convolve."""
    if task.module is None or task.args or task.autocast is not None:
        return None
    x = task.arrange(task.x[:1])
    rows = torch.zeros(1, dtype=torch.long, device=x.device)
    layers = [m for m in task.modules if isinstance(m, CONVOLUTIONS) and is_free(m)]
    try:
        with torch.no_grad():
            with Readers(layers) as readers:
                readers.watch(x)
                task.forward(x, rows)
            first = list(readers.of(x))
            if len(first) != 1 or first[0] not in layers or readers.calls[first[0]] != 1:
                return None
            if not readers.operations[first[0]] <= LINEAR:
                return None
            # The input's shape may be read too; the answer must not depend on it.
            output = Stem(first[0]).push(x)
            stem, written = Stem(first[0], output.numel()), output._version
            with stem.removed():
                answer = replace(task, headless=True).forward(output, rows)
            if output._version != written:  # passes work on the points themselves, not on a copy
                return None
    except Exception:  # room, or a shape, that was not expected: the layer stays where it is
        return None
    return stem if agrees(answer, task.logits[:1]) else None
