"""A deep submodular function learned from a model's answers about sets of features [M12].

The model is asked about sets S: what does it say with only S left? For one input with n features

    rise(S)  = sum_u a_u phi(w_u . S) / phi(w_u . 1)     a, w >= 0, sum a = 1, phi(t) = 1 - exp(-t)
    value(S) = (F + g . 1) rise(S) - g . S               g >= 0: evidence against; 0 by default
    odds(S)  = e^none (1 - e^k) + e^(none + k + value(S))                                   k <= 0

``value`` is submodular, and monotone where g = 0 and the whole input says more than none of it. The
link keeps a toe of length -k: a few features alone leave the odds where they are, which no
submodular function of the log-odds could say. It is increasing, and F is such that the log-odds of
no feature and of all are the model's own. A model of values has the identity for its link:
none + value(S), F = all - none.

Weights are a prior (heatmaps, places of units) times learned factors shrunk to 1: few answers leave
the prior, many overrule it. Inputs are learned in batches, each as if it were alone.

>>> sets = torch.tensor([[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]]])
>>> answers = torch.tensor([[3.0, 3.0, -3.0, 3.0, 3.0, 3.0]])  # log-odds: feature 0 or feature 1
>>> f = fit_answers(sets, answers, torch.tensor([-3.0]), torch.tensor([3.0]))
>>> bool((f.score(torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])) > 0.5).all())
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

Link = Literal["log-odds", "value"]
RATE, SHARED, OWN, AGAINST, FLOOR, NOISE = 0.2, 4.0, 3.0, 5.0, 0.3, 0.1
"""Adam's first step; precisions of a feature's factors in all units, in one, and of g; heat that
every feature has; error of an answer that f need not explain. Chosen on tuning inputs."""
ROOM = 1 << 24  # numbers of sets worked on at once


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
        units = -torch.expm1(-(x @ self.weight))
        scale = self.share / -torch.expm1(-self.weight.sum(1)).clamp(max=-1e-300)
        return (units @ scale[:, :, None])[:, :, 0]

    def value(self, x: Tensor) -> Tensor:
        """The submodular function, 0 of the empty set: [N, R, n] -> [N, R]."""
        total = self._link()[2] + self.against.sum(1, keepdim=True)
        return self.rise(x) * total - (x @ self.against[:, :, None])[:, :, 0]

    def predict(self, x: Tensor) -> Tensor:
        """The log-odds (or value) with only these features left: [N, R, n] -> [N, R]."""
        x = x.to(self.weight)
        stay, start, _ = self._link()
        if self.link == "value":
            return start + self.value(x)
        return torch.logaddexp(stay, start + self.value(x))

    def score(self, x: Tensor) -> Tensor:
        """``predict`` as the model's score: a probability, or the value itself, [N, R]."""
        return to_score(self.predict(x), self.link)

    def gains(self, order: Tensor) -> Tensor:
        """What each feature of ``order`` adds after those before it, [N, n]; sums to all - none.

        They are steps of ``value`` in units of its total, so the toe takes its share from each, and
        never grow: where the order is not this function's own, neighbours that would share theirs
        evenly (the slopes of the least concave curve above).
        """
        curve = self.value(prefixes(order, whole=True).to(self.weight))
        total = (self.all - self.none) / torch.where(curve[:, -1:] == 0, 1, curve[:, -1:])
        return concave_slopes(torch.cat([torch.zeros_like(curve[:, :1]), curve], 1) * total)

    def rows(self, which: Tensor | slice) -> AnswersFunction:
        """The functions of some of the inputs."""
        cut: dict[str, Any] = {name: part[which] for name, part in self.parts().items()}
        return replace(self, **cut)

    def parts(self) -> dict[str, Tensor]:
        """The tensors by name."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: part for name, part in found if isinstance(part, Tensor)}

    def _link(self) -> tuple[Tensor, Tensor, Tensor]:
        """(log of the odds that stay, where the rise starts, F), each [N, 1]."""
        if self.link == "value":
            return self.none, self.none, self.all - self.none
        up = self.all > self.none  # else there is nothing to rise to: plain log-odds
        toe = torch.where(up, self.toe, -1.0)
        stay = torch.where(up, self.none + torch.log(-torch.expm1(toe)), self.none - 80)
        start = torch.where(up, self.none + toe, self.none)
        part = torch.where(up, stay - self.all, -80.0).clamp(max=-1e-6)
        return stay, start, self.all + torch.log(-torch.expm1(part)) - start


def fit_answers(
    sets: Tensor,
    answers: Tensor,
    none: Tensor,
    all: Tensor,
    *,
    heat: Tensor | None = None,
    places: Tensor | None = None,
    counted: Tensor | None = None,
    link: Link = "log-odds",
    against: bool = False,
    steps: int = 50,
) -> AnswersFunction:
    """Learn the function of every input from answers, in float64; nothing is drawn at random.

    Args:
        sets: what was left, bool or 0/1, [N, R, n].
        answers: the model's log-odds of the class (or values), [N, R].
        none: the same for no feature, [N].
        all: the same for the whole input, [N].
        heat: where the evidence is expected, >= 0 in any unit, [N, n]; None: anywhere.
        places: the log weight of each feature in each unit before learning, [n, U]:
            ``place_units``; None: of features without a layout.
        counted: which answers count, bool [N, R]; None: all.
        link: "log-odds", or "value" for answers that are values.
        against: also learn evidence against the class; f is then no longer monotone.
        steps: steps of Adam.
    """
    count, per_input, n = sets.shape
    rows = max(1, ROOM // max(1, per_input * n))
    if count > rows:
        same: dict[str, Any] = {"places": places, "link": link, "against": against, "steps": steps}
        parts = []
        for part in (slice(i, i + rows) for i in range(0, count, rows)):
            own = [None if t is None else t[part] for t in (heat, counted)]
            given = (t[part] for t in (sets, answers, none, all))
            parts.append(fit_answers(*given, heat=own[0], counted=own[1], **same))
        joined: dict[str, Any] = {
            name: torch.cat([part.parts()[name] for part in parts]) for name in parts[0].parts()
        }
        return replace(parts[0], **joined)
    with torch.inference_mode(False), torch.enable_grad():
        answers = answers.detach().clone().double()
        x, none, all = (t.detach().clone().to(answers) for t in (sets, none, all))
        none, all = none.view(-1, 1), all.view(-1, 1)
        base = _prior(heat, place_units(n) if places is None else places, x)
        units = base.shape[2]
        shapes = [(n, 1), (n, units), (1, units), (units,), (1,), (n,)]
        free = [answers.new_zeros(count, *shape).requires_grad_() for shape in shapes]
        shared, apart, size, mix, toe, contra = free
        scale = torch.ones_like(all)
        if link == "value":  # in units of what the answers vary by
            spread = (answers - none).square().mean(1, keepdim=True).sqrt().nan_to_num()
            scale = torch.maximum((all - none).abs(), spread).clamp(min=1e-30)
        wanted = to_score(answers, link)
        weigh = torch.ones_like(answers) if counted is None else counted.to(x)

        def build() -> AnswersFunction:
            weight = (base + shared + apart + size).exp()
            g = 0.04 * scale * contra.exp() if against else torch.zeros_like(contra)
            k = (toe - 3).clamp(max=-0.01)
            return AnswersFunction(weight, mix.softmax(1), g, k, none, all, link, per_input)

        adam = torch.optim.Adam(free, lr=RATE, betas=(0.9, 0.95))
        for step in range(steps):
            adam.param_groups[0]["lr"] = RATE * (0.5 + 0.5 * math.cos(math.pi * step / steps))
            error = (build().score(x) - wanted) / scale * weigh
            loss = error.square().sum() / NOISE**2
            loss = loss + SHARED * shared.square().sum() + OWN * apart.square().sum()
            loss = loss + 0.05 * (size.square().sum() + mix.square().sum())
            loss = loss + 0.02 * toe.square().sum() + AGAINST * contra.square().sum()
            for parameter, slope in zip(free, torch.autograd.grad(loss, free), strict=True):
                parameter.grad = slope
            adam.step()
        with torch.no_grad():
            return build()


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


def concave_slopes(curve: Tensor) -> Tensor:
    """Slopes of the least concave curve above curves [N, n + 1], or convex below a falling one."""
    sign = torch.where(curve[:, -1:] < curve[:, :1], -1.0, 1.0).to(curve)
    curve, n = curve * sign, curve.shape[1] - 1
    at = torch.arange(n + 1, device=curve.device)
    apart = at - at[:, None]
    mean = (curve[:, None, :] - curve[:, :, None]) / apart.clamp(min=1)
    mean = mean.masked_fill(apart <= 0, -torch.inf)  # [N, from, to]
    # By the min-max formula of isotonic regression: the best end for every start, the worst start.
    ends = mean.flip(2).cummax(2).values.flip(2)[:, :, 1:]  # [N, from, k]: max over to > k
    starts = ends.masked_fill(at[:, None] > at[:n], torch.inf)
    return starts.amin(1) * sign


def _prior(heat: Tensor | None, places: Tensor, x: Tensor) -> Tensor:
    """Log weights before learning, [N, n, U]; every unit has a total weight of 1."""
    places = places.to(x)
    base = places.expand(len(x), *places.shape)
    if heat is not None:
        heat = heat.detach().to(x).clamp(min=0)
        mean = heat.mean(1, keepdim=True)
        relative = torch.where(mean > 0, heat / mean.clamp(min=1e-300), 1.0)
        base = base + (relative + FLOOR).log()[:, :, None]
    return base - base.logsumexp(1, keepdim=True)
