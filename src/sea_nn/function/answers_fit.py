"""Learn functions from answers: Adam on the squared error of the score, by hand-written gradients.

Autograd would start ten times as many kernels as the arithmetic needs, and on a GPU their number
is the price of a fit: there a step is recorded once and repeated.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.function.answers_function import AnswersFunction, Link, place_units, to_score

RATE, SHARED, OWN, FLOOR, NOISE = 0.2, 4.0, 3.0, 0.3, 0.1
"""Adam's first step; precisions of a feature's factors in all units and in one; heat that every
feature has; error of an answer that f need not explain. Chosen on tuning inputs."""
MONOTONE, HELD, FREE = math.inf, 5.0, 0.3
"""How firmly evidence against, g, is held at nothing: altogether, nearly (which finds the better
order where there is little of it), and not: the precision of its logarithm."""
FOUND, FOUND_RATE = 0.3, 0.1
"""The first two precisions, and the first step, where units start from groups that the answers
themselves show (``group_units``)."""
STEPS, FOUND_STEPS = 50, 200
SIZE, TOE = 0.05, 0.02  # precisions of a unit's size and share, and of the toe
FIRST_AGAINST, FIRST_TOE, LAST_TOE = 0.04, -3.0, -0.01
FREE_TOE, LOW = -0.7, 0.15  # a free function's shortest first toe; share of answers that are low
EFFECTS, PAIRS = 16.0, 0.05  # variances of single effects and of pairs, of answers of scale 1
BETAS, EPSILON = (0.9, 0.95), 1e-8  # Adam's
ROOM = 1 << 25  # numbers of sets worked on at once


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
    against: float | Tensor = MONOTONE,
    steps: int | None = None,
) -> AnswersFunction:
    """Learn the function of every input from answers, in float64; nothing is drawn at random.

    Args:
        sets: what was left, bool or 0/1, [N, R, n].
        answers: the model's log-odds of the class (or values), [N, R].
        none: the same for no feature, [N].
        all: the same for the whole input, [N].
        heat: where the evidence is expected, >= 0 in any unit, [N, n]; None: anywhere.
        places: the log weight of each feature in each unit before learning, [n, U]:
            ``place_units``; None: of features without a layout, found from the answers where these
            are at least as many as the features.
        counted: which answers count, bool [N, R]; None: all.
        link: "log-odds", or "value" for answers that are values.
        against: how firmly evidence against the class is held at nothing, of all inputs or of
            each, [N]: ``MONOTONE``, ``HELD`` or ``FREE``.
        steps: steps of Adam; None: 50, or 200 where units are found from the answers.

    >>> sets = torch.tensor([[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]]])
    >>> answers = torch.tensor([[3.0, 3.0, -3.0, 3.0, 3.0, 3.0]])  # log-odds: feature 0 or 1
    >>> f = fit_answers(sets, answers, torch.tensor([-3.0]), torch.tensor([3.0]))
    >>> bool((f.score(torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])) > 0.5).all())
    True
    """
    count, per_input, n = sets.shape
    rows = max(1, ROOM // max(1, per_input * n))
    if count > rows:
        same: dict[str, Any] = {"places": places, "link": link, "steps": steps}
        named = {"heat": heat, "counted": counted, "against": against}
        parts = []
        for part in (slice(i, i + rows) for i in range(0, count, rows)):
            own = {k: t[part] if isinstance(t, Tensor) else t for k, t in named.items()}
            given = (t[part] for t in (sets, answers, none, all))
            parts.append(fit_answers(*given, **same | own))
        joined: dict[str, Any] = {
            name: torch.cat([part.parts()[name] for part in parts]) for name in parts[0].parts()
        }
        return replace(parts[0], **joined)
    with torch.no_grad():
        answers = answers.detach().double()
        found = places is None and per_input >= n
        if found:
            places = group_units(sets, answers, none, all, counted)
        held = torch.as_tensor(against, dtype=torch.float64, device=sets.device).expand(count)
        fit = _Fit(
            sets=sets,
            wanted=to_score(answers, link),
            ends=(none.detach().to(answers).view(-1, 1), all.detach().to(answers).view(-1, 1)),
            base=_prior(heat, place_units(n) if places is None else places, sets.to(answers)),
            weigh=None if counted is None else counted.to(answers),
            link=link,
            held=held.view(-1, 1),
            precisions=(FOUND, FOUND) if found else (SHARED, OWN),
            toe=_first_toe(answers, none, counted, held),
        )
        usual = FOUND_STEPS if found else STEPS
        fit.descend(usual if steps is None else steps, FOUND_RATE if found else RATE)
        return fit.function()


class _Fit:
    """The parameters of N inputs, the slope of their loss, and Adam.

    On a GPU the number of kernels is the price of a step, so what belongs together lies in one
    tensor. Of n features, U units and R answers (| is side by side, / below):

        free, slope  [N, n + 2, U + 2]  factors of a feature in each unit | of g | in all units
                                        / sizes of units / shares of units | the toe
        w            [N, n + 1, U + 1]  weights | g / 0 | start
        x            [N, R + 1, n + 1]  minus the sets | 1, the whole input below
        z = x w      [N, R + 1, U + 1]  minus the sums of units | start - g . S
        back         [N, R + 1, U + 2]  the slope of the loss in z | in the odds
    """

    def __init__(
        self,
        sets: Tensor,
        wanted: Tensor,
        ends: tuple[Tensor, Tensor],
        base: Tensor,
        weigh: Tensor | None,
        link: Link,
        held: Tensor,
        precisions: tuple[float, float],
        toe: Tensor,
    ) -> None:
        (none, all_), (count, n, units) = ends, base.shape
        self.none, self.all, self.link, self.n, self.u = none, all_, link, n, units
        self.x = base.new_full((count, wanted.shape[1] + 1, n + 1), -1.0)
        self.x[:, :-1, :n] = -sets.to(base)
        self.x[:, :, n] = 1
        scale = torch.ones_like(all_)
        if link == "value":  # in units of what the answers vary by
            spread = (wanted - none).square().mean(1, keepdim=True).sqrt().nan_to_num()
            scale = torch.maximum((all_ - none).abs(), spread).clamp(min=1e-30)
        self.loose = held < HELD
        first = FIRST_AGAINST * scale * held.isfinite()
        first = torch.where(self.loose, first.maximum(2 * (none - all_) / n), first)
        first_g = first.log()[:, None].expand(-1, n, 1)
        self.base = torch.cat([base, first_g], 2)
        # From the error of a score to twice its square's slope.
        self.counts = (2 / (NOISE * scale).square()).expand_as(wanted)
        if weigh is not None:
            self.counts = self.counts * weigh.square()
        self.missed = (1 - wanted if link == "log-odds" else -wanted) * self.counts
        self.up = (all_ > none).to(base)  # else there is nothing to rise to: no toe
        self.toe, self.start, self.room = toe, none + toe * self.up, LAST_TOE - toe
        self.most_toe = torch.where(self.up > 0, self.room, -torch.inf)
        self.plus, self.apart = 1 + none.exp(), all_.exp() - none.exp()  # of odds
        self.zero = base.new_zeros(1)

        self.free = base.new_zeros(count, n + 2, units + 2)
        self.slopes = base.new_zeros(2, *self.free.shape)  # and their squares
        self.moments = torch.zeros_like(self.slopes)
        self.w = base.new_zeros(count, n + 1, units + 1)
        self.w[:, n, units:] = none
        self.back = base.new_zeros(count, wanted.shape[1] + 1, units + 2)
        self.precision = torch.full_like(self.free, 2 * SIZE)
        shared, own = precisions
        self.precision[:, :n, :units] = 2 * own
        self.precision[:, :n, units] = 2 * held.clamp(max=HELD)  # where there is no g, any number
        self.precision[:, :n, units + 1] = 2 * shared
        self.precision[:, n + 1, units] = 2 * TOE

    def descend(self, steps: int, first_rate: float) -> None:
        """Take steps of Adam, each shorter than the one before."""
        k = torch.arange(steps, dtype=torch.float64)
        first, second = (1 - beta ** (k + 1) for beta in BETAS)  # Adam's corrections
        rate = first_rate * (0.5 + 0.5 * torch.cos(math.pi * k / steps))
        schedule = torch.stack([rate / first, torch.full_like(k, EPSILON)], 1)
        self.schedule = (schedule * second.sqrt()[:, None]).to(self.free)
        self.decay = 1 - self.free.new_tensor(BETAS).view(2, 1, 1, 1)
        self.at = torch.zeros(1, dtype=torch.int64, device=self.free.device)
        repeat(self.step, steps, self.free.device)

    def step(self) -> None:
        """Take the next step of Adam."""
        torch.square(self.slope(), out=self.slopes[1])
        self.moments.lerp_(self.slopes, self.decay)
        rate, epsilon = self.schedule.index_select(0, self.at)[0].unbind()
        root = self.moments[1].sqrt().add_(epsilon)
        self.free.addcdiv_(self.moments[0] * rate, root, value=-1)
        self.at.add_(1)

    def function(self) -> AnswersFunction:
        """The functions that the parameters stand for."""
        toe = self._fill_weights() + self.toe
        weight, g = (part.contiguous() for part in self.w[:, : self.n].split([self.u, 1], 2))
        share = self.free[:, self.n + 1, : self.u].softmax(1)
        # F + g . 1 < 0 would not be submodular: g has all of the fall then.
        fall = ((self.none - self.all) / g.sum(1).clamp(min=1e-300)).clamp(min=1)
        g = g[:, :, 0] * torch.where(self.loose, fall, 1.0)
        ends, n_answers = (self.none, self.all), self.x.shape[1] - 1
        return AnswersFunction(weight, share, g, toe, *ends, self.link, n_answers)

    def _fill_weights(self) -> Tensor:
        """Fill w from the parameters; returns the toe less its first length, [N, 1]."""
        n, u, free, w = self.n, self.u, self.free, self.w[:, : self.n]
        torch.add(self.base, free[:, :n, : u + 1], out=w)
        w[:, :, :u].add_(free[:, :n, u + 1 :]).add_(free[:, n : n + 1, :u])
        w.exp_()
        toe = free[:, n + 1, u : u + 1].clamp(max=self.room)
        if self.link == "log-odds":
            torch.addcmul(self.start, toe, self.up, out=self.w[:, n, u:])
        return toe

    def slope(self) -> Tensor:
        """The gradient of the loss in the parameters, [N, n + 2, U + 2].

        See ``AnswersFunction`` for the names. With h = (F + g . 1) a / phi(w . 1) for each unit,
        start + value(S) = h . phi(w . S) + start - g . S; the toe moves start, and so F, and the
        odds that stay.
        """
        n, u, slope, back = self.n, self.u, self.slopes[0], self.back
        by_level, by_odds = back[:, :-1, u], back[:, :-1, u + 1]
        self._fill_weights()
        z = self.x @ self.w
        phi = torch.expm1(z)  # minus phi of the units' sums; the last column is free
        top, start, end = self.all, None, None
        if self.link == "log-odds":
            start = self.w[:, n, u:].exp()  # the odds that the rise starts from, and ends at
            end = start + self.apart
            top = end.log()
        whole = phi[:, -1]  # phi(w . 1) | F + g . 1
        torch.sub(top, z[:, -1, u:], out=whole[:, u:])
        whole[:, u:].add_(1e-150)  # of a constant model it is 0, and is divided by below
        share = self.free[:, n + 1, :u].softmax(1)
        h = share * whole[:, u:] / whole[:, :u]
        level = (phi[:, :-1, :u] @ h[:, :, None])[:, :, 0].add_(z[:, :-1, u])
        if start is None:
            torch.addcmul(self.missed, level, self.counts, out=by_level)
        else:
            odds = level.clamp_(max=700).exp_()
            plus = odds + (self.plus - start)  # 1 + all odds of the class, with those that stay
            error = torch.addcdiv(self.missed, self.counts, plus, value=-1)
            torch.div(error.div_(plus), plus, out=by_odds)
            torch.mul(by_odds, odds, out=by_level)
        # h to a, by softmax, and to what it has of the whole input: phi(w . 1), F + g . 1.
        by_h = (phi[:, :-1, :u].mT @ by_level[:, :, None])[:, :, 0]
        parts = torch.empty_like(whole)  # h times its slope | their sum
        torch.mul(h, by_h, out=parts[:, :u])
        torch.sum(parts[:, :u], 1, keepdim=True, out=parts[:, u:])
        torch.addcmul(parts[:, :u], share, parts[:, u:], value=-1, out=slope[:, n + 1, :u])
        torch.addcdiv(self.zero, parts, whole, value=-1, out=back[:, -1, : u + 1])
        torch.mul(by_level[:, :, None], h[:, None], out=back[:, :-1, :u])
        back[:, :, :u].addcmul_(back[:, :, :u], phi[:, :, :u])  # times phi' = 1 - phi
        by_w = self.x.mT @ back
        torch.mul(by_w[:, :n, : u + 1], self.w[:, :n], out=slope[:, :n, : u + 1])
        torch.sum(slope[:, :n, :u], 2, out=slope[:, :n, u + 1])
        torch.sum(slope[:, :n, :u], 1, out=slope[:, n, :u])
        if start is not None and end is not None:
            by_stay = torch.addcdiv(by_w[:, n, u + 1 :], back[:, -1, u : u + 1], end)
            by_toe = torch.addcmul(by_w[:, n, u : u + 1], start, by_stay, value=-1)
            moves = self.free[:, n + 1, u : u + 1] < self.most_toe
            torch.mul(by_toe, moves, out=slope[:, n + 1, u : u + 1])
        return slope.addcmul_(self.free, self.precision)


def repeat(step: Callable[[], None], times: int, device: torch.device) -> None:
    """Run a step again and again: on a GPU it is recorded once (a CUDA graph), then launched whole.

    The step works in place, waits for nothing, and launches the same kernels each time.
    """
    if device.type != "cuda" or times < 3:
        for _ in range(times):
            step()
        return
    side = _side_stream(device, threading.get_ident())
    side.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        step()  # what is set up on first use must not be recorded
        graph.capture_begin(capture_error_mode="thread_local")
        step()
        graph.capture_end()
        for _ in range(times - 1):
            graph.replay()
    side.synchronize()  # the graph's memory goes with it


@functools.cache
def _side_stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """A stream to record on, always the same for a thread: each holds memory of its own."""
    return torch.cuda.Stream(device)


def group_units(
    sets: Tensor,
    answers: Tensor,
    none: Tensor,
    all: Tensor,
    counted: Tensor | None = None,
    units: int = 8,
) -> Tensor:
    """Log weights of units that each start as a group of features that replace each other.

    In signs s = +-1 of what is left, y = c + sum_i m_i s_i + sum_{i<j} I_ij s_i s_j is fitted by
    ridge regression; with r_ij = -I_ij / min(m_i, m_j) two copies have r = 1, features whose
    effects add up 0. The first unit is everywhere; each other one has the feature with the largest
    m that is in no group yet, and the others by their r with it.

    Returns:
        [N, n, units]; arguments as for ``fit_answers``.
    """
    s = 2 * sets.to(answers) - 1
    count, _, n = s.shape
    scale = torch.maximum((all - none).abs().to(answers), answers.std(1)).clamp(min=1e-30)[:, None]
    y = (answers - answers.mean(1, keepdim=True)) / scale
    alike = s @ s.mT
    # Pairs' products have the inner product ((s . t)^2 - n) / 2, so they need not be written out.
    kernel = EFFECTS * (1 + alike) + PAIRS * (alike.square() - n) / 2
    noise = torch.full_like(y, 1.0 / 64)
    if counted is not None:
        noise = noise.masked_fill(~counted, 1e9)
    root = torch.linalg.cholesky(kernel + torch.diag_embed(noise))
    dual = torch.cholesky_solve(y[:, :, None], root)
    effect = EFFECTS * (s.mT @ dual)[:, :, 0]
    pair = PAIRS * (s.mT @ (dual * s))
    least = torch.minimum(effect[:, :, None], effect[:, None])
    least = torch.maximum(least, 0.1 * effect.amax(1)[:, None, None]).clamp(min=1e-9)
    replaced = (-pair / least).clamp(0, 1)
    replaced.diagonal(dim1=1, dim2=2).fill_(1)
    rows = torch.arange(count, device=s.device)
    columns = [torch.zeros_like(effect)]
    for _ in range(units - 1):
        best = effect.argmax(1)
        group = replaced[rows, best]
        columns.append((group + 0.05).log())
        inside = (group > 0.5).scatter(1, best[:, None], True)
        effect = effect.masked_fill(inside, -torch.inf)
    return torch.stack(columns, 2)


def _first_toe(answers: Tensor, none: Tensor, counted: Tensor | None, held: Tensor) -> Tensor:
    """Where the toe starts, [N, 1]: of free functions, as short as low answers ask for.

    No set has less than the odds that stay, e^none (1 - e^toe), and answers below those of none
    are what a free function is for.
    """
    if counted is not None:
        answers = answers.masked_fill(~counted, torch.nan)
    low = answers.nanquantile(LOW, 1) if answers.shape[1] else none.to(answers)
    stay = (low - none.to(answers)).exp().clamp(max=-math.expm1(FIRST_TOE))
    free = torch.log1p(-stay).clamp(max=FREE_TOE)
    return torch.where(held < HELD, free, FIRST_TOE)[:, None]


def _prior(heat: Tensor | None, places: Tensor, x: Tensor) -> Tensor:
    """Log weights before learning, [N, n, U]; every unit has a total weight of 1."""
    places = places.to(x)
    base = places.expand(len(x), *places.shape[-2:])
    if heat is not None:
        heat = heat.detach().to(x).clamp(min=0)
        mean = heat.mean(1, keepdim=True)
        relative = torch.where(mean > 0, heat / mean.clamp(min=1e-300), 1.0)
        base = base + (relative + FLOOR).log()[:, :, None]
    return base - base.logsumexp(1, keepdim=True)
