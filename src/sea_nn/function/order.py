"""Orders of features: the chain of sets along which a function says most.

An order is a chain of sets, each with one feature more. A good one keeps the score with few
features left and breaks it with few removed: it has the largest sum of s(S) - s(all but S) over its
sets. ``find_orders`` searches for it among all chains by a beam: the best ``width`` of all chains
so far go on; with a width of 1 it is greedy. A step costs one product of matrices, since a function
of the process changes by known factors when one feature joins a set.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sea_nn.function.process import Draws, SetProcess, look_up

Read = Callable[[Tensor], Tensor]
"""From a function's values to the model's scores."""

WISHES = {"both": (1.0, 1.0), "keep": (1.0, 0.0), "remove": (0.0, 1.0)}
"""What counts of a set: the score with only it left, and what is lost without it."""


@torch.no_grad()
def find_orders(
    process: SetProcess, f: Draws, read: Read, wish: str = "both", width: int = 1
) -> Tensor:
    """The best orders of functions of a process, int64 [N, K, n].

    Args:
        process: of N inputs with n features.
        f: K functions of each.
        read: turns values into scores; a gain in score is what counts.
        wish: a name from ``WISHES``.
        width: how many chains go on at each step. Where it is 1, steps grow with the set: to a set
            of k features k / 8 are added at a time, since there the order hardly matters.
    """
    count, functions, n = f.linear.shape
    weigh = torch.tensor(WISHES[wish], dtype=torch.float64).repeat_interleave(count)
    sides = _Sides(process, f)
    rows, which = torch.arange(count)[:, None, None], torch.arange(functions)[:, None]
    taken = torch.zeros(count, functions, 1, n, dtype=torch.bool)
    total = torch.zeros(count, functions, 1, dtype=torch.float64)
    codes = torch.randint(1 << 62, (n,), generator=torch.Generator().manual_seed(0))
    code = torch.zeros(count, functions, 1, dtype=torch.int64)
    steps: list[tuple[Tensor, Tensor]] = []
    done = 0
    while done < n:
        said = read(sides.try_each()) * weigh[:, None, None, None]
        gain = said[:count] - said[count:]
        reached = (total[..., None] + gain).masked_fill(taken, -torch.inf).flatten(2)
        if width == 1:
            many = min(n - done, max(1, done // 8))
            feature = _sort(reached)[..., :many]
            path = torch.zeros_like(feature)
            total = reached.gather(2, feature).mean(2, keepdim=True)
            taken = taken.scatter(3, feature[:, :, None], True)
            sides.add(feature)
            steps += [(path[..., [0]], feature[..., [k]]) for k in range(many)]
            done += many
            continue
        path, feature = _choose(reached, (code[..., None] + codes).flatten(2), width, n)
        steps.append((path, feature))
        total = reached.gather(2, path * n + feature)
        code = code.gather(2, path) + codes[feature]
        taken = taken[rows, which, path].scatter(3, feature[..., None], True)
        sides.move(path, feature)
        done += 1
    at, order = total.argmax(2, keepdim=True), []
    for path, feature in reversed(steps):
        order.append(feature.gather(2, at))
        at = path.gather(2, at)
    return torch.cat(order[::-1], 2)


def _sort(reached: Tensor) -> Tensor:
    """Places from the best on, [N, K, P]; values that differ by rounding alone count as equal.

    The first of equals counts, so that a map does not hang on the last bit of an answer.
    """
    rounded = torch.where(reached.isfinite(), (reached * 1e9).round(), -torch.inf)
    return rounded.argsort(dim=2, descending=True, stable=True)


def _choose(reached: Tensor, code: Tensor, width: int, n: int) -> tuple[Tensor, Tensor]:
    """The best ``width`` ways to go on, of which no two lead to one set: paths and features."""
    found = _sort(reached)[..., : 4 * width]
    value, told = reached.gather(2, found), code.gather(2, found)
    twice = (told[..., :, None] == told[..., None, :]) & value.isfinite()[..., None]
    kept = twice.tril(-1).any(3).to(torch.int64).argsort(dim=2, stable=True)[..., :width]
    found = found.gather(2, kept)
    return found // n, found % n


class _Sides:
    """The sets of all chains, growing from none, and their complements, shrinking from all.

    Both sides are one batch, [2 N, K, W, ...] for K functions and W chains: first the sets, then
    the complements. ``try_each`` has the functions' values with each feature more, or fewer.
    """

    def __init__(self, process: SetProcess, f: Draws) -> None:
        count, functions, n = f.linear.shape
        both = torch.arange(count).repeat(2)
        self.p, self.f = p, f = process.rows(both), f.rows(both)
        full = torch.arange(2, dtype=torch.float64).repeat_interleave(count)
        self.sign = (1 - 2 * full)[:, None, None, None]
        start = full[:, None, None].expand(-1, 1, n)
        self.metric = p.metric()
        known = p.sets @ self.metric
        self.own = self.metric.diagonal(dim1=1, dim2=2)[:, None, None]
        # e^(2 s (G S_r)_i): what one feature changes of the nearness to each answer.
        self.step = torch.exp(2 * self.sign[:, 0] * known)[:, None]
        apart = (start @ self.metric * start).sum(2) + (known * p.sets).sum(2)
        near = torch.exp(-(apart - 2 * (start @ known.mT)[:, 0]))[:, None]
        near = near * p.hyper["together"].exp()[:, None, None]
        wide = (2 * count, functions, 1, -1)
        self.near = (near * f.weight)[:, :, None]
        self.inside = (start @ self.metric)[:, None].expand(wide)  # G x
        self.level = (f.level + full[:, None] * f.linear.sum(2))[:, :, None]
        shares = p.least() + full[:, None] * p.shares.sum(2)
        numbers = torch.cat([full[:, None], shares], 1)  # the size, and each member's share
        self.numbers = numbers[:, None, None].expand(wide)
        self.changes = torch.cat([torch.full_like(p.shares[:, :1], 1 / n), p.shares], 1)
        self.phase = None
        if f.waves is not None and f.phases is not None:
            phase = f.phases + full[:, None] * f.waves.sum(2)
            self.phase = phase[:, None, None].expand(wide)
            self.turn = f.waves.cos(), self.sign[:, 0] * f.waves.sin()

    def try_each(self) -> Tensor:
        """The values with each feature more, or fewer: [2 N, K, W, n].

        Chains of all functions are the rows of one product: ``@`` would copy its second matrix for
        each of K functions.
        """
        f, sign = self.f, self.sign
        near = (self.near.flatten(1, 2) @ self.step[:, 0]).view(*self.near.shape[:3], -1)
        said = near * torch.exp(-2 * sign * self.inside - self.own)
        said += self.level[..., None] + sign * f.linear[:, :, None]
        if self.phase is not None and f.heights is not None:
            height, (cos, sin) = f.heights[:, :, None], self.turn
            waves = (height * self.phase.cos()).flatten(1, 2) @ cos
            waves -= (height * self.phase.sin()).flatten(1, 2) @ sin
            said += waves.view(said.shape)
        numbers = self.numbers[..., None] + sign[..., None] * self.changes[:, None, None]
        # [2 N, K, W, 1 + m, n] -> tables [2 N, K, 1 + m, W n]
        flat = numbers.transpose(2, 3).flatten(3)
        told = look_up(f.tables, flat).sum(2)
        said += told.view(said.shape)
        return said * self.p.spread[..., None, None] + self.p.middle[..., None, None]

    def add(self, features: Tensor) -> None:
        """Go on with each function's only chain, with features [N, K, j] more, or fewer."""
        chosen = torch.zeros(self.inside[:, :, 0].shape, dtype=torch.float64)
        chosen.scatter_(2, features.repeat(2, 1, 1), 1.0)
        sign, f = self.sign, self.f
        moved = chosen @ self.metric  # what G x changes by
        own = (moved * chosen).sum(2, keepdim=True)
        away = (self.inside[:, :, 0] * chosen).sum(2, keepdim=True)
        factor = torch.exp(chosen @ self.step[:, 0].mT.log() - 2 * sign[:, :, 0] * away - own)
        self.near = self.near * factor[:, :, None]
        self.inside = self.inside + sign * moved[:, :, None]
        self.level = self.level + sign[..., 0] * (f.linear * chosen).sum(2, keepdim=True)
        self.numbers = self.numbers + sign * (chosen @ self.changes.mT)[:, :, None]
        if self.phase is not None and f.waves is not None:
            self.phase = self.phase + sign * (chosen @ f.waves.mT)[:, :, None]

    def move(self, path: Tensor, feature: Tensor) -> None:
        """Go on with the chosen chains, [N, K, W], each with its feature more, or fewer."""
        path, feature = path.repeat(2, 1, 1), feature.repeat(2, 1, 1)
        rows = torch.arange(len(path))[:, None, None]
        which = torch.arange(path.shape[1])[:, None]
        sign, f = self.sign, self.f
        inside = self.inside.expand(-1, path.shape[1], -1, -1)[rows, which, path]
        own = self.own[:, 0].expand(-1, path.shape[1], -1).gather(2, feature)
        moved = -2 * sign[..., 0] * inside.gather(3, feature[..., None])[..., 0] - own
        self.near = self.near[rows, which, path] * self.step[:, 0].mT[rows, feature]
        self.near *= moved.exp()[..., None]
        self.inside = inside + sign * self.metric[rows, feature]
        level = self.level.expand(*path.shape[:2], -1).gather(2, path)
        self.level = level + sign[..., 0] * f.linear.gather(2, feature)
        numbers = self.numbers.expand(-1, path.shape[1], -1, -1)[rows, which, path]
        self.numbers = numbers + sign * self.changes.mT[rows, feature]
        if self.phase is not None and f.waves is not None:
            self.phase = self.phase[rows, which, path] + sign * f.waves.mT[rows, feature]
