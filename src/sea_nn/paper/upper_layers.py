"""The layers above the first: what turns the first layer's sums into values, gains and slopes.

Written F in docs/math.md: f(x) = F(phi(W x + b)). Training and greedy both keep the first layer's
sums themselves, because adding a feature there is adding a column.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.paper.activations import Concave


def times(h: Tensor, matrix: Tensor, out: Tensor | None = None) -> Tensor:
    """h @ matrix for batches of matrices: [N, r, k] and [N, k, c] -> [N, r, c]."""
    if len(h) == len(matrix) == 1:  # only the product of two matrices runs on all cores
        return torch.mm(h[0], matrix[0], out=None if out is None else out[0]).unsqueeze(0)
    return torch.matmul(h, matrix, out=out)


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of each of N tables: [N, n, c] and [N, k] -> [N, k, c]."""
    count, n, width = table.shape
    if count == 1:
        return table[0].index_select(0, index[0]).unsqueeze(0)
    start = n * torch.arange(count, device=index.device)[:, None]
    flat = table.flatten(0, 1).index_select(0, (index + start).flatten())
    return flat.view(count, index.shape[1], width)


def sums_before(steps: Tensor) -> Tensor:
    """What all earlier steps add up to, at each step: [N, s, units] -> the same."""
    count = steps.shape[1]
    earlier = torch.ones(1, count, count, dtype=steps.dtype, device=steps.device).tril_(-1)
    return times(earlier, steps)  # a product: a running sum over rows is many times slower


@dataclass(frozen=True)
class UpperLayers:
    """Layers 2, 3, … of N networks, the activation before each of them."""

    activation: Concave
    weights: list[Tensor]  # [N, out, in] each
    biases: list[Tensor]  # [N, 1, out] each, or none at all

    def to(self, dtype: torch.dtype) -> "UpperLayers":
        """The same layers in another precision."""
        weights, biases = ([x.to(dtype) for x in every] for every in (self.weights, self.biases))
        return UpperLayers(self.activation, weights, biases)

    def keep(self, rows: Tensor) -> "UpperLayers":
        """The layers of some of the networks."""
        weights, biases = ([x[rows] for x in every] for every in (self.weights, self.biases))
        return UpperLayers(self.activation, weights, biases)

    def sums(self, z: Tensor) -> list[Tensor]:
        """From the first layer's sums z[N, r, units]: every layer's sums, the value last."""
        every = [z]
        for layer, weight in enumerate(self.weights):
            z = times(self.activation.value(z), weight.mT)
            if self.biases:
                z = z + self.biases[layer]
            every.append(z)
        return every

    def rises(self, sums: list[Tensor], step: Tensor) -> list[Tensor]:
        """What adding step[N, r, units] to the first layer's sums adds to every layer's.

        ``sums`` are every layer's before, [N, r or 1, width] each. Nothing cancels.
        """
        rises = [step]
        for z, weight in zip(sums, self.weights, strict=False):
            rises.append(times(self.activation.rise(z, rises[-1]), weight.mT))
        return rises

    def walk(self, sums: list[Tensor], steps: Tensor) -> tuple[list[Tensor], Tensor]:
        """Take steps one after another: every layer's sums before each, and the gain of each.

        Sums are carried along: from every layer's sums at the start, [N, 1, width] each, and what
        steps[N, s, units] add to the first layer's, to sums [N, s, width] each and gains [N, s].
        """
        path = []
        for z, weight in zip(sums, [*self.weights, None], strict=True):
            before = sums_before(steps).add_(z)
            path.append(before)
            if weight is not None:
                steps = times(self.activation.rise(before, steps), weight.mT)
        return path, steps.squeeze(-1)

    def slope(self, sums: list[Tensor]) -> Tensor:
        """The gradient of the value with respect to the first hidden outputs: [N, r, units]."""
        slope = torch.ones_like(sums[-1])
        for layer in range(len(self.weights) - 1, -1, -1):
            slope = times(slope, self.weights[layer])
            if layer:
                slope = slope * self.activation.slope(sums[layer])
        return slope
