"""Orders of features: the chain of sets along which a function says most.

An order is a chain of sets, each with one feature more. A good one keeps the score with few
features left and breaks it with few removed: it has the largest sum of s(S) - s(all but S) over its
sets. ``find_orders`` searches for it among all chains by a beam: the best ``width`` of all chains
so far go on; with a width of 1 it is greedy. A step costs one product of matrices, since a function
of the process changes by known factors when features join a set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sea_nn.function.process import Draws, SetProcess, look_up

WISHES = {"both": (1.0, 1.0), "keep": (1.0, 0.0), "remove": (0.0, 1.0)}
"""What counts of a set: the score with only it left, and what is lost without it."""


@torch.no_grad()
def find_orders(
    process: SetProcess,
    f: Draws,
    read: Callable[[Tensor], Tensor],
    wishes: Sequence[str] = ("both",),
    width: int = 1,
) -> Tensor:
    """The best orders of functions of a process, int64 [N, K, n].

    Args:
        process: of N inputs with n features.
        f: K functions of each; or one, for K wishes.
        read: turns values into scores; a gain in score is what counts.
        wishes: names from ``WISHES``, one a function; or one for all.
        width: how many chains go on at each step, while steps are of one feature. Steps grow with
            the set: to a set of k features k / 8 are added, since there the order hardly matters.
    """
    count, functions, n = len(f.linear), max(len(wishes), f.linear.shape[1]), f.linear.shape[2]
    weigh = torch.tensor([WISHES[wish] for wish in wishes], dtype=torch.float64)[..., None, None]
    sides = _Sides(process, f, functions)
    rows, which = torch.arange(count)[:, None, None], torch.arange(functions)[:, None]
    taken = torch.zeros(count, functions, 1, n, dtype=torch.bool)
    total = torch.zeros(count, functions, 1, dtype=torch.float64)
    codes = torch.randint(1 << 62, (n,), generator=torch.Generator().manual_seed(0))
    steps: list[tuple[Tensor, Tensor]] = []
    done = 0
    while done < n:
        many = min(n - done, max(1, done // 8))
        kept, removed = read(sides.try_each()).chunk(2)
        gain = (kept * weigh[:, 0] - removed * weigh[:, 1]).masked_fill(taken, -torch.inf)
        if many == 1:
            reached = (total[..., None] + gain).flatten(2)
            code = (taken.long() @ codes)[..., None] + codes
            path, feature = _choose(reached, code.flatten(2), width, n)
            feature = feature[..., None]
        else:
            path = torch.arange(total.shape[2]).expand_as(total)
            feature = _sort(gain)[..., :many]
        total = total.gather(2, path) + gain[rows, which, path].gather(3, feature).sum(3)
        taken = taken[rows, which, path].scatter(3, feature, True)
        sides.grow(path, feature)
        steps.append((path, feature))
        done += many
    at, order = total.argmax(2, keepdim=True), []
    for path, feature in reversed(steps):
        order.append(feature[rows, which, at][:, :, 0])
        at = path.gather(2, at)
    return torch.cat(order[::-1], 2)


def _sort(reached: Tensor) -> Tensor:
    """Places from the best on, along the last axis; rounding tells none apart.

    The first of equals counts, so that a map does not hang on the last bit of an answer.
    """
    return (reached * 1e9).round().argsort(dim=-1, descending=True, stable=True)


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

    def __init__(self, p: SetProcess, f: Draws, functions: int) -> None:
        count, _, n = f.linear.shape

        def both(value: Tensor) -> Tensor:
            return torch.cat([value, value])

        full = torch.arange(2, dtype=torch.float64).repeat_interleave(count)
        self.sign = sign = (1 - 2 * full)[:, None, None, None]
        self.metric = both(p.kernel.metric)
        self.spread, self.middle = both(p.spread)[..., None, None], both(p.middle)[..., None, None]
        self.own = self.metric.diagonal(dim1=1, dim2=2)[:, None, None]
        self.linear = sign * both(f.linear)[:, :, None]
        self.tables, self.heights = both(f.tables), both(f.heights)[:, :, None]
        # What one feature changes of the nearness to each answer: e^(2 s (G S_r)_i).
        known = p.sets @ p.kernel.metric
        self.change = 2 * sign[..., 0] * both(known).mT
        self.step = self.change.exp().mT
        # Of the empty set, and of the whole one.
        apart = (known * p.sets).sum(2)
        apart = torch.cat([apart, apart + p.kernel.metric.sum((1, 2))[:, None] - 2 * known.sum(2)])
        near = torch.exp(both(p.kernel.hyper["together"])[:, None] - apart)[:, None]
        wide = (2 * count, functions, 1, -1)
        self.near = (near * both(f.weight))[:, :, None].expand(wide)
        self.inside = (full[:, None] * self.metric.sum(2))[:, None, None].expand(wide)
        self.level = (both(f.level) + full[:, None] * both(f.linear).sum(2))[:, :, None]
        self.level = self.level.expand(wide[:-1])
        self.changes = both(torch.cat([torch.full_like(p.sets[:, :1], 1 / n), p.kernel.shares], 1))
        ends = p.kernel.count(full.new_tensor([[0], [1]]).expand(count, 2, n))
        self.numbers = torch.cat(ends.unbind(2))[:, None, None].expand(wide)
        phase = both(f.phases) + full[:, None] * both(f.waves).sum(2)
        self.phase, self.waves = phase[:, None, None].expand(wide), both(f.waves)
        self.cos, self.sin = self.waves.cos(), sign[..., 0] * self.waves.sin()

    def try_each(self) -> Tensor:
        """The values with each feature more, or fewer: [2 N, K, W, n]."""
        said = _times(self.near, self.step) * torch.exp(-2 * self.sign * self.inside - self.own)
        said += self.level[..., None] + self.linear
        said += _times(self.heights * self.phase.cos(), self.cos)
        said -= _times(self.heights * self.phase.sin(), self.sin)
        numbers = self.numbers[..., None] + self.sign[..., None] * self.changes[:, None, None]
        # [2 N, K, W, 1 + m, n] -> tables [2 N, K, 1 + m, W n]
        flat = numbers.transpose(2, 3).flatten(3)
        told = look_up(self.tables.expand(-1, flat.shape[1], -1, -1), flat).sum(2)
        said += told.view(said.shape)
        return said * self.spread + self.middle

    def grow(self, path: Tensor, feature: Tensor) -> None:
        """Go on with the chains ``path``, [N, K, W], and features of each more, [N, K, W, j]."""
        path, feature = torch.cat([path, path]), torch.cat([feature, feature])
        rows, which = torch.arange(len(path))[:, None, None], torch.arange(path.shape[1])[:, None]
        near, inside, level, numbers, phase = (
            value[rows, which, path]
            for value in (self.near, self.inside, self.level, self.numbers, self.phase)
        )
        shape = (*path.shape, self.metric.shape[1])
        chosen = torch.zeros(shape, dtype=torch.float64).scatter(3, feature, 1.0)
        moved = _times(chosen, self.metric)  # what G x changes by
        away = (chosen * (2 * self.sign * inside + moved)).sum(3, keepdim=True)
        self.near = near * torch.exp(_times(chosen, self.change) - away)
        self.inside = inside + self.sign * moved
        self.level = level + (self.linear * chosen).sum(3)
        self.numbers = numbers + self.sign * _times(chosen, self.changes.mT)
        self.phase = phase + self.sign * _times(chosen, self.waves.mT)


def _times(a: Tensor, matrix: Tensor) -> Tensor:
    """Rows [2 N, K, W, p] by one matrix an input, [2 N, p, q]: [2 N, K, W, q]."""
    return (a.flatten(1, 2) @ matrix).view(*a.shape[:3], -1)
