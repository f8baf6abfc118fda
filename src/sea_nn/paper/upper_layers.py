"""The layers above the first: what turns the first layer's sums into values, gains and slopes.

Written F in docs/math.md: f(x) = F(phi(W x + b)). Training and greedy both keep the first layer's
sums themselves, because adding a feature there is adding a column.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.paper.activations import Concave


def times(h: Tensor, matrix: Tensor) -> Tensor:
    """h @ matrix for batches of matrices: [N, r, k] and [N, k, c] -> [N, r, c]."""
    if matrix.shape[1:] == (1, 1):  # the collapsed form's layers are single numbers
        return h * matrix
    if len(h) == len(matrix) == 1:  # only the product of two matrices runs on all cores
        return torch.mm(h[0], matrix[0]).unsqueeze(0)
    return torch.matmul(h, matrix)


@dataclass(frozen=True)
class UpperLayers:
    """The biases of all layers, and the weights of layers 2, 3, … of N networks.

    The activation stands before each layer above the first.
    """

    activation: Concave
    weights: list[Tensor]  # [N, out, in] each
    biases: list[Tensor]  # [N, 1, out] each, the first layer's included, or none at all

    def sums(self, z: Tensor) -> list[Tensor]:
        """From the first layer's sums without its bias [N, r, units]: each layer's, value last."""
        every = [z + self.biases[0] if self.biases else z]
        for layer, weight in enumerate(self.weights, start=1):
            z = times(self.activation.value(every[-1]), weight.mT)
            every.append(z + self.biases[layer] if self.biases else z)
        return every

    def rises(self, sums: list[Tensor], step: Tensor) -> list[Tensor]:
        """What adding step[N, r, units] to the first layer's sums adds to every layer's.

        ``sums`` are every layer's before, [N, r or 1, width] each. Nothing cancels.
        """
        rises = [step]
        for z, weight in zip(sums, self.weights, strict=False):
            rises.append(times(self.activation.rise(z, rises[-1]), weight.mT))
        return rises

    def slope(self, sums: list[Tensor]) -> Tensor:
        """The gradient of the value with respect to the first layer's sums: [N, r, units]."""
        slope = torch.ones_like(sums[-1])
        for z, weight in zip(sums[-2::-1], self.weights[::-1], strict=True):
            slope = times(slope, weight) * self.activation.slope(z)
        return slope
