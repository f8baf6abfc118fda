"""Sums over many sets at once: a table of the features that occur, or chains of nested sets.

Training needs, in every epoch, the sum of the weights in each set, and the way back: the slope of
each set handed to all its features. Both cost less than a product with all n features.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.paper.upper_layers import take_rows, times


class SetRows:
    """Sets as 0/1 rows over the features that occur in any of them.

    Sets of 50 out of 50,000 features touch few columns: a sum then costs R x u instead of R x n.
    """

    def __init__(self, sets: Tensor) -> None:
        used = sets.any(1)
        width = int(used.sum(1).amax()) if sets.numel() else 0
        self.support: Tensor | None = None
        if width <= sets.shape[2] // 2:
            self.support = used.byte().topk(width, dim=1).indices
            self.index = index_pairs(self.support)
            sets = sets.gather(2, self.support.unsqueeze(1).expand(-1, sets.shape[1], -1))
        self.rows = sets.to(torch.float64)

    def sums(self, weight: Tensor) -> Tensor:
        """Sum of the weights in each set: [N, n] -> [N, R]."""
        picked = weight if self.support is None else weight.gather(1, self.support)
        return row_times(picked, self.rows.mT)

    def add_back(self, gradient: Tensor, slopes: Tensor) -> None:
        """gradient[v] += the slopes of the sets that hold v, in place."""
        part = row_times(slopes, self.rows)
        if self.support is None:
            gradient.add_(part)
        else:
            gradient.scatter_add_(1, self.support, part)

    def sum_columns(self, columns: Tensor) -> Tensor:
        """Sum of the features' columns in each set: [N, n, units] -> [N, R, units]."""
        picked = columns if self.support is None else take_rows(columns, self.support)
        return times(self.rows, picked)

    def add_back_columns(self, gradient: Tensor, slopes: Tensor) -> None:
        """gradient[v, u] += slopes[r, u] of the sets r that hold v, in place."""
        part = times(self.rows.mT, slopes)
        if self.support is None:
            gradient.add_(part)
        else:
            gradient[self.index] += part  # no feature occurs twice


class SetChains:
    """Sets that grow from row to row, as the top 5, 10, 15, … of a heatmap do.

    A chain of nested sets is one order of features, and each set is a prefix of it: its sum is
    an entry of a running sum.
    """

    def __init__(self, sets: Tensor, starts: list[int]) -> None:
        self.sizes = sets.sum(2, dtype=torch.int32).long()  # 10 times faster than int64
        ends = [*starts[1:], sets.shape[1]]
        self.length = int(self.sizes.amax())
        # Features that are in more sets of a chain come first; where a chain ends, any will do.
        self.orders = [
            sets[:, a:b].sum(1, dtype=torch.int32).topk(self.length, dim=1).indices
            for a, b in zip(starts, ends, strict=True)
        ]
        self.every = torch.cat(self.orders, 1)
        chain = [i for i, (a, b) in enumerate(zip(starts, ends, strict=True)) for _ in range(a, b)]
        offset = torch.tensor(chain, device=sets.device) * (self.length + 1)
        self.places = self.sizes + offset  # in the running sums of all chains, side by side

    @classmethod
    def find(cls, sets: Tensor) -> "SetChains | None":
        """The chains in sets [N, R, n], if they are few beside the sets."""
        if not sets.numel():
            return None
        grows = (sets[:, :-1] <= sets[:, 1:]).all(2).all(0).tolist()
        starts = [0, *(r + 1 for r, grown in enumerate(grows) if not grown)]
        return cls(sets, starts) if 4 * len(starts) <= sets.shape[1] else None

    def sums(self, weight: Tensor) -> Tensor:
        """Sum of the weights in each set: [N, n] -> [N, R]."""
        taken = weight.gather(1, self.every).view(len(weight), len(self.orders), self.length)
        return pad(taken.cumsum(2), (1, 0)).flatten(1).gather(1, self.places)

    def add_back(self, gradient: Tensor, slopes: Tensor) -> None:
        """gradient[v] += the slopes of the sets that hold v, in place."""
        ends = slopes.new_zeros(len(slopes), len(self.orders) * (self.length + 1))
        ends.scatter_add_(1, self.places, slopes)
        parts = ends.view(-1, len(self.orders), self.length + 1)[..., 1:]
        parts = parts.flip(2).cumsum(2).flip(2)  # a prefix's slope goes to all before its end
        for i, order in enumerate(self.orders):  # one by one: no feature occurs twice in an order
            gradient.scatter_add_(1, order, parts[:, i])


def row_times(rows: Tensor, matrices: Tensor) -> Tensor:
    """Each row by its own matrix, [N, k] and [N, k, c] -> [N, c].

    The other way round, matrix by column, the same product takes five times as long on a CPU.
    """
    return torch.bmm(rows.unsqueeze(1), matrices).squeeze(1)


def index_pairs(features: Tensor) -> tuple[Tensor, Tensor]:
    """Features [N, k] as an index (input, feature) into a tensor [N, n, ...]."""
    return torch.arange(len(features), device=features.device)[:, None], features
