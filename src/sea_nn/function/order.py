"""Orders of features: the chain of sets along which a function says most.

An order is a chain of sets, each with one feature more. A good one keeps the score with few features
left and breaks it with few removed: it has the largest sum of s(S) - s(all but S) over its sets.
``find_orders`` searches for it among all chains by a beam: the best ``width`` of all chains so far go
on; with a width of 1 it is greedy. A step costs one product of matrices, since a function of the
process changes by known factors when one feature joins a set.
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
        width: how many chains go on at each step.
    """
    keep, remove = WISHES[wish]
    left, gone = _Side(process, f, full=False), _Side(process, f, full=True)
    count, functions, n = f.linear.shape
    rows, which = torch.arange(count)[:, None, None], torch.arange(functions)[:, None]
    taken = torch.zeros(count, functions, 1, n, dtype=torch.bool)
    total = torch.zeros(count, functions, 1, dtype=torch.float64)
    codes = torch.randint(1 << 62, (n,), generator=torch.Generator().manual_seed(0))
    code = torch.zeros(count, functions, 1, dtype=torch.int64)
    steps: list[tuple[Tensor, Tensor]] = []
    for _ in range(n):
        gain = torch.zeros(count, functions, taken.shape[2], n, dtype=torch.float64)
        if keep:
            gain += keep * read(left.try_each())
        if remove:
            gain -= remove * read(gone.try_each())
        reached = (total[..., None] + gain).masked_fill(taken, -torch.inf).flatten(2)
        path, feature = _choose(reached, (code[..., None] + codes).flatten(2), width, n)
        steps.append((path, feature))
        total = reached.gather(2, path * n + feature)
        code = code.gather(2, path) + codes[feature]
        taken = taken[rows, which, path].scatter(3, feature[..., None], True)
        if keep:
            left.move(rows, which, path, feature)
        if remove:
            gone.move(rows, which, path, feature)
    at, order = total.argmax(2, keepdim=True), []
    for path, feature in reversed(steps):
        order.append(feature.gather(2, at))
        at = path.gather(2, at)
    return torch.cat(order[::-1], 2)


def _choose(reached: Tensor, code: Tensor, width: int, n: int) -> tuple[Tensor, Tensor]:
    """The best ``width`` of all ways to go on, of which no two lead to one set: paths and features.

    Ways that differ by rounding alone are equal, and the first of them counts: a map must not hang
    on the last bit of an answer.
    """
    if width == 1:
        best = reached.amax(2, keepdim=True)
        found = (reached >= best - 1e-9 * (1 + best.abs())).double().argmax(2, keepdim=True)
        return found // n, found % n
    top = min(reached.shape[2], 4 * width)
    rounded = torch.where(reached.isfinite(), reached, -1e300)
    rounded = (rounded * 1e9).round() / 1e9
    found = rounded.argsort(dim=2, descending=True, stable=True)[..., :top]
    value, told = reached.gather(2, found), code.gather(2, found)
    twice = (told[..., :, None] == told[..., None, :]) & value.isfinite()[..., None]
    again = twice.tril(-1).any(3)
    kept = again.to(torch.int64).argsort(dim=2, stable=True)[..., : min(width, top)]
    found = found.gather(2, kept)
    return found // n, found % n


class _Side:
    """The sets of all chains on one side, growing from none or shrinking from all, and what is known.

    Values of K functions at the sets of W chains, [N, K, W]; ``try_each`` has those with one feature
    more (or fewer), [N, K, W, n].
    """

    def __init__(self, process: SetProcess, f: Draws, full: bool) -> None:
        self.p, self.f, self.sign = process, f, -1.0 if full else 1.0
        count, functions, n = f.linear.shape
        start = torch.full((count, 1, n), float(full), dtype=torch.float64)
        self.metric = process._metric()
        self.together = process.hyper["together"].exp()
        known = process.sets @ self.metric
        own = self.metric.diagonal(dim1=1, dim2=2)
        self.step = torch.exp(2 * self.sign * known)[:, None]  # [N, 1, R, n]
        self.own = own[:, None, None]
        apart = (start @ self.metric * start).sum(2) + (known * process.sets).sum(2)
        apart = apart - 2 * (start @ known.mT)[:, 0]
        wide = (count, functions, 1, -1)
        near = torch.exp(-apart)[:, None, None].expand(wide)
        self.near = near * (f.weight * self.together[:, None, None])[:, :, None]
        self.inside = (start @ self.metric)[:, None].expand(wide)  # G x
        self.level = (f.level + full * f.linear.sum(2))[:, :, None]
        self.size = float(full)
        self.shares = (process.least() + full * process.shares.sum(2))[:, None, None].expand(wide)
        if f.waves is not None and f.phases is not None:
            phase = f.phases + full * f.waves.sum(2)
            self.phase = phase[:, None, None].expand(wide)
            self.turn = (f.waves.cos()[:, None], self.sign * f.waves.sin()[:, None])

    def try_each(self) -> Tensor:
        """The values with each feature more, or fewer."""
        f, sign = self.f, self.sign
        moved = torch.exp(-2 * sign * self.inside - self.own)
        said = (self.near @ self.step) * moved
        said = said + self.level[..., None] + sign * f.linear[:, :, None]
        if f.waves is not None and f.heights is not None:
            height = f.heights[:, :, None]
            cos, sin = self.turn
            said = said + (height * self.phase.cos()) @ cos - (height * self.phase.sin()) @ sin
        n = f.linear.shape[2]
        place = torch.full_like(f.tables[:, :, 0, :1], self.size + sign / n)
        said = said + look_up(f.tables[:, :, 0], place)[..., None]
        for j in range(self.p.shares.shape[1]):
            share = self.shares[..., j, None] + sign * self.p.shares[:, None, None, j]
            table = f.tables[:, :, 1 + j]
            said = said + look_up(table, share.flatten(2)).view(share.shape)
        return said * self.p.spread[..., None, None] + self.p.middle[..., None, None]

    def move(self, rows: Tensor, which: Tensor, path: Tensor, feature: Tensor) -> None:
        """Go on with the chosen chains, each with its feature more, or fewer."""
        f, sign, n = self.f, self.sign, self.f.linear.shape[2]
        inside, own = self.inside[rows, which, path], self.own[:, 0, 0][rows[..., 0], :]
        moved = -2 * sign * inside.gather(3, feature[..., None])
        moved = moved[..., 0] - own.expand(-1, path.shape[1], -1).gather(2, feature)
        steps = self.step[:, 0].mT[rows, feature]
        self.near = self.near[rows, which, path] * steps * moved.exp()[..., None]
        self.inside = inside + sign * self.metric[rows, feature]
        level = self.level.expand(*path.shape[:2], -1).gather(2, path)
        self.level = level + sign * f.linear.gather(2, feature)
        self.size += sign / n
        self.shares = self.shares[rows, which, path] + sign * self.p.shares.mT[rows, feature]
        if f.waves is not None:
            self.phase = self.phase[rows, which, path] + sign * f.waves.mT[rows, feature]
