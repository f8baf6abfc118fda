"""A deep submodular function learned from a model's answers about sets of features [M12].

The model is asked about sets S: what does it say with only S left? For one input with n features

    rise(S)  = sum_u a_u phi(w_u . S) / phi(w_u . 1)     a, w >= 0, sum a = 1, phi(t) = 1 - exp(-t)
    value(S) = (F + g . 1) rise(S) - g . S               g >= 0: evidence against
    odds(S)  = e^none (1 - e^k) + e^(none + k + value(S))                                   k <= 0

``value`` is submodular, and monotone where g = 0 and the whole input says more than none of it. An
explanation's function has g > 0 only where it predicts answers left out of the fit better so. The
link keeps a toe of length -k: a few features alone leave the odds where they are, which no
submodular function of the log-odds could say. It is increasing, and F is such that the log-odds of
no feature and of all are the model's own. A model of values has the identity for its link:
none + value(S), F = all - none.

Weights are a prior (heatmaps, places of units) times learned factors shrunk to 1: few answers leave
the prior, many overrule it. Inputs are learned in batches, each as if it were alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

Link = Literal["log-odds", "value"]
LEAST_AGAINST, LEAST_LOG_ODDS = 0.02, 0.1
"""Evidence against that is more than noise: in parts of the whole change, and in log-odds."""


@dataclass(frozen=True)
class AnswersFunction:
    """The learned functions of N inputs with n features and U units each.

    Attributes:
        weight: w, [N, n, U].
        share: a, [N, U].
        against: g, [N, n].
        toe: k, [N, 1].
        none: the model's log-odds (or value) with no feature left, [N, 1].
        all: the same of the whole input, [N, 1].
        link: "log-odds", or "value" for the identity.
        n_answers: how many answers an input it was learned from.
    """

    weight: Tensor
    share: Tensor
    against: Tensor
    toe: Tensor
    none: Tensor
    all: Tensor
    link: Link = "log-odds"
    n_answers: int = 0

    def rise(self, x: Tensor) -> Tensor:
        """The part of the way from none to all, 0 to 1: sets or [0, 1], [N, R, n] -> [N, R]."""
        return (torch.expm1(-(x @ self.weight)) @ self._heights)[:, :, 0]

    def value(self, x: Tensor) -> Tensor:
        """The submodular function, 0 of the empty set: [N, R, n] -> [N, R]."""
        return self.rise(x) * self._total - (x @ self.against[:, :, None])[:, :, 0]

    def predict(self, x: Tensor) -> Tensor:
        """The log-odds (or value) with only these features left: [N, R, n] -> [N, R]."""
        x = x.to(self.weight)
        stay, start, _ = self.link_parts
        if self.link == "value":
            return start + self.value(x)
        return torch.logaddexp(stay, start + self.value(x))

    def score(self, x: Tensor) -> Tensor:
        """``predict`` as the model's score: a probability, or the value itself, [N, R]."""
        return to_score(self.predict(x), self.link)

    def gains(self, order: Tensor) -> Tensor:
        """What each feature of ``order`` adds after those before it, [N, n]; sums to all - none.

        Features that speak against the class have gains below 0. Gains are steps of ``value`` in
        units of its total, so the toe takes its share from each, and never grow: where the order is
        not this function's own, neighbours that would share theirs evenly (the slopes of the least
        concave curve above).
        """
        curve = self.value(prefixes(order, whole=True).to(self.weight))
        total = (self.all - self.none) / torch.where(curve[:, -1:] == 0, 1, curve[:, -1:])
        curve = torch.cat([torch.zeros_like(curve[:, :1]), curve], 1) * total
        return concave_slopes(curve, falling=self._total < 0)

    def find_against(self) -> Tensor:
        """How much more the class would have, in log-odds or values, without each feature, [N, n].

        It is what ``value`` falls by when the feature comes last, where that is more than noise;
        zero elsewhere.
        """
        count, n = self.weight.shape[:2]
        sets = torch.ones(count, n + 1, n, dtype=self.weight.dtype, device=self.weight.device)
        sets[:, :n] -= torch.eye(n, dtype=sets.dtype, device=sets.device)
        value = self.value(sets)
        last = value[:, :n] - value[:, n:]
        least = LEAST_AGAINST * (self.all - self.none).abs()
        if self.link == "log-odds":
            least = least.clamp(min=LEAST_LOG_ODDS)
        else:
            least = least + 1e-9 * torch.maximum(self.all.abs(), self.none.abs())
        return torch.where(last > least, last, 0.0)

    def rows(self, which: Tensor | slice) -> AnswersFunction:
        """The functions of some of the inputs."""
        cut: dict[str, Any] = {name: part[which] for name, part in self.parts().items()}
        return replace(self, **cut)

    def parts(self) -> dict[str, Tensor]:
        """The tensors by name."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: part for name, part in found if isinstance(part, Tensor)}

    @cached_property
    def _heights(self) -> Tensor:
        """Minus what each unit would rise to without end, a_u / phi(w_u . 1), [N, U, 1]."""
        return (self.share / torch.expm1(-self.weight.sum(1)).clamp(max=-1e-300))[:, :, None]

    @cached_property
    def _total(self) -> Tensor:
        """What ``value`` rises by before evidence against is taken from it, F + g . 1, [N, 1]."""
        return self.link_parts[2] + self.against.sum(1, keepdim=True)

    @cached_property
    def link_parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """(log of the odds that stay, where the rise starts, F), each [N, 1]."""
        if self.link == "value":
            return self.none, self.none, self.all - self.none
        up = self.all > self.none  # else there is nothing to rise to: plain log-odds
        toe = torch.where(up, self.toe, -1.0)
        stay = torch.where(up, self.none + torch.log(-torch.expm1(toe)), self.none - 80)
        start = torch.where(up, self.none + toe, self.none)
        part = torch.where(up, stay - self.all, -80.0).clamp(max=-1e-6)
        return stay, start, self.all + torch.log(-torch.expm1(part)) - start


def place_units(n: int, shape: tuple[int, ...] | None = None, units: int = 8) -> Tensor:
    """The log weight of every feature in every unit before learning, float64 [n, units].

    On a grid the first unit is everywhere, the others are round, at random places, half of them
    wide. Other features are dealt to units at random.
    """
    generator = torch.Generator().manual_seed(0)
    if shape is None:
        return 1.5 * torch.randn(n, units, generator=generator).double()
    side = torch.tensor(shape, dtype=torch.float32)
    axes = (torch.arange(float(s)) for s in shape)
    cells = torch.cartesian_prod(*axes).view(-1, len(shape)) / side
    centres = torch.rand(units, len(side), generator=generator) * (1 - 1 / side)
    width = torch.tensor([1 / 4, 1 / 2])[torch.arange(units) % 2]
    width[0] = torch.inf
    return (-(torch.cdist(cells, centres) / width).square() / 2).clamp(min=-6).double()


def to_score(answers: Tensor, link: Link) -> Tensor:
    """Log-odds as probabilities; values as they are."""
    return answers.sigmoid() if link == "log-odds" else answers


def prefixes(order: Tensor, whole: bool = False) -> Tensor:
    """The first 1, 2, ..., n - 1 (``whole``: n) of orders [N, n]: bool [N, n - 1 or n, n]."""
    n = order.shape[1]
    place = torch.arange(n, device=order.device)
    rank = torch.empty_like(order).scatter_(1, order, place.expand_as(order))
    return rank[:, None] < 1 + place[: n if whole else n - 1, None]


def concave_slopes(curve: Tensor, falling: Tensor) -> Tensor:
    """Slopes of the least concave curve above curves [N, n + 1]; of falling ones convex, below."""
    sign = torch.where(falling, -1.0, 1.0).to(curve)
    curve, n = curve * sign, curve.shape[1] - 1
    at = torch.arange(n + 1, device=curve.device)
    apart = at - at[:, None]
    mean = (curve[:, None, :] - curve[:, :, None]) / apart.clamp(min=1)
    mean = mean.masked_fill(apart <= 0, -torch.inf)  # [N, from, to]
    # By the min-max formula of isotonic regression: the best end for every start, the worst start.
    ends = mean.flip(2).cummax(2).values.flip(2)[:, :, 1:]  # [N, from, k]: max over to > k
    starts = ends.masked_fill(at[:, None] > at[:n], torch.inf)
    return starts.amin(1) * sign
