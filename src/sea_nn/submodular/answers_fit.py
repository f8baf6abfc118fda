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

from sea_nn.submodular.answers_function import AnswersFunction, Link, place_units, to_score

RATE, SHARED, OWN, AGAINST, FLOOR, NOISE = 0.2, 4.0, 3.0, 5.0, 0.3, 0.1
"""Adam's first step; precisions of a feature's factors in all units, in one, and of g; heat that
every feature has; error of an answer that f need not explain. Chosen on tuning inputs."""
FOUND, FOUND_RATE = 0.3, 0.1
"""The first two precisions, and the first step, where units start from groups that the answers
themselves show (``group_units``)."""
STEPS, FOUND_STEPS = 50, 200
SIZE, TOE = 0.05, 0.02  # precisions of a unit's size and share, and of the toe
FIRST_AGAINST, FIRST_TOE, LAST_TOE = 0.04, -3.0, -0.01
EFFECTS, PAIRS = 16.0, 0.05  # variances of single effects and of pairs, of answers of scale 1
BETAS, EPSILON = (0.9, 0.95), 1e-8  # Adam's
ROOM = 1 << 24  # numbers of sets worked on at once


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
    free: bool = False,
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
        against: also learn evidence against the class; f is then no longer monotone.
        free: let that evidence be as large as the answers say. Otherwise a strong prior holds it
            near 0, which predicts and orders better where there is none.
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
        same: dict[str, Any] = {
            "places": places,
            "link": link,
            "against": against,
            "steps": steps,
            "free": free,
        }
        parts = []
        for part in (slice(i, i + rows) for i in range(0, count, rows)):
            own = [None if t is None else t[part] for t in (heat, counted)]
            given = (t[part] for t in (sets, answers, none, all))
            parts.append(fit_answers(*given, heat=own[0], counted=own[1], **same))
        joined: dict[str, Any] = {
            name: torch.cat([part.parts()[name] for part in parts]) for name in parts[0].parts()
        }
        return replace(parts[0], **joined)
    with torch.no_grad():
        answers = answers.detach().double()
        found = places is None and per_input >= n
        if found:
            places = group_units(sets, answers, none, all, counted)
        fit = _Fit(
            x=sets.to(answers),
            wanted=to_score(answers, link),
            ends=(none.detach().to(answers).view(-1, 1), all.detach().to(answers).view(-1, 1)),
            base=_prior(heat, place_units(n) if places is None else places, sets.to(answers)),
            weigh=None if counted is None else counted.to(answers),
            link=link,
            against=against,
            precisions=(*((FOUND, FOUND) if found else (SHARED, OWN)), FOUND if free else AGAINST),
        )
        usual = FOUND_STEPS if found else STEPS
        fit.descend(usual if steps is None else steps, FOUND_RATE if found else RATE)
        return fit.function()


class _Fit:
    """The parameters of N inputs, side by side in one tensor, and the slope of their loss."""

    def __init__(
        self,
        x: Tensor,
        wanted: Tensor,
        ends: tuple[Tensor, Tensor],
        base: Tensor,
        weigh: Tensor | None,
        link: Link,
        against: bool,
        precisions: tuple[float, float, float],
    ) -> None:
        self.x, self.wanted, self.base, self.weigh = x, wanted, base, weigh
        (self.none, self.all), self.link, self.against = ends, link, against
        count, n, units = base.shape
        # A feature's factors in all units and in one, sizes and shares of units, the toe, g.
        self.sizes = (n, n * units, units, units, 1, n if against else 0)
        every = (*precisions[:2], SIZE, SIZE, TOE, precisions[2])
        self.free = x.new_zeros(count, sum(self.sizes))
        self.precision = torch.cat(
            [x.new_full((k,), p) for k, p in zip(self.sizes, every, strict=True)]
        )
        self.scale = torch.ones_like(self.all)
        if link == "value":  # in units of what the answers vary by
            spread = (wanted - self.none).square().mean(1, keepdim=True).sqrt().nan_to_num()
            self.scale = torch.maximum((self.all - self.none).abs(), spread).clamp(min=1e-30)
        # From the error of a score to twice its square's slope.
        self.counts = 2 / (NOISE * self.scale).square()
        if weigh is not None:
            self.counts = self.counts * weigh.square()

    def descend(self, steps: int, first_rate: float) -> None:
        """Take steps of Adam, each shorter than the one before."""
        self.first, self.second = torch.zeros_like(self.free), torch.zeros_like(self.free)
        rates = [
            first_rate * (0.5 + 0.5 * math.cos(math.pi * k / steps)) / (1 - BETAS[0] ** (k + 1))
            for k in range(steps)
        ]
        scales = [(1 - BETAS[1] ** (k + 1)) ** -0.5 for k in range(steps)]
        self.schedule = self.free.new_tensor([rates, scales]).T
        self.at = torch.zeros(1, dtype=torch.int64, device=self.free.device)
        if self.free.is_cuda and steps > 2:
            repeat_on_gpu(self.step, steps, self.free.device)
        else:
            for _ in range(steps):
                self.step()

    def step(self) -> None:
        """Take the next step of Adam."""
        slope = self.slope()
        self.first.lerp_(slope, 1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(slope, slope, value=1 - BETAS[1])
        rate, scale = self.schedule.index_select(0, self.at)[0].unbind()
        root = self.second.sqrt().mul_(scale).add_(EPSILON)
        self.free.sub_((self.first * rate).div_(root))
        self.at.add_(1)

    def function(self) -> AnswersFunction:
        """The functions that the parameters stand for."""
        weight, share, k, g = self._build()
        if not self.against:
            g = torch.zeros_like(weight[:, :, 0])
        return AnswersFunction(weight, share, g, k, self.none, self.all, self.link, self.x.shape[1])

    def _build(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        shared, own, size, mix, toe, contra = self.free.split(self.sizes, 1)
        log = self.base + own.view(self.base.shape) + shared[:, :, None] + size[:, None]
        k = (toe + FIRST_TOE).clamp(max=LAST_TOE)
        return log.exp(), mix.softmax(1), k, FIRST_AGAINST * self.scale * contra.exp()

    def slope(self) -> Tensor:
        """The gradient of the loss, in the order of the parameters: [N, P].

        For each r: score = link(stay, start + value), value = rise total - g . x, and so on down
        to the logarithms of weights; see ``AnswersFunction`` for the names.
        """
        weight, share, k, g = self._build()
        function = AnswersFunction(weight, share, g, k, self.none, self.all, self.link)
        stay, start, rest = function.link_parts
        passed = torch.exp(-(self.x @ weight))  # e^-z of every unit, [N, R, U]
        whole = -torch.expm1(-weight.sum(1))  # 1 - e^-t, [N, U]
        per_unit = share / whole
        rise = (1 - passed) @ per_unit[:, :, None]  # [N, R, 1]
        total = rest + g.sum(1, keepdim=True) if self.against else rest
        value = rise[:, :, 0] * total
        if self.against:
            value = value - (self.x @ g[:, :, None])[:, :, 0]
        if self.link == "value":
            by_value = (start + value - self.wanted) * self.counts
            by_toe = torch.zeros_like(k)
        else:
            level = start + value
            score = torch.logaddexp(stay, level).sigmoid()
            by_level = (score - self.wanted) * self.counts * (score * (1 - score))
            by_value = by_level * torch.sigmoid(level - stay)
            by_toe = self._slope_of_toe(k, stay, by_level, by_value, rise[:, :, 0])
        by_rise = (by_value * total)[:, :, None]
        by_unit = ((1 - passed).mT @ by_rise)[:, :, 0]  # of a unit's share over its whole, [N, U]
        by_sum = passed.mul_(by_rise) * per_unit[:, None]  # of z, [N, R, U]
        # Of t, which lowers the unit's share of the whole: whole' = e^-t = 1 - whole.
        by_total = -by_unit * per_unit * (1 - whole) / whole
        by_log = (self.x.mT @ by_sum + by_total[:, None]) * weight
        by_share = by_unit / whole
        by_mix = share * (by_share - (share * by_share).sum(1, keepdim=True))
        slopes = [by_log.sum(2), by_log.flatten(1), by_log.sum(1), by_mix, by_toe]
        if self.against:
            by_g = (by_value * rise[:, :, 0]).sum(1, keepdim=True) - (by_value[:, None] @ self.x)[
                :, 0
            ]
            slopes.append(by_g * g)
        return torch.cat(slopes, 1).addcmul_(self.free, self.precision, value=2)

    def _slope_of_toe(
        self, k: Tensor, stay: Tensor, by_level: Tensor, by_value: Tensor, rise: Tensor
    ) -> Tensor:
        """The slope in the toe's parameter, through where the rise starts, what stays and F."""
        by_stay = k.exp() / torch.expm1(k)  # of what stays, by k
        part = stay - self.all
        odds = torch.where(part < -1e-6, part.exp() / torch.expm1(part), 0.0)
        by_rest = odds * by_stay - 1  # of F, by k
        stays = ((by_level - by_value) * by_stay).sum(1, keepdim=True)
        moves = (by_value * (1 + rise * by_rest)).sum(1, keepdim=True)
        free = (self.all > self.none) & (k < LAST_TOE)
        return torch.where(free, stays + moves, 0.0)


def repeat_on_gpu(step: Callable[[], None], times: int, device: torch.device) -> None:
    """Run a step again and again: recorded once (a CUDA graph), it is launched as a whole.

    The step works in place, waits for nothing, and launches the same kernels each time.
    """
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
