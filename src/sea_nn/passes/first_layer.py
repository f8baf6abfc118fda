"""A first layer that is linear, taken out of the gradients that are added up.

Behind an affine layer L, the gradients of many points can be added up before they pass back through
L, for its way back is one and the same linear map at all of them: L runs back once a sum, not once
a point. On a GPU that is a tenth of integrated gradients: the gradient of a first convolution
writes three channels, where its kernels are made for many.

Forward, L runs at every point. A GPU rounds what a convolution reads to 10 bits (TF32) unless told
otherwise, and a map made of unrounded points is another: the cosine with the model's own is .997.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sea_nn.passes.layer_reads import Readers
from sea_nn.passes.norm_folding import CONVOLUTIONS, agrees, is_free, passing

if TYPE_CHECKING:
    from sea_nn.passes.evaluator import Evaluator

_PADS = ("constant_pad_nd", "reflection_pad", "replication_pad")
LINEAR = {"convolution", _PADS[0], *(f"{pad}{n}d" for pad in _PADS[1:] for n in (1, 2, 3))}
"""What a first layer may do to its input."""
# Points to choose a layout by, and bytes that the layer's answers may take: the kernel that cuDNN
# chooses depends on the number of points too.
POINTS, ANSWERS = 50, 1 << 28


class Stem:
    """The layer that alone reads a model's input.

    Args:
        layer: the layer.
        layout: the layout that it reads inputs in.
        shape: what it makes of one input of the shape it was found for.
    """

    def __init__(
        self,
        layer: nn.Module,
        layout: torch.memory_format = torch.contiguous_format,
        shape: tuple[int, ...] = (),
    ) -> None:
        self.layer, self.layout, self.shape = layer, layout, shape

    @torch.no_grad()
    def push(self, x: Tensor) -> Tensor:
        """Return the layer's output, even where the layer is removed."""
        output: Tensor = type(self.layer).forward(
            self.layer, x.contiguous(memory_format=self.layout)
        )
        return output

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
                whole = task.forward(x, rows)
            first = list(readers.of(x))
            if len(first) != 1 or first[0] not in layers or readers.calls[first[0]] != 1:
                return None
            if not readers.operations[first[0]] <= LINEAR:
                return None
            # The input's shape may be read too; the answer must not depend on it.
            output = task.arrange(Stem(first[0]).push(x))
            count = max(1, min(POINTS, ANSWERS // (output.numel() * output.element_size())))
            layout = _choose_layout(first[0], x.expand(count, *x.shape[1:]))
            stem, written = Stem(first[0], layout, tuple(output.shape[1:])), output._version
            with stem.removed():
                answer = task.forward(output, rows)
            if output._version != written:  # passes work on the points themselves, not on a copy
                return None
    except Exception:  # room, or a shape, that was not expected: the layer stays where it is
        return None
    return stem if agrees(answer, whole) else None


def _choose_layout(layer: nn.Module, points: Tensor) -> torch.memory_format:
    """Return the layout to be fast in, that of the points, if the layer rounds as in the usual one.

    cuDNN has kernels for each, and may take one that rounds to 10 bits here and one that does not
    there. The differences are 3e-4 if it does, and at most 1e-5 if not.
    """
    usual = torch.contiguous_format
    if points[:1].is_contiguous():
        return usual
    fast = Stem(layer, torch.channels_last).push(points)
    own = Stem(layer, usual).push(points)
    alike = (fast - own).norm() <= 5e-5 * own.norm()
    return torch.channels_last if bool(alike) else usual
