"""Greedy on any DSF with as few evaluations as its concavity allows [M4].

f is concave, so the tangent at any point bounds it from above. Two choices make that bound sharp
enough to leave a handful of contenders out of a thousand candidates:

- the tangent is taken not at the current set but at the *average candidate*, where it is off only
  by the candidates' deviation from each other;
- contenders that survive are bounded again by the tangent of the upper layers alone, with the
  first layer exact, which costs one dot product each.

A round guesses the next few features from the bounds of the round before, evaluates all guessed
prefixes in one batch, evaluates exactly what the bounds leave open, and keeps the guesses up to
the first wrong one, which it puts right. Sums of the first layer are carried, never recomputed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.dsf import DSF
from sea_nn.heatmap import INDEX_BITS

TIE = 2.0 ** (INDEX_BITS - 52)
"""Two gains are equal when they differ by at most this share of the larger."""
SLACK = 1 - 4 * TIE  # a bound below this share of a gain can neither beat it nor tie with it


class Look(NamedTuple):
    """What a round found out about the next s steps of each of N searches."""

    guess: Tensor  # features tried, [N, s]
    prefix: Tensor  # first-layer sums before each step, [N, s, units]
    exact: Tensor  # gains at each step, -inf where ruled out, [N, s, n]
    known: Tensor  # steps at which nothing is left open, bool [N, s]
    bounds: Tensor  # upper bounds at each step, [N, s, n]
    upper: Tensor  # slopes of the upper layers at each step, [N, s, units]


class GreedySearch:
    """Greedy maximisation of a DSF, or of a batch of N at once.

    Args:
        f: the function.
        bounded: use bounds and guesses; False evaluates every candidate at every step.
        remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
        window: how many features to guess ahead at most.
        block: how many contenders to look into in one round (more only for the first step).
    """

    def __init__(
        self,
        f: DSF,
        *,
        bounded: bool = True,
        remove_ties: bool = False,
        window: int = 32,
        block: int = 512,
    ) -> None:
        self.f, self.bounded, self.remove_ties = f, bounded, remove_ties
        self.window, self.block, self.ahead = window, block, min(8, window)
        self.matrix = f.matrix(0).detach()
        self.columns = self.matrix.mT.contiguous()  # gathered by feature, again and again
        count, units, n = self.matrix.shape
        device = self.matrix.device
        self.start = self.matrix.new_zeros(count, 1, units) + f.offset(0).detach()
        self.sums = self.start
        self.total = self.matrix.sum(2).unsqueeze(1)
        self.free = torch.ones(count, n, dtype=torch.bool, device=device)
        self.features = torch.arange(n, device=device)
        self.rows = torch.arange(count, device=device)
        self.hint = self.matrix.sum(1)
        self.upper = f.upper_slope(f.finish(self.start + self.total / n))
        self.rounds = self.evaluated = 0

    @torch.no_grad()
    def run(self, budget: int) -> tuple[Tensor, Tensor]:
        """The first ``budget`` features and their gains, [N, budget] each."""
        count, n = self.free.shape
        room = budget + (n if self.remove_ties else self.window)  # a round may overshoot
        order = self.rows.new_zeros(count, room)
        gains = self.matrix.new_zeros(count, room)
        placed = torch.zeros_like(self.rows)
        while count and budget and int(placed.amin()) < budget:
            self.rounds += 1
            look = self._look_ahead() if self.bounded else self._look_at_all()
            window = look.guess.shape[1]
            # The winner of each step: the lowest index among those that tie with the best.
            ties = look.exact >= look.exact.amax(2, keepdim=True) * (1 - TIE)
            chosen = torch.where(ties, self.features, n).amin(2).clamp_(max=n - 1)
            right = look.known & (chosen == look.guess)
            if self.remove_ties:
                right &= ties.sum(2) == 1
            stands = right.cumprod(1).sum(1)
            last = stands.clamp(max=window - 1)
            mended = (stands < window) & look.known[self.rows, last] & (placed < budget)
            gain = look.exact.gather(2, chosen.unsqueeze(2)).squeeze(2)

            # Guesses that stand go to their places; the step after them may place a tied group.
            row, step = (torch.arange(window, device=order.device) < stands[:, None]).nonzero(
                as_tuple=True
            )
            feature = look.guess[row, step]
            slot = (placed[row] + step).clamp_(max=room - 1)
            order[row, slot], gains[row, slot] = feature, gain[row, step]
            self.free[row, feature] = False
            placed = placed + stands
            if self.remove_ties:
                group = ties[self.rows, last] & self.free & mended[:, None]
            else:
                group = (self.features == chosen[self.rows, last, None]) & mended[:, None]
            rank = group.cumsum(1) - 1 + placed[:, None]
            row, feature = group.nonzero(as_tuple=True)
            slot = rank[row, feature].clamp_(max=room - 1)
            order[row, slot], gains[row, slot] = feature, gain[row, last[row]]
            self.free &= ~group
            placed = placed + group.sum(1)

            # The state after what was taken, and the newest bounds as a hint for the next guess.
            winner = chosen[self.rows, last]
            base = look.prefix[self.rows, last].unsqueeze(1)
            after = base + self.columns[self.rows, winner].unsqueeze(1)
            moved = (stands == window) | mended
            self.sums = torch.where(moved[:, None, None], after, base)
            self.hint = look.bounds[self.rows, last]
            self.upper = look.upper[self.rows, last].unsqueeze(1)
            taken = float((stands + mended).to(torch.float32).mean())
            self.ahead = max(2, min(self.window, round(1.5 * taken) + 2))
        return order[:, :budget], gains[:, :budget]

    def _look_at_all(self) -> Look:
        """One step, every candidate evaluated."""
        sums = self.f.finish(self.sums)
        exact = self.f.rise(sums, self.columns)
        exact = torch.where(self.free, exact, -torch.inf).unsqueeze(1)
        self.evaluated += exact.numel()
        guess = exact.argmax(2)
        return Look(
            guess, self.sums, exact, torch.ones_like(guess, dtype=torch.bool), exact, self.upper
        )

    def _look_ahead(self) -> Look:
        """Guess a window of steps and settle as many of them as the block of contenders allows."""
        f = self.f
        n = self.free.shape[1]
        window = min(self.ahead, n)
        guess, valid = self._guess(window)
        steps = self.columns[self.rows[:, None], guess]
        prefix = self.sums + steps.cumsum(1) - steps
        sums = f.finish(prefix)
        gain = f.rise(sums, steps)
        # Tangents at the average candidate of each step.
        left = self.free.sum(1).clamp_min(1)[:, None, None]
        average = ((self.total - (self.sums - self.start)) / left).expand_as(prefix)
        anchor = f.finish(prefix + average)
        common = f.rise(sums, average)
        upper = f.upper_slope(anchor)
        slope = upper * f.activation.slope(anchor[0]) if len(f.weights) > 1 else upper
        offset = common - (slope * average).sum(2)
        bounds = torch.baddbmm(offset.unsqueeze(2), slope, self.matrix)

        ahead = torch.arange(window, device=guess.device)
        place = torch.full_like(self.free, window, dtype=torch.int64)
        place.scatter_reduce_(1, guess, ahead.expand_as(guess), "amin")
        others = self.free.unsqueeze(1) & (place.unsqueeze(1) > ahead[:, None])
        threshold = SLACK * gain
        open_ = others & (bounds >= threshold.unsqueeze(2))
        counts = open_.sum(2)
        limit = counts[:, :1].clamp_min(self.block)
        known = (counts.cumsum(1) <= limit) & valid
        exact = torch.full_like(bounds, -torch.inf).scatter_(
            2, guess.unsqueeze(2), gain.unsqueeze(2)
        )
        row, at, feature = (open_ & known.unsqueeze(2)).nonzero(as_tuple=True)
        if len(row) and len(f.weights) > 1:
            # Second sieve: the first layer exact, the tangent of the rest.
            first = f.activation.value(prefix[row, at] + self.columns[row, feature])
            rise = first - f.activation.value(anchor[0][row, at])
            bound = common[row, at] + (upper[row, at] * rise).sum(1)
            left = bound >= threshold[row, at]
            row, at, feature = row[left], at[left], feature[left]
        if len(row):
            exact[row, at, feature] = self._evaluate(sums, row, at, feature)
        self.evaluated += len(row) + gain.numel()
        return Look(guess, prefix, exact, known, bounds, upper)

    def _guess(self, window: int) -> tuple[Tensor, Tensor]:
        """Greedy on a stand-in for f: first layer exact, the rest linear, likely features only."""
        hint = torch.where(self.free, self.hint, -torch.inf)
        pool = hint.topk(min(4 * window, hint.shape[1]), dim=1).indices
        columns = self.columns[self.rows[:, None], pool].float()  # a guess needs no more digits
        open_ = self.free.gather(1, pool)
        sums, slope = self.sums.float(), self.upper.float().mT
        guess, valid = [], []
        for _ in range(window):
            score = (self.f.activation.value(sums + columns) @ slope).squeeze(2)
            pick = torch.where(open_, score, -torch.inf).argmax(1, keepdim=True)
            valid.append(open_.gather(1, pick))  # False once a search has run out of features
            open_.scatter_(1, pick, False)
            sums = sums + columns[self.rows[:, None], pick]
            guess.append(pick)
        return pool.gather(1, torch.cat(guess, 1)), torch.cat(valid, 1)

    def _evaluate(self, sums: list[Tensor], row: Tensor, at: Tensor, feature: Tensor) -> Tensor:
        """Exact gains of scattered (input, step, feature) triples, sorted by input: [K]."""
        sizes = torch.bincount(row, minlength=len(self.rows))
        slot = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
        step, candidate = row.new_zeros(2, len(sizes), int(sizes.amax()))
        step[row, slot], candidate[row, slot] = at, feature
        lead = self.rows[:, None]
        found = self.f.rise([s[lead, step] for s in sums[:-1]], self.columns[lead, candidate])
        return found[row, slot]
