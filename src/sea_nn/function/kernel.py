"""The kernel of the process over sets: what of two sets makes a model's answers alike.

It is a sum of what may matter (docs/math.md, section 12):

    k(S, T) = v_p exp(-(s - t)' G (s - t))            which features are there together
            + v_l (s - 1/2)' W (t - 1/2)              what each adds by itself
            + v_c rbf(|S| / n, |T| / n)               how many are left
            + sum_j v_j rbf(share_j(S), share_j(T))   how much of member j's heat is left

s is 1 for a feature that is left. G and W hold one scale a feature, and G mixes neighbours on a
grid. All scales and variances, the noise too, maximise the evidence of the answers (with weak
priors), for each input by itself. The variances v_j say which member the answers believe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from sea_nn.function.tuning import TUNING

MEMORY = 10
"""Steps of the search for the largest evidence that tell it how the evidence is curved."""
FARTHEST = 2.0
"""No step of it goes farther along any axis, in units of the priors' widths."""

SAME = 1e-6
"""Free numbers of a kernel, and shares of heat, that differ by less count as the same."""


@dataclass(frozen=True)
class Kernel:
    """The kernels of N inputs with n features, in units of the answers' spread.

    Attributes:
        shares: how much of each member's heat lies in each feature, [N, m, n]; below 0 where it
            speaks against the class. Absolute values sum to 1.
        near: how far neighbours stand for each other, [n, n]; None without a grid.
        hyper: logarithms of variances and scales by name, [N] or [N, k] each (of ``mix`` the
            logit); {} for the middle of their priors.
    """

    shares: Tensor
    near: Tensor | None
    hyper: dict[str, Tensor]

    def rows(self, which: Tensor | slice) -> Kernel:
        """The kernels of some of the inputs."""
        hyper = {name: value[which] for name, value in self.hyper.items()}
        return Kernel(self.shares[which], self.near, hyper)

    # --- its parts

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        """The kernel of sets [N, A, n] and [N, B, n]: [N, A, B]."""
        return self.compare_together(a, b) + self.compare_rest(a, b).sum(1)

    def compare_together(self, a: Tensor, b: Tensor) -> Tensor:
        """Its first part."""
        left, right = a @ self.metric, (b @ self.metric * b).sum(2)
        apart = (left * a).sum(2)[:, :, None] + right[:, None] - 2 * left @ b.mT
        return torch.exp(self.hyper["together"][:, None, None] - apart.clamp(min=0))

    def compare_rest(self, a: Tensor, b: Tensor) -> Tensor:
        """Its other parts: linear, the size, and each member's share: [N, 2 + m, A, B]."""
        linear = ((a - 0.5) * self.worth[:, None]) @ (b - 0.5).mT
        return torch.cat([linear[:, None], self.compare_numbers(self.count(a), self.count(b))], 1)

    def compare_numbers(self, a: Tensor, b: Tensor) -> Tensor:
        """The parts of numbers of sets, [N, 1 + m, A] and [N, 1 + m, B]: [N, 1 + m, A, B]."""
        h, m = self.hyper, self.shares.shape[1]
        variance = torch.cat([h["size"][:, None], h["members"]], 1)[..., None, None]
        scales = torch.cat([h["size_scale"][:, None], h["share_scale"][:, None].expand(-1, m)], 1)
        apart = (a[..., None] - b[..., None, :]).square()
        return torch.exp(variance - apart * ((-2 * scales).exp() / 2)[..., None, None])

    def count(self, x: Tensor) -> Tensor:
        """The size of sets and what is left of each member's heat, from 0 to 1: [N, 1 + m, R]."""
        # Heat below 0 is missing from the empty set.
        left = self.shares @ x.mT + (-self.shares).clamp(min=0).sum(2, keepdim=True)
        return torch.cat([x.mean(2)[:, None], left], 1)

    @cached_property
    def scales(self) -> Tensor:
        """How much each feature matters, [N, n]."""
        return (self.hyper["scale"][:, None] + self.hyper["own"]).exp()

    @cached_property
    def worth(self) -> Tensor:
        """The diagonal of W: the variance of what each feature adds, [N, n]."""
        share = self.scales / self.scales.mean(1, keepdim=True)
        return self.hyper["linear"].exp()[:, None] * 4 / self.scales.shape[1] * share

    @cached_property
    def mixed(self) -> Tensor:
        """How features stand for each other, each in units of its scale: F, [N, n, n]."""
        mix, eye = self.hyper["mix"].sigmoid()[:, None, None], torch.eye(self.shares.shape[2])
        blur = eye.to(mix) if self.near is None else torch.lerp(eye.to(mix), self.near, mix)
        return blur * self.scales.sqrt()[:, None]

    @cached_property
    def metric(self) -> Tensor:
        """G = F' F, [N, n, n]: diagonal, or neighbours mixed as far as the evidence wants."""
        return self.mixed.mT @ self.mixed

    @property
    def noise(self) -> Tensor:
        """The variance of what no function explains, [N]."""
        return self.hyper["noise"].exp() + TUNING.least_noise

    def add_noise(self, kernel: Tensor) -> Tensor:
        """The kernel of answers, of that of their sets: [N, R, R]."""
        return kernel + self.noise[:, None, None] * torch.eye(kernel.shape[1]).to(kernel)

    # --- evidence

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor, steps: int) -> Kernel:
        """The kernel of the largest evidence of answers y, [N, R], about sets x, [N, R, n].

        It is searched for from this one on, in units of the priors.
        """
        members, n = self.shares.shape[1:]
        priors = {
            "together": (0.0, 2.0, 1),
            "linear": (-1.0, 2.0, 1),
            "size": (-1.0, 2.0, 1),
            "members": (-1.0, 2.0, members),
            "scale": (math.log(4 / n), 1.5, 1),
            "own": (0.0, TUNING.own_scale, n),
            "mix": (0.0, 1.5, 1),
            "size_scale": (math.log(0.3), 0.7, 1),
            "share_scale": (math.log(0.3), 0.7, 1),
            "noise": (math.log(0.02), 2.0, 1),
        }
        table = torch.tensor(list(priors.values()), dtype=x.dtype)
        sizes = table[:, 2].long()
        middle, width = table[:, :2].repeat_interleave(sizes, 0).T

        def split(free: Tensor) -> Kernel:
            parts = zip(priors, (middle + width * free).split(sizes.tolist(), 1), strict=True)
            hyper = {k: part if k in ("own", "members") else part[:, 0] for k, part in parts}
            return replace(self, hyper=hyper)

        def join(parts: dict[str, Tensor]) -> Tensor:
            return torch.cat([parts[name].view(len(x), -1) for name in priors], 1)

        def find(free: Tensor) -> tuple[Tensor, Tensor]:
            value, slopes = split(free).find_evidence(x, y[..., None])
            return value + free.square().sum(1) / 2, join(slopes) * width + free

        known = join(self.hyper) if self.hyper else middle.expand(len(x), -1)
        free = minimize(find, (known - middle) / width, TUNING.close, steps)
        # Rounded, so that beside other inputs, where sums run in another order, it is the same.
        return split((free / SAME).round() * SAME)

    def find_evidence(self, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Minus the logarithm of the evidence, [N], and its slope by each of ``hyper``.

        By the kernel matrix K of the answers the slope is (K^-1 - a a') / 2, where a is K^-1 y; the
        rest is how the kernel's parts change.
        """
        h, scale = self.hyper, self.scales
        together, rest = self.compare_together(x, x), self.compare_rest(x, x)
        root, failed = torch.linalg.cholesky_ex(self.add_noise(together + rest.sum(1)))
        inverse = torch.cholesky_inverse(root)
        a = inverse @ y
        value = (y * a).sum((1, 2)) / 2 + root.diagonal(dim1=1, dim2=2).log().sum(1)
        slope = (inverse - a @ a.mT) / 2
        together, by_number, numbers = slope * together, slope[:, None] * rest[:, 1:], self.count(x)
        variances = by_number.sum((2, 3))
        apart = (numbers[..., None] - numbers[..., None, :]).square()
        scales = (by_number * apart).sum((2, 3))
        # By G and by W, which both hold the features' scales.
        by_metric = 2 * (x.mT @ (together @ x - together.sum(2, keepdim=True) * x))
        worth = ((slope @ (x - 0.5)) * (x - 0.5)).sum(1) * self.worth
        linear = worth.sum(1)
        own = (by_metric * self.metric).sum(2) + worth
        own = own - linear[:, None] * scale / scale.sum(1, keepdim=True)
        mix = torch.zeros_like(linear)
        if self.near is not None:
            share, root = h["mix"].sigmoid(), scale.sqrt()
            change = (self.near - torch.eye(len(self.near)).to(x)) * root[:, None]
            mix = 2 * (by_metric * (self.mixed.mT @ change)).sum((1, 2)) * share * (1 - share)
        return value.masked_fill(failed > 0, torch.inf), {
            "together": together.sum((1, 2)),
            "linear": linear,
            "size": variances[:, 0],
            "members": variances[:, 1:],
            "scale": own.sum(1),
            "own": own,
            "mix": mix,
            "size_scale": scales[:, 0] * (-2 * h["size_scale"]).exp(),
            "share_scale": scales[:, 1:].sum(1) * (-2 * h["share_scale"]).exp(),
            "noise": slope.diagonal(dim1=1, dim2=2).sum(1) * h["noise"].exp(),
        }


def minimize(
    find: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, close: float, steps: int
) -> Tensor:
    """Where functions have a minimum, each row of places for itself: [N, p] -> [N, p].

    The place is a smooth function of what is minimised: no step hangs on a sign or on a tie. A row
    that has arrived stays where it is, so that none depends on its batch.

    Args:
        find: the values [N] and the slopes [N, p] at places [N, p]; a value that is not finite
            counts as too large.
        start: where to begin.
        close: a row has arrived when a quadratic would fall by no more than half of this.
        steps: at most so many.
    """
    at, (value, slope) = start, find(start)
    shrink = 1 / (1 + slope.norm(dim=1, keepdim=True))
    way, rate, busy = -shrink * slope, torch.ones_like(shrink), torch.ones_like(shrink).bool()
    known = start.new_zeros(2, len(start), MEMORY, start.shape[1])  # past steps, and their bends
    for _ in range(steps):
        found, turned = find(at + rate * way)
        better = busy & (found[:, None] <= value[:, None] + 1e-4 * rate * _dot(slope, way))
        step, bend = torch.where(better, torch.stack([rate * way, turned - slope]), 0.0)
        at, slope, value = at + step, slope + bend, torch.where(better[:, 0], found, value)
        curved = _dot(step, bend)
        fine = curved > 1e-10
        pair = torch.where(fine, torch.stack([step, bend]), 0.0)
        known = torch.cat([known[:, :, 1:], pair[:, :, None]], 2)
        shrink = torch.where(fine, curved / _dot(bend, bend), shrink)
        way = _turn(slope, known[0], known[1], shrink)
        way = way * (FARTHEST / way.abs().amax(1, keepdim=True).clamp(min=FARTHEST))
        rate = torch.where(better, 1.0, rate / 3)
        busy = busy & (-_dot(slope, way) > close)
        if not bool(busy.any()):
            break
    return at


def _turn(slope: Tensor, steps: Tensor, bends: Tensor, shrink: Tensor) -> Tensor:
    """The way down by Newton's method, with the curvature that past steps have seen.

    It is the compact form of L-BFGS (Byrd, Nocedal, Schnabel 1994): steps and bends are [N, M, p],
    the oldest first; those that are 0 count for nothing.
    """
    inner = steps @ bends.mT
    curved = inner.diagonal(dim1=1, dim2=2)
    upper = inner.triu() + (curved == 0).to(inner).diag_embed()
    by_step, by_bend = steps @ slope[..., None], bends @ slope[..., None]
    near = torch.linalg.solve_triangular(upper, by_step, upper=True)
    wide = shrink[..., None]
    far = curved[..., None] * near + wide * (bends @ (bends.mT @ near) - by_bend)
    far = torch.linalg.solve_triangular(upper.mT, far, upper=False)
    way: Tensor = wide * (bends.mT @ near) - steps.mT @ far
    return way[..., 0] - shrink * slope


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)
