"""The learned function: what a model would say of any set of an input's features, and how sure.

It is a Gaussian process over sets (``process.py``) of the model's log-odds, or values, read as the
model's score. Log-odds are taken of (p + floor) / (1 + 2 floor): below the floor, probabilities
differ by more in logarithms than in what anybody would do about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor

from sea_nn.function.kernel import Kernel
from sea_nn.function.order import WISHES, find_orders
from sea_nn.function.process import SetProcess, find_blocks
from sea_nn.function.tuning import TUNING

Link = Literal["log-odds", "value"]
CLIP = 1e-6
"""Probabilities count as at least this and at most one minus this: log-odds up to 13.8."""
ROUNDING = 1e-5
"""A gain below this share of the model's own answers is the arithmetic's."""
SIZES = 64
"""Chains are compared at so many sizes of their sets, at most."""
DRAWS = 64
"""Functions that tell between which values gains and places lie."""
MOST_NUMBERS = 1 << 24
"""Curves of n features take n² numbers each: so many are held at once."""


@dataclass(frozen=True, eq=False)
class SetFunction:
    """The learned functions of N inputs with n features.

    Attributes:
        process: of the answers, ``warp``-ed.
        none: the model's log-odds (or value) with no feature left, [N, 1].
        all: the same of the whole input, [N, 1].
        link: "log-odds", or "value" for the identity.
    """

    process: SetProcess
    none: Tensor
    all: Tensor
    link: Link = "log-odds"

    @property
    def n_answers(self) -> int:
        """How many answers an input it was learned from, without that about the whole input."""
        return self.process.sets.shape[1] - 1

    def score(self, x: Tensor) -> Tensor:
        """The model's score expected of sets, or of shares of features: [N, R, n] -> [N, R]."""
        return read(self.process.expect(x.double()), self.link)

    def bound(self, x: Tensor, interval: float) -> tuple[Tensor, Tensor, Tensor]:
        """The score expected of sets, and between which two the model's answer is believed to lie.

        The deviation of the process is widened where its own answers, each predicted from all the
        others, are farther off than it says.

        Args:
            x: sets, [N, R, n].
            interval: the probability that an answer lies inside.
        """
        mean, deviation = self.process.predict(x)
        away = NormalDist().inv_cdf(0.5 + interval / 2) * self._widen() * deviation
        low, high = read(mean - away, self.link), read(mean + away, self.link)
        return read(mean, self.link), low, high

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """Each answer predicted from the others, and its error in standard deviations, [N, R]."""
        return self.process.leave_out()

    def _widen(self) -> Tensor:
        """By how much an interval is wider than that of a normal distribution, [N, 1].

        Wider where answers left out are farther off than the process says, and for what the search
        for its variances and scales, those of single features apart, has used up of the answers.
        """
        errors = self._left_out[1].square().mean(1, keepdim=True)
        answers, kernel = self.process.sets.shape[1], self.process.kernel
        used = len(kernel.hyper) - 2 + kernel.shares.shape[1]
        return (errors.clamp(min=1) * answers / max(answers - used, answers / 2)).sqrt()

    def find_doubt(self) -> Tensor:
        """How wide the interval of an answer left out is, as a share of what it is unlearned, [N].

        Without a function an answer is believed to lie as far from the mean as the answers do; at
        1 the function knows no more than that.
        """
        predicted, errors = self._left_out
        deviation = ((self.process.answers - predicted) / errors).nan_to_num().abs()
        return (self._widen() * deviation / self.process.spread).mean(1)

    @cached_property
    def error(self) -> Tensor:
        """Root mean square error of the score of answers predicted from all the others, [N]."""
        left = self.process.sets.mean(2)
        asked = (left > 0) & (left < 1)
        off = read(self._left_out[0], self.link) - read(self.process.answers, self.link)
        return ((off.square() * asked).sum(1) / asked.sum(1).clamp(min=1)).sqrt()

    def find_orders(self, wishes: Sequence[str] = ("both",)) -> Tensor:
        """The order of the features that promises most by each wish, int64 [N, wishes, n].

        The best chain by the mean of the process (``order.find_orders``) is read off many cells
        that few answers are about; features by what they add on average hang on no single set. Of
        these two orders and the one between them that is taken which says most by the mean of
        functions that the answers do not rule out.
        """
        rows = map(self.rows, find_blocks(*self.process.answers.shape))
        return torch.cat([f._find_orders(wishes) for f in rows])

    def _find_orders(self, wishes: Sequence[str]) -> Tensor:
        count, _, n = self.process.sets.shape
        width, likely = max(1, TUNING.chains // n), partial(read, link=self.link)
        searched = find_orders(self.process, self.process.mean(), likely, wishes, width)
        effects = self.effects.argsort(dim=1, descending=True, stable=True)[:, None]
        effects = effects.expand_as(searched)
        between = (searched.argsort(2) + effects.argsort(2)).argsort(dim=2, stable=True)
        orders = torch.stack([searched, effects, between], 2)
        # What each says along its chain, by the mean of functions of the process.
        sizes = torch.linspace(min(1, n - 1), n - 1, min(n - 1, SIZES) or 1).round().long()
        sets = list_sets(orders.flatten(0, 2), sizes.tolist()).view(count, -1, n)
        draws = self.process.draw(32, seed=1)
        said = read(self.process.evaluate(draws, sets), self.link).mean(1)
        kept, removed = said.view(*orders.shape[:3], 2, -1).mean(4).unbind(3)
        weigh = torch.tensor([WISHES[wish] for wish in wishes], dtype=said.dtype)[..., None]
        best = ((kept * weigh[:, 0] - removed * weigh[:, 1]) * 1e9).round().argmax(2)
        picked = best[..., None, None].expand(-1, -1, 1, n)
        return orders.gather(2, picked)[:, :, 0]

    @cached_property
    def effects(self) -> Tensor:
        """What each feature adds to the expected score, on average over random sets, [N, n].

        It is the mean slope at these sets, of which a half are complements of the others.
        """
        n, generator = self.process.sets.shape[2], torch.Generator().manual_seed(2)
        size = torch.linspace(0, 1, 128, dtype=torch.float64)[:, None]
        half = (torch.rand(len(size), n, generator=generator) < size).double()
        sets = torch.cat([half, 1 - half]).expand(len(self.none), -1, -1).clone()
        with torch.enable_grad():
            sets.requires_grad_(True)
            said = read(self.process.expect(sets), self.link).mean(1).sum()
            (slope,) = torch.autograd.grad(said, sets)
        return slope.sum(1)

    def find_gains(self, order: Tensor, wish: str = "both") -> Tensor:
        """What each feature of an order adds after those before it, [N, n]; they never grow.

        They are the steps of the least concave curve above what is expected along the order: with
        the first features left ("keep"), with these removed ("remove"), or the mean of the two. The
        sum is the model's own difference, all - none; gains below 0 speak against the class.
        """
        return self._find_gains(self.process.expect(list_chain(order))[:, None], wish)[:, 0]

    def bound_gains(self, order: Tensor) -> Tensor:
        """Between which two values each gain of ``find_gains`` is believed to lie, [N, n, 2].

        It is as far from the gain as gains of functions that the answers do not rule out are from
        their own mean: each has a curve of its own, and the least one above is steeper at first.
        """
        values = self.process.evaluate(self.process.draw(DRAWS), list_chain(order))
        gains = self._find_gains(values, "both")
        away = find_ends(gains) - gains.mean(1)[..., None]
        return self.find_gains(order)[..., None] + away

    def bound_ranks(self) -> Tensor:
        """Between which two places of the order each feature is believed to be, from 1: [N, n, 2].

        They are the places in the orders of functions that the answers do not rule out.
        """
        draws = self.process.draw(DRAWS)
        orders = find_orders(self.process, draws, partial(read, link=self.link))
        return find_ends(orders.argsort(2).double() + 1).round().long()

    def _find_gains(self, values: Tensor, wish: str) -> Tensor:
        """Gains of K functions from values along a chain and of the complements, [N, K, n]."""
        first, rest = values.chunk(2, 2)
        start, end = warp(self.none, self.link)[:, None], warp(self.all, self.link)[:, None]
        keep, remove = WISHES[wish]
        curve = (keep * first + remove * (start + end - rest)) / (keep + remove)
        # Moved by a straight line, to start and end where the model does.
        along = torch.linspace(0, 1, curve.shape[2], dtype=curve.dtype)
        curve = curve + (start - curve[..., :1]) * (1 - along) + (end - curve[..., -1:]) * along
        slopes = concave_slopes(curve.flatten(0, 1)).view(*curve.shape[:2], -1)
        # Between log-odds beyond the floor lies more than between their warped ones: the gains of
        # that sign have the rest, each its share.
        lacking = (self.all - self.none)[:, None] - (end - start)
        own = (slopes * lacking.sign()).clamp(min=0)
        whole = own.sum(2, keepdim=True)
        share = torch.where(whole > 0, own / whole.clamp(min=1e-300), 1 / own.shape[2])
        return slopes + lacking * share

    def find_against(self) -> Tensor:
        """How much more the class is expected to have without each feature, [N, n].

        In log-odds (or values) of ``warp``, and only where it is more than its own uncertainty and
        than rounding.
        """
        count, _, n = self.process.sets.shape
        sets = torch.ones(count, n + 1, n, dtype=torch.float64)
        sets[:, :n] -= torch.eye(n, dtype=torch.float64)
        mean, known = self.process.expect(sets), self.process.covariance(sets)
        own = known.diagonal(dim1=1, dim2=2)
        apart = own[:, :n] + own[:, n:] - 2 * known[:, :n, n]
        more = mean[:, :n] - mean[:, n:]
        away = NormalDist().inv_cdf(0.95) * self._widen() * self.process.spread
        sure = more > away * apart.clamp(min=0).sqrt()
        return torch.where(sure & (more > find_rounding(self)[:, None]), more, 0.0)

    def rows(self, which: Tensor | slice) -> SetFunction:
        """The functions of some of the inputs."""
        cut = self.process.rows(which)
        return replace(self, process=cut, none=self.none[which], all=self.all[which])

    def parts(self) -> dict[str, Tensor]:
        """What ``build`` needs beside the answers to make the same function again, by name."""
        k = self.process.kernel
        found = {"all": self.all, "shares": k.shares} | ({} if k.near is None else {"near": k.near})
        return found | {f"hyper_{name}": value for name, value in k.hyper.items()}

    @classmethod
    def build(
        cls, parts: Mapping[str, Tensor], sets: Tensor, answers: Tensor, link: Link
    ) -> SetFunction:
        """The function of ``parts``, sets (the empty one first) and their log-odds or values.

        Release 0.1 had another function, whose parts say nothing here: it is learned anew from the
        same answers.
        """
        own = {name: value.double() for name, value in parts.items()}
        hyper = {k.removeprefix("hyper_"): v for k, v in own.items() if k.startswith("hyper_")}
        sets = torch.cat([sets.double(), torch.ones_like(sets[:, :1]).double()], 1)
        answers = torch.cat([answers.double(), own["all"]], 1)
        warped = warp(answers, link)
        if "shares" in own:
            process = SetProcess.of(sets, warped, Kernel(own["shares"], own.get("near"), hyper))
        else:
            process = SetProcess.fit(sets, warped)
        return cls(process, answers[:, :1], answers[:, -1:], link)


def find_ends(values: Tensor) -> Tensor:
    """Between which two of K values nine tenths of them lie: [N, K, n] -> [N, n, 2]."""
    ends = torch.tensor([0.5 - 0.9 / 2, 0.5 + 0.9 / 2], dtype=values.dtype)
    return values.quantile(ends, dim=1).permute(1, 2, 0)


def find_rounding(f: Any) -> Tensor:
    """What of a function's gains, or of their sum, is the arithmetic's and says nothing, [N]."""
    ends = torch.cat([f.all, f.none], 1).abs().amax(1)
    return ROUNDING * (ends.clamp(min=1) if f.link == "log-odds" else ends)


def warp(answers: Tensor, link: Link) -> Tensor:
    """Log-odds as the process has them, of (p + floor) / (1 + 2 floor); values as they are."""
    if link == "value":
        return answers.double()
    p = answers.double().sigmoid()
    return torch.logit((p + TUNING.floor) / (1 + 2 * TUNING.floor))


def read(values: Tensor, link: Link) -> Tensor:
    """The model's score of values of the process: a probability, or the value itself."""
    if link == "value":
        return values
    return (values.sigmoid() * (1 + 2 * TUNING.floor) - TUNING.floor).clamp(0, 1)


def to_answers(score: Tensor, link: Link) -> Tensor:
    """Scores as answers: log-odds of clipped probabilities, or values, float64."""
    score = score.detach().double()
    return score.clamp(CLIP, 1 - CLIP).logit() if link == "log-odds" else score


def find_r2(answers: Tensor, error: Tensor, link: Link) -> Tensor:
    """R² of predicted scores of answers [N, R] with these errors (root mean squares, [N]): [N].

    nan where the model says the same of every set, or was asked about none.
    """
    scores = to_score(answers, link)
    largest = scores.abs().sum(1)
    spread = (scores - scores.mean(1, keepdim=True)).square().mean(1).sqrt()
    share = 1 - (error.to(spread) / spread).square()
    return torch.where(spread > 1e-9 * largest, share, torch.nan)


def to_score(answers: Tensor, link: Link) -> Tensor:
    """Log-odds as probabilities; values as they are."""
    return answers.sigmoid() if link == "log-odds" else answers


def list_sets(order: Tensor, counts: Sequence[int]) -> Tensor:
    """The first p features of orders [N, n] for each count, then all but these: [N, R, n]."""
    first = order.argsort(1)[:, None] < torch.tensor(counts, dtype=torch.int64)[:, None]
    return torch.cat([first, ~first], 1)


def list_chain(order: Tensor) -> Tensor:
    """The first 0, 1, ..., n features of orders, then all but these: float64 [N, 2 n + 2, n]."""
    return list_sets(order, range(order.shape[1] + 1)).double()


def concave_slopes(curve: Tensor) -> Tensor:
    """Slopes of the least concave curve above curves [N, n + 1]: [N, n].

    >>> concave_slopes(torch.tensor([[0.0, 1, 4, 5]]))
    tensor([[2., 2., 1.]])
    """
    n = curve.shape[1] - 1
    few = max(1, MOST_NUMBERS // (n + 1) ** 2)
    if len(curve) > few:
        return torch.cat([concave_slopes(part) for part in curve.split(few)])
    at = torch.arange(n + 1)
    apart = at - at[:, None]
    mean = (curve[:, None, :] - curve[:, :, None]) / apart.clamp(min=1)
    mean = mean.masked_fill(apart <= 0, -torch.inf)  # [N, from, to]
    # The min-max formula of isotonic regression: the best end for every start, the worst start.
    ends = mean.flip(2).cummax(2).values.flip(2)[:, :, 1:]  # [N, from, k]: max over to > k
    return ends.masked_fill(at[:, None] > at[:n], torch.inf).amin(1)
