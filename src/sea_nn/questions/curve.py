"""The model's own answers along an order: only the first p features left, and these removed.

They are asked last, about the final order, and no function learns from them (unless it was asked
about every set there is): they show how far what was learned from other sets can be believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sea_nn.function.answers_function import AnswersFunction, prefixes, to_score

if TYPE_CHECKING:
    from sea_nn.questions.search import Search

SHARES = (1 / 4, 1 / 8, 1 / 2, 1 / 16, 1 / 32, 1 / 64)
"""Shares of the features to ask about, the most telling first."""
SPARE = 31  # questions an input for each of these shares, of which it costs two


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

    >>> choose_counts(30, 64), choose_counts(124, 64), choose_counts(508, 64)
    ((), (4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
    """
    counts = {round(share * n) for share in SHARES[: questions // SPARE]}
    return tuple(sorted(p for p in counts if 0 < p < n))


def ask_curve(search: Search, order: Tensor, counts: tuple[int, ...], every: bool) -> Curve:
    """Ask about the first features of orders [N, n] and about the others.

    Where ``every`` set has been asked about, the answers are looked up instead. Of no feature and
    of all, the answers are known: they are the ends of both curves.
    """
    kept = prefixes(order)[:, [p - 1 for p in counts]]
    sets = torch.cat([kept, ~kept], 1)
    if every:
        asked, known = torch.cat(search.sets, 1), torch.cat(search.answers, 1)
        places = [(asked == one[:, None]).all(2).long().argmax(1) for one in sets.unbind(1)]
        answers = known.gather(1, torch.stack(places, 1)) if places else known[:, :0]
    else:
        answers = search.ask(sets) if counts else search.none.new_zeros(len(order), 0)
    left, removed = answers.chunk(2, 1) if counts else (answers, answers)
    none, all_ = search.none[:, None], search.all[:, None]
    return Curve(
        torch.tensor([0, *counts, order.shape[1]], device=order.device),
        to_score(torch.cat([none, left.to(none), all_], 1), search.link).float(),
        to_score(torch.cat([all_, removed.to(none), none], 1), search.link).float(),
    )


def predict_curve(f: AnswersFunction, order: Tensor) -> tuple[Tensor, Tensor]:
    """What f says along orders [N, n]: the first 0, 1, …, n left, and these removed, [N, n + 1]."""
    kept = prefixes(order, whole=True)
    kept = torch.cat([torch.zeros_like(kept[:, :1]), kept], 1)
    return f.score(kept), f.score(~kept)
