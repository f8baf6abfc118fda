"""Upper bounds on the gains of all features at many sets, as matrix products [M4].

The cubic of the activation around the *average* feature, under the tangent of the layers above
(docs/math.md, section 4). It is so sharp that a handful of a thousand candidates is left.
"""

import torch
from torch import Tensor

from sea_nn.paper.upper_layers import UpperLayers, take_rows, times

UNIT = 2.0**-24
"""A sum of k non-negative numbers in single precision is off by at most k of these, relatively."""
MANY, STRETCH = 1 << 18, 16
"""From how many bounds on it pays to rule features out for a stretch of sets, by the first one."""


class Bounds:
    """Bounds for N functions at once, in single precision with its rounding allowed for.

    Args:
        columns: what each feature adds to the first layer's sums, [N, n, units].
        upper: the layers above.
        last: bounds of functions of the same size that are no longer needed: their memory is used.

    Attributes:
        average: the average column, [N, 1, units].
        powers: d, c2 d^2, c3 d^3 side by side, for the columns' differences d from the average (see
            ``Concave.expand``); d alone if there is no layer above. [N, n, units or 3 units]
        upper: the layers above, in this precision.
        rounding: by what share a gain computed in this precision can be off.
        allowance: by how much a polynomial can be off, for each of its coefficients: products of
            the line and of the rest are sums of their own, [N, units or 3 units, 1].
    """

    def __init__(self, columns: Tensor, upper: UpperLayers, last: "Bounds | None" = None) -> None:
        # Faster modes of the float32 product (TF32, bfloat16) would break the rounding allowance.
        exact = torch.get_float32_matmul_precision() == "highest"
        self.dtype = torch.float32 if exact else torch.float64
        self.upper = upper.to(self.dtype)
        count, n, self.units = columns.shape
        shape = (count, n, self.units * (3 if upper.weights else 1))
        self.powers: Tensor
        if last is not None and last.powers.shape == shape and last.dtype == self.dtype:
            self.powers = last.powers
        else:
            self.powers = columns.new_empty(shape, dtype=self.dtype)
        self.average = columns.mean(1, keepdim=True).to(self.dtype)
        apart, *bend = self.powers.split(self.units, 2)
        apart.copy_(columns).sub_(self.average)
        # Columns are >= 0, so none is farther below the average than the average is large.
        reach = [torch.maximum(apart.amax(1, keepdim=True), self.average)]
        if bend:
            second, third = upper.activation.cubic
            zero = self.average.new_zeros(())
            torch.addcmul(zero, apart, apart, value=second, out=bend[0])
            torch.addcmul(zero, bend[0], apart, value=third / second, out=bend[1])
            reach += [-second * reach[0] ** 2, third * reach[0] ** 3]
        self.rounding = UNIT * (sum(weight.shape[2] for weight in upper.weights) + 16)
        shares = [self.rounding + UNIT * self.units * terms for terms in (1, 2, 2)]
        parts = [far * share for far, share in zip(reach, shares, strict=False)]
        self.allowance = torch.cat(parts, 2).mT

    @property
    def apart(self) -> Tensor:
        """The columns' differences from the average, [N, n, units]."""
        return self.powers[..., : self.units]

    def keep(self, rows: Tensor) -> None:
        """Go on with some of the functions."""
        self.average, self.powers = self.average[rows], self.powers[rows]
        self.allowance, self.upper = self.allowance[rows], self.upper.keep(rows)

    def slopes(self, upper: Tensor, anchor: Tensor) -> Tensor:
        """Coefficients of the powers, from the slopes of the layers above, around ``anchor``.

        [N, s, units] each -> [N, s, units or 3 units].
        """
        if not self.upper.weights:
            return upper
        slope, inverse = self.upper.activation.expand(anchor)
        slope = slope * upper
        bend = slope * inverse
        return torch.cat([slope, bend, bend * inverse], 2)

    def contenders(
        self, path: list[Tensor], levels: Tensor, leaves: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Which features' gains may reach a level, at each of s sets that grow.

        Args:
            path: every layer's sums at these sets, [N, s, width] each, the value last.
            levels: [N, s].
            leaves: at which of the s steps each feature is taken, or more than all: [N, n].

        Returns:
            The features that may reach any level, [N, k], and which may reach which, bool
            [N, s, k]; only features that are not yet taken.
        """
        upper, units, n = self.upper, self.units, leaves.shape[1]
        before = [sums.to(self.dtype) for sums in path]
        rises = upper.rises(before, self.average.expand_as(before[0]))
        anchor = [z.add_(rise) for z, rise in zip(before, rises, strict=True)]
        slopes = self.slopes(upper.slope(anchor), anchor[0])
        common = rises[-1] * (1 + self.rounding) + times(slopes, self.allowance)
        missing = levels.unsqueeze(2).to(self.dtype) - common  # what a polynomial has to reach
        hopeful = leaves > 0
        if n * levels.shape[1] > MANY:
            # Gains only fall: what at a set is below all levels of a stretch stays below them.
            sets = range(0, levels.shape[1], STRETCH)
            lowest = torch.stack([levels[:, i : i + STRETCH].amin(1) for i in sets], 1)
            start = times(slopes[:, ::STRETCH, :units], self.apart.mT)
            below = start < lowest.unsqueeze(2).to(self.dtype) - common[:, ::STRETCH]
            hopeful &= ~below.all(1)  # NaN rules nothing out
        width = int(hopeful.sum(1).amax())
        features, table = torch.arange(n, device=leaves.device).expand_as(leaves), self.powers
        if 2 * width < n:
            features = hopeful.byte().topk(width, dim=1).indices
            table, leaves = take_rows(table, features), leaves.gather(1, features)
        steps = torch.arange(levels.shape[1], device=leaves.device)
        line = times(slopes[..., :units], table[..., :units].mT)
        contends = (leaves.unsqueeze(1) > steps[:, None]) & ~(line < missing)
        if upper.weights:
            # The rest of the polynomial, for those that the line leaves: many at the first steps.
            bend, table = slopes[..., units:], table[..., units:]
            for part in (slice(0, 16), slice(16, None)):
                left = contends[:, part]
                left &= _bend(bend[:, part], table, line[:, part], missing[:, part], left.any(1))
        return features, contends


def _bend(slopes: Tensor, table: Tensor, line: Tensor, missing: Tensor, used: Tensor) -> Tensor:
    """Where line and bend together reach what is missing, for the used columns [N, k]."""
    width = int(used.sum(1).amax())
    if 3 * width > used.shape[1]:  # all are faster than a selection
        return ~(times(slopes, table.mT).clamp_(max=0).add_(line) < missing)
    index = used.byte().topk(width, dim=1).indices
    # Where the bend is positive, the line alone is the sharper bound.
    bend = times(slopes, take_rows(table, index).mT).clamp_(max=0)
    index = index.unsqueeze(1).expand_as(bend)
    reaches = ~(bend.add_(line.gather(2, index)) < missing)
    return torch.zeros_like(line, dtype=torch.bool).scatter_(2, index, reaches)
