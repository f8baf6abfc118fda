"""A Gaussian process over sets: what a model would say with only a set left, and how sure.

The model was asked about R sets S of n features. Its answers, log-odds or values, are taken for
draws of a Gaussian process whose kernel is a sum of what may matter (docs/math.md, section 12):

    k(S, T) = v_p exp(-(s - t)' G (s - t))            which features are there together
            + v_l (s - 1/2)' W (t - 1/2)              what each adds by itself
            + v_c rbf(|S| / n, |T| / n)               how many are left
            + sum_j v_j rbf(share_j(S), share_j(T))   how much of member j's heat is left

s is 1 for a feature that is left. G and W hold one scale a feature, and G mixes neighbours on a
grid. All scales and variances, the noise too, maximise the evidence of the answers (with weak
priors), for each input by itself. The variances v_j say which member the answers believe.

>>> sets = torch.tensor([[[0.0, 0], [1, 0], [0, 1], [1, 1]]])
>>> process = SetProcess.fit(sets, torch.tensor([[-2.0, 1.0, -1.0, 2.0]]))
>>> bool((process.predict(sets).mean[0, 1] - 1).abs() < 0.3)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sea_nn.function.tuning import TUNING

GRID = 65
"""Places in [0, 1] at which the functions of one number (a size, a share) are tabulated."""


class Prediction(NamedTuple):
    """What is expected of sets, [N, R] each: the mean and the standard deviation."""

    mean: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Draws:
    """Functions that the answers do not rule out, K for each of N inputs, or their mean alone.

    A function is sum_r a_r k(S, S_r) plus a draw of the prior: waves g cos(w . s + phase) in place
    of the first part of the kernel, a linear function, and tables of one number.

    Attributes:
        weight: a, [N, K, R].
        waves: w, [N, M, n]; phases, [N, M]; heights g, [N, K, M]; None of the mean.
        linear: what each feature adds, [N, K, n], those of a and of the draw together.
        level: what the empty set has of the linear part, [N, K].
        tables: values at ``GRID`` places for the size and each share, [N, K, 1 + m, GRID].
    """

    weight: Tensor
    linear: Tensor
    level: Tensor
    tables: Tensor
    waves: Tensor | None = None
    phases: Tensor | None = None
    heights: Tensor | None = None

    def rows(self, which: Tensor) -> Draws:
        """The functions of some of the inputs."""
        parts = ((item.name, getattr(self, item.name)) for item in fields(self))
        cut: dict[str, Any] = {name: None if p is None else p[which] for name, p in parts}
        return Draws(**cut)

    def add(self, other: Draws) -> Draws:
        """These functions and those of draws without waves, side by side."""
        made = {}
        for item in fields(self):
            own, more = getattr(self, item.name), getattr(other, item.name)
            if item.name == "heights":
                more = torch.zeros_like(own[:, : other.weight.shape[1]])
            made[item.name] = own if item.name in ("waves", "phases") else torch.cat([own, more], 1)
        return Draws(**made)


@dataclass(frozen=True)
class SetProcess:
    """The process of N inputs with n features, given their answers. Make one by ``fit``.

    Attributes:
        sets: what was left, float64 [N, R, n].
        answers: log-odds or values, [N, R].
        shares: how much of each member's heat lies in each feature, [N, m, n]; below 0 where it
        speaks
            against the class. Absolute values sum to 1.
        near: how far neighbours stand for each other, [n, n]; None without a grid.
        hyper: logarithms of variances and scales by name, [N] or [N, k] each.
        middle: the answers' mean, [N, 1].
        spread: their standard deviation, [N, 1].
        root: the Cholesky factor of the kernel of the sets with noise, [N, R, R].
        weight: its inverse times the standardised answers, [N, R].
    """

    sets: Tensor
    answers: Tensor
    shares: Tensor
    near: Tensor | None
    hyper: dict[str, Tensor]
    middle: Tensor
    spread: Tensor
    root: Tensor
    weight: Tensor

    @classmethod
    def fit(
        cls,
        sets: Tensor,
        answers: Tensor,
        *,
        shares: Tensor | None = None,
        near: Tensor | None = None,
        steps: int = 40,
        start: SetProcess | None = None,
    ) -> SetProcess:
        """The process of answers about sets.

        Args:
            sets: what was left, 0 or 1, [N, R, n].
            answers: log-odds or values, [N, R].
            shares: of each member's heat by feature, [N, m, n]; None without members.
            near: how far neighbours stand for each other, [n, n], rows sum to 1.
            steps: of the search for the largest evidence.
            start: a process of fewer answers, to go on from.
        """
        x, y = sets.double(), answers.double()
        count, _, n = x.shape
        shares = x.new_zeros(count, 0, n) if shares is None else shares.double()
        hyper = _first_guess(count, n, shares.shape[1]) if start is None else start.hyper
        return cls.of(x, y, shares, near, cls._plain(x, y, shares, near, hyper)._search(steps))

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        sets: Tensor,
        answers: Tensor,
        shares: Tensor,
        near: Tensor | None,
        hyper: dict[str, Tensor],
    ) -> SetProcess:
        """The process of answers, by scales and variances that are known."""
        made = cls._plain(sets, answers, shares, near, hyper)
        kernel = made._kernel(sets, sets) + made._noise_matrix(sets.shape[1])
        root = torch.linalg.cholesky(kernel)
        weight = torch.cholesky_solve(made._standard()[..., None], root)[..., 0]
        return replace(made, root=root, weight=weight)

    @classmethod
    def _plain(
        cls, x: Tensor, y: Tensor, shares: Tensor, near: Tensor | None, hyper: dict[str, Tensor]
    ) -> SetProcess:
        middle, spread = y.mean(1, keepdim=True), y.std(1, keepdim=True)
        spread = torch.where(spread > 1e-9 * y.abs().amax(1, keepdim=True), spread, 1.0)
        return cls(x, y, shares, near, hyper, middle, spread, y, y)

    def rows(self, which: Tensor | slice) -> SetProcess:
        """The processes of some of the inputs."""
        names = ("sets", "answers", "shares", "middle", "spread", "root", "weight")
        cut: dict[str, Any] = {name: getattr(self, name)[which] for name in names}
        return replace(self, hyper={k: v[which] for k, v in self.hyper.items()}, **cut)

    @property
    def n_free(self) -> int:
        """How many variances and scales the evidence chose, those of single features apart."""
        return sum(v[0].numel() for name, v in self.hyper.items() if name != "own")

    # --- the kernel

    def _kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """The kernel of sets [N, A, n] and [N, B, n], [N, A, B], in units of the spread."""
        first, *others = self._parts(a, b)
        return sum(others, first)

    def _parts(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """The kernel's parts: together, linear, size, and each member's share."""
        h, metric = self.hyper, self.metric()
        left, right = a @ metric, (b @ metric * b).sum(2)
        apart = (left * a).sum(2)[:, :, None] + right[:, None] - 2 * left @ b.mT
        parts = [torch.exp(_wide(h["together"]) - apart.clamp(min=0))]
        parts.append(((a - 0.5) * self._worth()[:, None]) @ (b - 0.5).mT)
        for k, (own, other) in enumerate(zip(self._numbers(a), self._numbers(b), strict=True)):
            parts.append(self._compare(own, other, k))
        return parts

    def _compare(self, a: Tensor, b: Tensor, k: int) -> Tensor:
        """The part of the kernel of the k-th number of sets, [N, A] and [N, B]: [N, A, B]."""
        scale = self.hyper["size_scale" if k == 0 else "share_scale"]
        variance = self.hyper["size"] if k == 0 else self.hyper["members"][:, k - 1]
        apart = (a[:, :, None] - b[:, None]).square()
        return torch.exp(_wide(variance) - apart * _wide((-2 * scale).exp() / 2))

    def _numbers(self, x: Tensor) -> list[Tensor]:
        """The size of sets and what is left of each member's heat, from 0 to 1: [N, R] each."""
        return [x.mean(2), *(x @ self.shares.mT + self.least()[:, None]).unbind(2)]

    def least(self) -> Tensor:
        """What the empty set has of each member's heat: its part below 0 is missing, [N, m]."""
        return (-self.shares).clamp(min=0).sum(2)

    def _scales(self) -> Tensor:
        """How much each feature matters, [N, n]."""
        return (self.hyper["scale"][:, None] + self.hyper["own"]).exp()

    def _worth(self) -> Tensor:
        """The diagonal of W: the variance of what each feature adds, [N, n]."""
        scale = self._scales()
        worth = 4 / scale.shape[1] * scale / scale.mean(1, keepdim=True)
        return self.hyper["linear"].exp()[:, None] * worth

    def metric(self) -> Tensor:
        """G, [N, n, n]: diagonal, or neighbours mixed as far as the evidence wants."""
        root = self._scales().sqrt()
        if self.near is None:
            return torch.diag_embed(root.square())
        mix = self.hyper["mix"].sigmoid()[:, None, None]
        blur = (1 - mix) * torch.eye(len(self.near), dtype=root.dtype) + mix * self.near
        return root[:, :, None] * (blur.mT @ blur) * root[:, None]

    def noise(self) -> Tensor:
        """The variance of what no function explains, in units of the spread, [N]."""
        return self.hyper["noise"].exp() + TUNING.least_noise

    def _noise_matrix(self, size: int) -> Tensor:
        return self.noise()[:, None, None] * torch.eye(size, dtype=torch.float64)

    def _standard(self) -> Tensor:
        return (self.answers - self.middle) / self.spread

    # --- evidence

    def _search(self, steps: int) -> dict[str, Tensor]:
        """The hyperparameters of the largest evidence that Adam finds; of many answers, of some."""
        most = TUNING.most_answers_for_evidence
        some = self
        if self.sets.shape[1] > most:  # evenly from all rounds
            rows = torch.linspace(0, self.sets.shape[1] - 1, most).long()
            some = replace(self, sets=self.sets[:, rows], answers=self.answers[:, rows])
        names = list(self.hyper)
        flat = [self.hyper[name].view(len(self.sets), -1) for name in names]
        sizes = [part.shape[1] for part in flat]
        free = torch.cat(flat, 1)
        slope, square = torch.zeros_like(free), torch.zeros_like(free)

        def split(values: Tensor) -> dict[str, Tensor]:
            parts = zip(names, values.split(sizes, 1), strict=True)
            return {name: part.view(self.hyper[name].shape) for name, part in parts}

        for step in range(1, steps + 1):
            with torch.enable_grad():
                leaf = free.requires_grad_(True)
                (grad,) = torch.autograd.grad(replace(some, hyper=split(leaf))._rise(), leaf)
            slope = torch.lerp(slope, grad, 0.1)
            square = torch.lerp(square, grad.square(), 0.05)
            size = (square / (1 - 0.95**step)).sqrt() + 1e-12
            free = free.detach() - TUNING.evidence_rate * slope / (1 - 0.9**step) / size
        return {name: part.detach() for name, part in split(free).items()}

    def _rise(self) -> Tensor:
        """A number with the slope of minus the logarithm of evidence and prior.

        By the kernel matrix K of standardised answers y this slope is (K^-1 - a a') / 2, where a is
        K^-1 y: so nothing is differentiated but the kernel.
        """
        kernel = self._kernel(self.sets, self.sets) + self._noise_matrix(self.sets.shape[1])
        root = torch.linalg.cholesky(kernel.detach())
        a = torch.cholesky_solve(self._standard()[..., None], root)
        rise = (kernel * (torch.cholesky_inverse(root) - a @ a.mT)).sum() / 2
        for name, (middle, width) in _PRIORS.items():
            if name == "scale":
                middle = middle - math.log(self.sets.shape[2])
            rise = rise + (((self.hyper[name] - middle) / width).square() / 2).sum()
        return rise

    # --- what is expected

    @torch.no_grad()
    def predict(self, sets: Tensor) -> Prediction:
        """What is expected of sets [N, R, n], on the answers' scale; noise is in the deviation."""
        x = sets.double()
        cross = self._kernel(x, self.sets)
        solved = torch.linalg.solve_triangular(self.root, cross.mT, upper=False)
        own = self._prior_variance(x) - solved.square().sum(1)
        deviation = (own.clamp(min=0) + self.noise()[:, None]).sqrt()
        mean = (cross @ self.weight[..., None])[..., 0] * self.spread + self.middle
        return Prediction(mean, deviation * self.spread)

    def expect(self, sets: Tensor) -> Tensor:
        """The mean alone, with a gradient by the sets where they want one: [N, R]."""
        mean = (self._kernel(sets, self.sets) @ self.weight[..., None])[..., 0]
        return mean * self.spread + self.middle

    def _prior_variance(self, x: Tensor) -> Tensor:
        h = self.hyper
        fixed = h["together"].exp() + h["size"].exp() + h["members"].exp().sum(1)
        return fixed[:, None] + ((x - 0.5).square() @ self._worth()[..., None])[..., 0]

    @torch.no_grad()
    def covariance(self, sets: Tensor) -> Tensor:
        """How what is unknown about sets goes together, [N, R, R], in units of the spread."""
        x = sets.double()
        solved = torch.linalg.solve_triangular(
            self.root, self._kernel(x, self.sets).mT, upper=False
        )
        known: Tensor = solved.mT @ solved
        return self._kernel(x, x) - known

    @torch.no_grad()
    def leave_out(self) -> tuple[Tensor, Tensor]:
        """Each answer predicted from the others, and its error in standard deviations, [N, R]."""
        inverse = torch.cholesky_inverse(self.root).diagonal(dim1=1, dim2=2)
        error = self.weight / inverse
        return self.answers - error * self.spread, error * inverse.sqrt()

    @torch.no_grad()
    def trust(self) -> Tensor:
        """The share of what the answers vary by that each member's heat explains, [N, m]."""
        parts = torch.stack(
            [(part @ self.weight[..., None])[..., 0] for part in self._parts(self.sets, self.sets)]
        )
        varied = parts.var(2, unbiased=False)
        return (varied[3:] / varied.sum(0).clamp(min=1e-300)).T

    # --- functions

    @torch.no_grad()
    def mean(self) -> Draws:
        """The function that is expected, as ``Draws`` of one."""
        return self._add_prior(self.weight[:, None], None)

    @torch.no_grad()
    def draw(self, count: int, generator: torch.Generator) -> Draws:
        """Functions that the answers do not rule out; the same draws for each input."""
        n_inputs, answers, n = self.sets.shape
        waves = TUNING.waves

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        root = torch.linalg.cholesky(self.metric() + 1e-12 * torch.eye(n, dtype=torch.float64))
        w = math.sqrt(2) * (normal(waves, n) @ root.mT)
        phases = 2 * math.pi * torch.rand(waves, generator=generator, dtype=torch.float64)
        height = (2 * self.hyper["together"].exp() / waves).sqrt()
        heights = normal(count, waves) * height[:, None, None]
        linear = normal(count, n) * self._worth().sqrt()[:, None]
        place = torch.linspace(0, 1, GRID, dtype=torch.float64).expand(n_inputs, -1)
        tables = []
        for k in range(1 + self.shares.shape[1]):
            kernel = self._compare(place, place, k)
            kernel += 1e-8 * kernel.diagonal(dim1=1, dim2=2).diag_embed()
            tables.append(normal(count, GRID) @ torch.linalg.cholesky(kernel).mT)
        prior = Draws(
            self.weight.new_zeros(n_inputs, count, answers),
            linear,
            -linear.sum(2) / 2,
            torch.stack(tables, 2),
            w,
            phases.expand(n_inputs, -1),
            heights,
        )
        noise = normal(count, answers) * self.noise().sqrt()[:, None, None]
        rest = self._standard()[:, None] - self.evaluate(prior, self.sets, raw=True) - noise
        return self._add_prior(torch.cholesky_solve(rest.mT, self.root).mT, prior)

    def _add_prior(self, weight: Tensor, prior: Draws | None) -> Draws:
        """Gather what weights and a draw of the prior say of single features, sizes and shares."""
        linear = (weight @ (self.sets - 0.5)) * self._worth()[:, None]
        place = torch.linspace(0, 1, GRID, dtype=torch.float64).expand(len(weight), -1)
        numbers = enumerate(self._numbers(self.sets))
        tables = [weight @ self._compare(number, place, k) for k, number in numbers]
        made = Draws(weight, linear, -linear.sum(2) / 2, torch.stack(tables, 2))
        if prior is None:
            return made
        return replace(
            prior,
            weight=weight,
            linear=linear + prior.linear,
            level=made.level + prior.level,
            tables=made.tables + prior.tables,
        )

    @torch.no_grad()
    def evaluate(self, f: Draws, sets: Tensor, raw: bool = False) -> Tensor:
        """K functions at the same sets [N, R, n]: [N, K, R], on the answers' scale."""
        x = sets.double()
        said = f.linear @ x.mT + f.level[..., None]
        metric = self.metric()
        left = x @ metric
        apart = (left * x).sum(2)[:, :, None] + (self.sets @ metric * self.sets).sum(2)[:, None]
        together = torch.exp(-(apart - 2 * left @ self.sets.mT).clamp(min=0))
        said = said + f.weight @ (self.hyper["together"].exp()[:, None, None] * together).mT
        if f.waves is not None and f.heights is not None and f.phases is not None:
            waves = torch.cos(f.waves @ x.mT + f.phases[..., None])
            said = said + f.heights @ waves
        numbers = self._numbers(x)
        for k, number in enumerate(numbers):
            said = said + look_up(f.tables[:, :, k], number[:, None].expand(-1, said.shape[1], -1))
        return said if raw else said * self.spread[..., None] + self.middle[..., None]


_PRIORS: dict[str, tuple[float, float]] = {
    "together": (0.0, 2.0),
    "linear": (-1.0, 2.0),
    "size": (-1.0, 2.0),
    "members": (-1.0, 2.0),
    "scale": (math.log(4), 1.5),  # over n
    "own": (0.0, TUNING.own_scale),
    "mix": (0.0, 1.5),
    "size_scale": (math.log(0.3), 0.7),
    "share_scale": (math.log(0.3), 0.7),
    "noise": (math.log(0.02), 2.0),
}
"""Middle and width of each logarithm's prior (of ``mix``, the logit's)."""


def _first_guess(count: int, n: int, members: int) -> dict[str, Tensor]:
    shapes = {"own": (count, n), "members": (count, members)}
    made = {}
    for name, (middle, _) in _PRIORS.items():
        middle = middle - math.log(n) if name == "scale" else middle
        made[name] = torch.full(shapes.get(name, (count,)), middle, dtype=torch.float64)
    return made


def look_up(tables: Tensor, places: Tensor) -> Tensor:
    """Tables over [0, 1], [..., GRID], at places [..., P], linear in between: [..., P]."""
    at = places.clamp(0, 1) * (GRID - 1)
    low = at.floor().clamp(max=GRID - 2).long()
    first, second = tables.gather(-1, low), tables.gather(-1, low + 1)
    return torch.lerp(first, second, at - low)


def _wide(value: Tensor) -> Tensor:
    return value[:, None, None]
