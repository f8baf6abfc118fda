"""A first layer that is linear, taken out of the gradients that are added up.

Behind an affine layer L, the gradients of many points can be added up before they pass back through
L, for its way back is one and the same linear map at all of them: L runs back once a sum, not once
a point. On a GPU that is a tenth of integrated gradients: the gradient of a first convolution
writes three channels, where its kernels are made for many.

Forward, L runs at every point. A GPU rounds what a convolution reads to 10 bits (TF32) unless told
otherwise, and a map made of unrounded points is another: the cosine with the model's own is .997.
"""

from typing import Any

import torch
from torch import Tensor, nn

# Points to choose a layout by, and bytes that the layer's answers may take: the kernel that cuDNN
# chooses depends on the number of points too.
POINTS, ANSWERS = 50, 1 << 28


class FirstLayer:
    """The layer that alone reads a model's input, and the model without it.

    Args:
        layer: the layer.
        rest: a copy of the model in which that layer passes on what it is given.
        layout: the layout that the layer reads inputs in.
        shape: what it makes of one input of the shape it was found for.
        overwrites: whether the rest writes into what the layer gives.
    """

    def __init__(
        self,
        layer: nn.Module,
        rest: nn.Module,
        layout: torch.memory_format = torch.contiguous_format,
        shape: tuple[int, ...] = (),
        overwrites: bool = False,
    ) -> None:
        self.layer, self.rest, self.layout = layer, rest, layout
        self.shape, self.overwrites = shape, overwrites

    @torch.no_grad()
    def push(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        output: Tensor = self.layer(x.contiguous(memory_format=self.layout))
        return output

    def pull(self, x: Tensor, slopes: Tensor) -> Tensor:
        """Return the gradient at the inputs x, from the one at the layer's output."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            output = self.layer(leaf)
        return torch.autograd.grad(output, leaf, slopes)[0]


def choose_layout(layer: Any, points: Tensor) -> torch.memory_format:
    """Return the layout to be fast in, that of the points, if the layer rounds as in the usual one.

    cuDNN has kernels for each, and may take one that rounds to 10 bits here and one that does not
    there. The differences are 3e-4 if it does, and at most 1e-5 if not.
    """
    usual = torch.contiguous_format
    if points[:1].is_contiguous():
        return usual
    with torch.no_grad():
        fast = layer(points.contiguous(memory_format=torch.channels_last))
        own = layer(points.contiguous())
    alike = (fast - own).norm() <= 5e-5 * own.norm()
    return torch.channels_last if bool(alike) else usual
