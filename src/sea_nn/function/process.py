"""A Gaussian process over sets: what a model would say with only a set left, and how sure.

The model was asked about R sets S of n features. Its answers, log-odds or values, are taken for
draws of a Gaussian process whose kernel is a sum of what may matter (``kernel.py``).

>>> sets = torch.tensor([[[0.0, 0], [1, 0], [0, 1], [1, 1]]])
>>> process = SetProcess.fit(sets, torch.tensor([[-2.0, 1.0, -1.0, 2.0]]))
>>> bool((process.predict(sets).mean[0, 1] - 1).abs() < 0.3)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sea_nn.function.kernel import Kernel
from sea_nn.function.tuning import TUNING

GRID = 65
"""Places in [0, 1] at which the functions of one number (a size, a share) are tabulated."""
CACHE = 1 << 18
"""Numbers that are kept at hand: of inputs with R answers, as many at a time as have R² each."""


class Prediction(NamedTuple):
    """What is expected of sets, [N, R] each: the mean and the standard deviation."""

    mean: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Draws:
    """Functions that the answers do not rule out, K for each of N inputs; their mean may be one.

    A function is sum_r a_r k(S, S_r) plus a draw of the prior: waves g cos(w . s + phase) in place
    of the first part of the kernel, a linear function, and tables of one number.

    Attributes:
        weight: a, [N, K, R].
        linear: what each feature adds, [N, K, n], those of a and of the draw together.
        tables: values at ``GRID`` places for the size and each share, [N, K, 1 + m, GRID].
        waves: w, [N, M, n]; there are none for the mean alone.
        phases: [N, M].
        heights: g, [N, K, M].
    """

    weight: Tensor
    linear: Tensor
    tables: Tensor
    waves: Tensor
    phases: Tensor
    heights: Tensor

    @property
    def level(self) -> Tensor:
        """What the empty set has of the linear part, [N, K]."""
        return -self.linear.sum(2) / 2


@dataclass(frozen=True)
class SetProcess:
    """The process of N inputs with n features, given their answers. Make one by ``fit``.

    Attributes:
        sets: what was left, float64 [N, R, n].
        answers: log-odds or values, [N, R].
        kernel: what makes answers alike, in units of their spread.
        middle: the answers' mean, [N, 1].
        spread: their standard deviation, [N, 1].
        root: the Cholesky factor of the kernel of the sets with noise, [N, R, R].
        weight: its inverse times the standardised answers, [N, R].
    """

    sets: Tensor
    answers: Tensor
    kernel: Kernel
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
        start: SetProcess | None = None,
        most: int = TUNING.most_answers_for_evidence,
        steps: int = TUNING.steps,
    ) -> SetProcess:
        """The process of answers about sets.

        Args:
            sets: what was left, 0 or 1, [N, R, n].
            answers: log-odds or values, [N, R].
            shares: of each member's heat by feature, [N, m, n]; None without members.
            near: how far neighbours stand for each other, [n, n], rows sum to 1.
            start: a process of fewer answers, to go on from.
            most: variances and scales are those of at most so many answers, evenly from all rounds.
            steps: of the search for the largest evidence, at most.
        """
        x, y = sets.double(), answers.double()
        shares = x.new_zeros(len(x), 0, x.shape[2]) if shares is None else shares.double()
        kernel = Kernel(shares, near, {} if start is None else start.kernel.hyper)
        middle, spread = find_spread(y)
        rows = torch.linspace(0, x.shape[1] - 1, min(x.shape[1], most)).long()
        some, said = x[:, rows], ((y - middle) / spread)[:, rows]
        blocks = find_blocks(*x.shape[:2])
        found = [kernel.rows(b).fit(some[b], said[b], steps).hyper for b in blocks]
        hyper = {name: torch.cat([own[name] for own in found]) for name in found[0]}
        return cls.of(x, y, replace(kernel, hyper=hyper))

    @classmethod
    @torch.no_grad()
    def of(cls, sets: Tensor, answers: Tensor, kernel: Kernel) -> SetProcess:
        """The process of answers, by a kernel that is known."""
        middle, spread = find_spread(answers)
        root = torch.linalg.cholesky(kernel.add_noise(kernel.compare(sets, sets)))
        standard = ((answers - middle) / spread)[..., None]
        weight = torch.cholesky_solve(standard, root)[..., 0]
        return cls(sets, answers, kernel, middle, spread, root, weight)

    def rows(self, which: Tensor | slice) -> SetProcess:
        """The processes of some of the inputs."""
        cut: dict[str, Any] = {k: v[which] for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, kernel=self.kernel.rows(which), **cut)

    # --- what is expected

    @torch.no_grad()
    def predict(self, sets: Tensor) -> Prediction:
        """What is expected of sets [N, R, n], on the answers' scale; noise is in the deviation."""
        x = sets.double()
        cross = self.kernel.compare(x, self.sets)
        solved = torch.linalg.solve_triangular(self.root, cross.mT, upper=False)
        h, mine = self.kernel.hyper, (x - 0.5).square() @ self.kernel.worth[..., None]
        fixed = h["together"].exp() + h["size"].exp() + h["members"].exp().sum(1)
        own = fixed[:, None] + mine[..., 0] - solved.square().sum(1)
        deviation = (own.clamp(min=0) + self.kernel.noise[:, None]).sqrt()
        mean = (cross @ self.weight[..., None])[..., 0] * self.spread + self.middle
        return Prediction(mean, deviation * self.spread)

    def expect(self, sets: Tensor) -> Tensor:
        """The mean alone, with a gradient by the sets where they want one: [N, R]."""
        mean = (self.kernel.compare(sets, self.sets) @ self.weight[..., None])[..., 0]
        return mean * self.spread + self.middle

    @torch.no_grad()
    def covariance(self, sets: Tensor) -> Tensor:
        """How what is unknown about sets goes together, [N, R, R], in units of the spread."""
        x = sets.double()
        cross = self.kernel.compare(x, self.sets)
        solved = torch.linalg.solve_triangular(self.root, cross.mT, upper=False)
        known: Tensor = solved.mT @ solved
        return self.kernel.compare(x, x) - known

    @torch.no_grad()
    def leave_out(self) -> tuple[Tensor, Tensor]:
        """Each answer predicted from the others, and its error in standard deviations, [N, R]."""
        inverse = torch.cholesky_inverse(self.root).diagonal(dim1=1, dim2=2)
        error = self.weight / inverse
        return self.answers - error * self.spread, error * inverse.sqrt()

    @torch.no_grad()
    def trust(self) -> Tensor:
        """The share of what the answers vary by that each member's heat explains, [N, m]."""
        first = self.kernel.compare_together(self.sets, self.sets)[:, None]
        parts = torch.cat([first, self.kernel.compare_rest(self.sets, self.sets)], 1)
        varied = (parts @ self.weight[:, None, :, None])[..., 0].var(2, unbiased=False)
        return varied[:, 3:] / varied.sum(1, keepdim=True).clamp(min=1e-300)

    # --- functions

    def mean(self) -> Draws:
        """The function that is expected, as ``Draws`` of one."""
        return self.draw(0, mean=True)

    @torch.no_grad()
    def draw(self, count: int, seed: int = 0, mean: bool = False) -> Draws:
        """Functions that the answers do not rule out, and where wanted, their mean as the last.

        The same draws for each input. A draw of the prior is moved to where the answers are.
        """
        n_inputs, answers, n = self.sets.shape
        own, n_numbers = self.kernel, 1 + self.kernel.shares.shape[1]
        waves = TUNING.waves if count else 0
        generator = torch.Generator().manual_seed(seed)
        draw: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
        phases = 2 * math.pi * torch.rand(waves, **draw).expand(n_inputs, -1)
        directions = math.sqrt(2) * torch.randn(waves, n, **draw) @ own.mixed

        def normal(size: int) -> Tensor:
            return torch.cat([torch.randn(count, size, **draw), torch.zeros(int(mean), size)])

        linear = normal(n) * own.worth.sqrt()[:, None]
        height = (2 * own.hyper["together"].exp() / max(waves, 1)).sqrt()
        heights = normal(waves) * height[:, None, None]
        place = torch.linspace(0, 1, GRID, dtype=torch.float64).expand(n_inputs, n_numbers, -1)
        kernel = own.compare_numbers(place, place)
        root = torch.linalg.cholesky(kernel + 1e-8 * kernel.diagonal(dim1=2, dim2=3).diag_embed())
        tables = normal(n_numbers * GRID).view(-1, n_numbers, 1, GRID) @ root.mT[:, None]
        noise = normal(answers) * own.noise.sqrt()[:, None, None]
        nothing = self.weight.new_zeros(n_inputs, count + mean, answers)
        prior = Draws(nothing, linear, tables[..., 0, :], directions, phases, heights)
        off = self.answers[:, None] - self.evaluate(prior, self.sets)
        rest = off / self.spread[..., None] - noise
        weight = torch.cholesky_solve(rest.mT, self.root).mT
        # What weights say of single features, sizes and shares is gathered.
        more = weight[:, None] @ own.compare_numbers(own.count(self.sets), place)
        return replace(
            prior,
            weight=weight,
            linear=linear + (weight @ (self.sets - 0.5)) * own.worth[:, None],
            tables=prior.tables + more.transpose(1, 2),
        )

    @torch.no_grad()
    def evaluate(self, f: Draws, sets: Tensor) -> Tensor:
        """K functions at the same sets [N, R, n]: [N, K, R], on the answers' scale."""
        x = sets.double()
        together = self.kernel.compare_together(x, self.sets)
        said = f.linear @ x.mT + f.level[..., None] + f.weight @ together.mT
        said = said + f.heights @ torch.cos(f.waves @ x.mT + f.phases[..., None])
        numbers = self.kernel.count(x)[:, None].expand(-1, said.shape[1], -1, -1)
        said = said + look_up(f.tables, numbers).sum(2)
        return said * self.spread[..., None] + self.middle[..., None]


def find_blocks(count: int, answers: int) -> tuple[Tensor, ...]:
    """Inputs, few at a time: their matrices of answers should fit into a cache."""
    return tuple(torch.arange(count).split(max(1, CACHE // answers**2)))


def find_spread(answers: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of answers and their standard deviation, 1 where they are all the same: [N, 1]."""
    spread = answers.std(1, keepdim=True)
    spread = torch.where(spread > 1e-9 * answers.abs().amax(1, keepdim=True), spread, 1.0)
    return answers.mean(1, keepdim=True), spread


def look_up(tables: Tensor, places: Tensor) -> Tensor:
    """Tables over [0, 1], [..., GRID], at places [..., P], linear in between: [..., P]."""
    at = places.clamp(0, 1) * (GRID - 1)
    low = at.floor().clamp(max=GRID - 2).long()
    first, second = tables.gather(-1, low), tables.gather(-1, low + 1)
    return torch.lerp(first, second, at - low)
