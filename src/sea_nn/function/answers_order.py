"""Orders from learned functions, what such a function leaves unsaid, and how far it is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from sea_nn.function.answers_fit import FREE, MONOTONE, fit_answers, repeat
from sea_nn.function.answers_function import AnswersFunction, Link, to_score

SINGLE = 16  # features that greedy takes one by one
MOST_REST = 3.0  # a rest beyond so many log-odds counts as this
CLEARLY, AT_MOST = 0.5, 4.0
"""A free function is taken if its squared error is below so many times a monotone one's: where the
whole input says more than none of it, and where it does not, so that a monotone one falls."""


class Predictor(Protocol):
    """Anything with a score of sets, [N, R, n] -> [N, R]."""

    def score(self, x: Tensor) -> Tensor:
        """The score of each set."""
        ...


class Correction:
    """What a submodular function leaves unsaid: the answers' rest, smoothed over sets.

    Kernel ridge regression with a Gaussian kernel on sets, weighed by f. It predicts better than f
    from about 64 answers on and is neither monotone nor submodular: it serves to choose an order.

    Args:
        f: the functions of N inputs.
        sets: what was left, [N, R, n].
        answers: log-odds or values, [N, R].
        near: how far neighbours stand for each other, [n, n]; None: not at all.
        ridge: the rest's own noise, in units of the kernel.
    """

    def __init__(
        self,
        f: AnswersFunction,
        sets: Tensor,
        answers: Tensor,
        near: Tensor | None = None,
        ridge: float = 0.3,
    ) -> None:
        x, answers = sets.to(f.weight), answers.to(f.weight)
        weight = (f.weight * f.share[:, None]).sum(2)
        root = (weight / weight.mean(1, keepdim=True)).sqrt()
        self.f = f
        self.embed = torch.diag_embed(root) if near is None else root[:, :, None] * near.to(root)
        known = x @ self.embed
        square = torch.cdist(known, known).square()
        # All in units of the kernel's width, and |a - b|^2 as a.a + b.b - 2 a.b.
        width = square.mean((1, 2), keepdim=True).clamp(min=1e-12)
        self.embed, known = self.embed / width.sqrt(), known / width.sqrt()
        self.double = 2 * self.embed @ known.mT
        self.length = -known.square().sum(2)[:, None]
        kernel = torch.exp(-square / width)
        kernel.diagonal(dim1=1, dim2=2).add_(ridge)
        most = torch.full_like(f.all, MOST_REST)
        if f.link == "value":
            most = most * (f.all - f.none).abs()
        rest = (answers - f.predict(x)).clamp(-most, most)
        self.solution = torch.cholesky_solve(rest[:, :, None], torch.linalg.cholesky(kernel))

    def predict(self, x: Tensor) -> Tensor:
        """f's log-odds (or value) and the smoothed rest: [N, R, n] -> [N, R]."""
        x = x.to(self.embed)
        length = (x @ self.embed).square_().sum(2, keepdim=True)
        kernel = torch.baddbmm(self.length, x, self.double).sub_(length).exp_()
        return self.f.predict(x) + (kernel @ self.solution)[:, :, 0]

    def score(self, x: Tensor) -> Tensor:
        """``predict`` as the model's score, [N, R]."""
        return to_score(self.predict(x), self.f.link)


class EverySet:
    """The answers themselves as a predictor, where every set was asked about.

    Args:
        sets: all but the empty and the whole one, bool [N, 2^n - 2, n].
        answers: log-odds or values, [N, 2^n - 2].
        none: the answer for no feature, [N].
        all: the answer for the whole input, [N].
        link: what the answers are.
    """

    def __init__(
        self, sets: Tensor, answers: Tensor, none: Tensor, all: Tensor, link: Link
    ) -> None:
        table = answers.new_zeros(len(sets), 2 ** sets.shape[2])
        table.scatter_(1, self._number(sets), answers)
        table[:, 0], table[:, -1] = none, all
        self.table = to_score(table, link)

    def score(self, x: Tensor) -> Tensor:
        """What the model said of each set, [N, R]."""
        return self.table.gather(1, self._number(x))

    def _number(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[2], device=x.device)
        return (x.long() << places).sum(2)


@torch.no_grad()
def order_features(f: Predictor, count: int, n: int, device: torch.device | None = None) -> Tensor:
    """A greedy order for ``count`` inputs: each next raises score(S) - score(all but S) most.

    Returns:
        int64 [count, n].
    """

    def better(taken: Tensor, each: Tensor) -> Tensor:
        x = taken | each
        kept, removed = f.score(torch.cat([x, ~x], 1)).chunk(2, 1)
        return kept - removed

    return _take_in_turn(better, count, n, device)


@torch.no_grad()
def order_by_wish(f: Predictor, found: Tensor, say: float = 0.0) -> tuple[Tensor, Tensor]:
    """Orders whose first features keep the score by themselves, and whose removal breaks it.

    The first grows a set from nothing, each next feature raising score(S) most. The second grows
    what is left, each next raising it least, and is read from its end: of two copies, neither of
    which is missed alone, both come first.

    Args:
        f: scores sets.
        found: an order that serves both wishes, [N, n].
        say: what that order counts where f sees no difference: the first feature against the last,
            in units of the score of the whole input less that of none.

    Returns:
        Two of int64 [N, n].
    """
    count, n = found.shape
    none = torch.zeros(count, 1, n, dtype=torch.bool, device=found.device)
    whole = f.score(torch.cat([none, ~none], 1)).diff(dim=1).abs()
    late = say * whole * found.argsort(1) / n
    prior = torch.cat([-late, late])
    sign = torch.tensor([1.0, -1.0], device=found.device).repeat_interleave(n)

    def better(taken: Tensor, each: Tensor) -> Tensor:
        both = taken.view(2, count, 1, n) | each
        scores = f.score(both.movedim(0, 1).flatten(1, 2)) * sign
        return torch.cat(scores.chunk(2, 1)) + prior

    keep, left = _take_in_turn(better, 2 * count, n, found.device).chunk(2)
    return keep, left.flip(1)


def _take_in_turn(
    better: Callable[[Tensor, Tensor], Tensor], count: int, n: int, device: torch.device | None
) -> Tensor:
    """Take the best feature again and again, by ``better(taken, each)`` [count, n].

    From ``SINGLE`` on the best two are taken at a time, later the best four: there the order hardly
    matters, and each step costs the same.
    """
    places, done = [], 0  # of the four best in each step, n for those that are not taken
    while done < n:
        many = min(n - done, 1 if done < SINGLE else 2 if done < 2 * SINGLE else 4)
        places.append([done + k if k < many else n for k in range(min(n, 4))])
        done += many
    table = torch.tensor(places, device=device)
    at = table.new_zeros(1)  # the step
    rank = torch.full((count, n), n, device=device)
    each = torch.eye(n, dtype=torch.bool, device=device)

    def step() -> None:
        taken = rank < n
        found = better(taken[:, None], each).masked_fill(taken, -torch.inf)
        best = found.sort(dim=1, descending=True, stable=True).indices[:, : table.shape[1]]
        rank.scatter_reduce_(1, best, table.index_select(0, at).expand_as(best), "amin")
        at.add_(1)

    repeat(step, len(places), rank.device)
    return rank.argsort(1)


def fit_and_check(
    sets: Tensor,
    answers: Tensor,
    none: Tensor,
    all: Tensor,
    *,
    heat: Tensor | None = None,
    groups: int = 4,
    link: Link = "log-odds",
    **options: Any,
) -> tuple[AnswersFunction, Tensor]:
    """The function of all answers, and the error of its score on answers left out of a fit, [N].

    Arguments as for ``fit_answers``; a function is monotone, unless one that is free to have
    evidence against predicts answers left out clearly better, or not much worse where a monotone
    one could only fall and had no map. Answers are dealt to groups in turn; each group is scored by
    a fit to the others, so the root mean square error is a little larger than that of the fit to
    all. nan where there are fewer answers than groups. All fits are one: on
    a GPU it takes little more time than each.
    """
    count, per_input = answers.shape
    if per_input < groups:
        f = fit_answers(sets, answers, none, all, heat=heat, link=link, **options)
        return f, answers.new_full((count,), torch.nan, dtype=torch.float64)
    deal = torch.arange(per_input, device=answers.device) % groups
    out = deal == torch.arange(-1, groups, device=answers.device)[:, None]  # the first: of none
    out = out.repeat(2, 1).repeat_interleave(count, 0)
    kinds = torch.tensor([MONOTONE, FREE], dtype=torch.float64, device=answers.device)
    against = kinds.repeat_interleave(len(out) // 2)
    many = [t.repeat(2 * groups + 2, *[1] * (t.ndim - 1)) for t in (sets, answers, none, all)]
    warm = None if heat is None else heat.repeat(2 * groups + 2, 1)
    f = fit_answers(*many, heat=warm, counted=~out, against=against, link=link, **options)
    error = (f.score(many[0]) - to_score(many[1].to(f.weight), link)) * out
    square = error.square().view(2, groups + 1, count, per_input).sum((1, 3)) / per_input
    free = square[1] < torch.where(all > none, CLEARLY, AT_MOST) * square[0]
    rows = torch.arange(count, device=answers.device) + (groups + 1) * count * free
    return f.rows(rows), torch.where(free, square[1], square[0]).sqrt()
