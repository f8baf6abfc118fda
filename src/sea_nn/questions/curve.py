"""The model's own answers along an order: only the first p features left, and these removed.

They are asked last, about the final order, and no function learns from them: they show how far what
was learned from other sets can be believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sea_nn.function.function import SetFunction, to_score
from sea_nn.function.several import SeveralFunctions

SHARES = (1 / 4, 1 / 8, 1 / 2, 1 / 16, 1 / 32, 1 / 64)
"""Shares of the features to ask about, the most telling first."""
SPARE = 29  # questions an input for each of these shares, of which it costs two


@dataclass(frozen=True)
class Curve:
    """What the model said of N inputs along their orders, as scores (probabilities or values).

    Attributes:
        counts: p, int64 [P], from 0 to n.
        left: with only the first p features of the order left, [N, P].
        removed: with these removed, [N, P].
    """

    counts: Tensor
    left: Tensor
    removed: Tensor

    def find(self, p: float) -> int | None:
        """The place in ``counts`` nearest to p features, of those between none and all."""
        inner = range(1, len(self.counts) - 1)
        return min(inner, key=lambda k: abs(math.log(float(self.counts[k]) / p)), default=None)

    def rows(self, which: Tensor | slice) -> Curve:
        """The curves of some of the inputs."""
        return Curve(self.counts, self.left[which], self.removed[which])


def choose_counts(questions: int, n: int) -> tuple[int, ...]:
    """The numbers of features to ask about, two questions each, and at most a fifteenth of all.

    >>> choose_counts(28, 64), choose_counts(124, 64), choose_counts(508, 64)
    ((), (4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
    """
    counts = {round(share * n) for share in SHARES[: questions // SPARE]}
    return tuple(sorted(p for p in counts if 0 < p < n))


def list_sets(order: Tensor, counts: Sequence[int]) -> Tensor:
    """The first p features of orders [N, n] for each count, then all but these: [N, R, n]."""
    first = order.argsort(1)[:, None] < torch.tensor(counts, dtype=torch.int64)[:, None]
    return torch.cat([first, ~first], 1)


def make_curve(f: SetFunction, answers: Tensor, counts: Sequence[int]) -> Curve:
    """The curve of answers about ``list_sets``, log-odds or values [N, R].

    Of no feature and of all, the answers are known: they are the ends of both curves.
    """
    left, removed = answers.chunk(2, 1) if counts else (answers, answers)
    return Curve(
        torch.tensor([0, *counts, f.process.sets.shape[2]]),
        to_score(torch.cat([f.none, left, f.all], 1), f.link).float(),
        to_score(torch.cat([f.all, removed, f.none], 1), f.link).float(),
    )


def predict_curve(f: SetFunction | SeveralFunctions, order: Tensor) -> tuple[Tensor, Tensor]:
    """What f says along orders [N, n]: the first 0, 1, …, n left, and these removed, [N, n + 1]."""
    left, removed = list_sets(order, range(order.shape[1] + 1)).double().chunk(2, 1)
    return f.score(left), f.score(removed)
