"""Greedy on any DSF with as few evaluations as its concavity allows [M4].

Every candidate's gain is bounded from above by a polynomial in its column of the first layer: the
cubic of the activation around the *average* candidate, under the tangent of the layers above. For
all candidates at many sets at once that is one matrix product, and it is so sharp that a handful
of a thousand candidates is left to evaluate (docs/math.md, section 4).

A round guesses the next few features, computes values and bounds at all the guessed prefixes in
one batch, evaluates what the bounds leave open, and keeps the guesses up to the first wrong one,
which it puts right. Sums of the first layer are carried along, never recomputed.
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
ROUNDING = 4e-5
"""Bounds are products in single precision; this share of the terms' sizes covers their rounding."""


class Look(NamedTuple):
    """What a round found out about the next s steps of each of N searches."""

    guess: Tensor  # features tried, [N, s]
    prefix: Tensor  # first-layer sums before each step, [N, s, units]
    exact: Tensor  # gains at each step, -inf where ruled out, [N, s, n]
    known: Tensor  # steps at which nothing is left open, bool [N, s]
    bounds: Tensor  # upper bounds at each step, [N, s, n]
    upper: Tensor  # slopes of the layers above the first at each step, [N, s, units]


class GreedySearch:
    """Greedy maximisation of a DSF, or of a batch of N at once.

    Args:
        f: the function.
        bounded: use bounds and guesses; False evaluates every candidate at every step.
        remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
        window: how many features to guess ahead at most.
        block: how many contenders to evaluate in one round (more only for the first step).
    """

    @torch.no_grad()
    def __init__(
        self,
        f: DSF,
        *,
        bounded: bool = True,
        remove_ties: bool = False,
        window: int = 16,
        block: int = 64,
    ) -> None:
        self.f, self.bounded, self.remove_ties = f, bounded, remove_ties
        self.window, self.block, self.ahead = window, block, min(8, window)
        self.matrix = f.matrix(0).detach()
        count, units, n = self.matrix.shape
        device = self.matrix.device
        self.sums = self.matrix.new_zeros(count, 1, units) + f.offset(0).detach()
        self.free = torch.ones(count, n, dtype=torch.bool, device=device)
        self.features = torch.arange(n, device=device)
        self.rows = torch.arange(count, device=device)
        self.rounds = self.evaluated = 0
        if bounded:
            self.average = self.matrix.mean(2).unsqueeze(1)
            apart = self.matrix - self.average.mT
            deep = len(f.weights) > 1
            single = apart.float()
            powers = [single, single.square(), single**3] if deep else [single]
            self.powers = torch.cat(powers, 1)
            self.reach = self.powers.abs().amax(2, keepdim=True).to(apart)
            bounds, _, upper = self._bounds(f.finish(self.sums), self.sums)
            self.hint, self.upper = bounds[:, 0], upper

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
            ahead = torch.arange(window, device=order.device)
            row, step = (ahead < stands[:, None]).nonzero(as_tuple=True)
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

            # The state after what was taken; the newest bounds and slopes serve the next guess.
            base = look.prefix[self.rows, last].unsqueeze(1)
            after = base + self.matrix[self.rows, :, chosen[self.rows, last]].unsqueeze(1)
            moved = (stands == window) | mended
            self.sums = torch.where(moved[:, None, None], after, base)
            self.hint = look.bounds[self.rows, last]
            self.upper = look.upper[self.rows, last].unsqueeze(1)
            taken = float((stands + mended).float().mean())
            self.ahead = max(2, min(self.window, round(1.5 * taken) + 2))
        return order[:, :budget], gains[:, :budget]

    def _look_at_all(self) -> Look:
        """One step, every candidate evaluated."""
        exact = self.f.rise(self.f.finish(self.sums), self.matrix.mT)
        exact = torch.where(self.free, exact, -torch.inf).unsqueeze(1)
        self.evaluated += exact.numel()
        guess = exact.argmax(2)
        known = torch.ones_like(guess, dtype=torch.bool)
        return Look(guess, self.sums, exact, known, exact, self.sums)

    def _look_ahead(self) -> Look:
        """Guess a window of steps and settle as many of them as the block of contenders allows."""
        f, n = self.f, self.free.shape[1]
        guess, valid = self._guess(min(self.ahead, n))
        window = guess.shape[1]
        steps = self.matrix[self.rows[:, None], :, guess]
        prefix = self.sums + steps.cumsum(1) - steps
        sums = f.finish(prefix)
        bounds, gain, upper = self._bounds(sums, prefix, steps)
        ahead = torch.arange(window, device=guess.device)
        place = torch.full_like(self.free, window, dtype=torch.int64)
        place.scatter_reduce_(1, guess, ahead.expand_as(guess), "amin")
        others = self.free.unsqueeze(1) & (place.unsqueeze(1) > ahead[:, None])
        contends = others & (bounds >= SLACK * gain.unsqueeze(2))
        counts = contends.sum(2)
        known = (counts.cumsum(1) <= counts[:, :1].clamp_min(self.block)) & valid
        exact = torch.full_like(bounds, -torch.inf, dtype=gain.dtype)
        exact.scatter_(2, guess.unsqueeze(2), gain.unsqueeze(2))
        row, at, feature = (contends & known.unsqueeze(2)).nonzero(as_tuple=True)
        if len(row):
            exact[row, at, feature] = self._evaluate(sums, row, at, feature)
        self.evaluated += len(row) + gain.numel()
        return Look(guess, prefix, exact, known, bounds, upper)

    def _bounds(
        self, sums: list[Tensor], prefix: Tensor, steps: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Upper bounds [N, s, n] at each prefix, exact gains of ``steps``, slopes above."""
        f, s = self.f, prefix.shape[1]
        average = self.average.expand_as(prefix)
        anchor = f.finish(prefix + average)
        rises = average if steps is None else torch.cat([average, steps], 1)
        before = sums if steps is None else [torch.cat([z, z], 1) for z in sums]
        gains = f.rise(before, rises)
        upper = f.upper_slope(anchor)
        powers = self.powers[0] if f.count == 1 else self.powers
        common, units = gains[:, :s, None], prefix.shape[2]
        if len(f.weights) == 1:
            slopes = upper
        else:
            second, third = f.activation.curvature(anchor[0])
            slope = upper * f.activation.slope(anchor[0])
            slopes = torch.cat([slope, upper * second, upper * third], 2)
        rounding = ROUNDING * (common + slopes.abs() @ self.reach)
        single = slopes.float()
        bounds = single[..., :units] @ powers[..., :units, :]
        if len(f.weights) > 1:
            bounds += (single[..., units:] @ powers[..., units:, :]).clamp_(max=0)
        return bounds.add_((common + rounding).float()), gains[:, s:], upper

    def _guess(self, window: int) -> tuple[Tensor, Tensor]:
        """Greedy on a stand-in for f: the first layer exact, the rest linear, likely features.

        Returns the features [N, window] and whether there was any left to pick.
        """
        hint = torch.where(self.free, self.hint, -torch.inf)
        pool = hint.topk(min(2 * window, hint.shape[1]), dim=1).indices
        columns = self.matrix[self.rows[:, None], :, pool]
        sums, slope = self.sums, self.upper.mT
        open_ = self.free.gather(1, pool)
        guess, valid = [], []
        for _ in range(window):
            score = (self.f.activation.value(sums + columns) @ slope).squeeze(2)
            pick = torch.where(open_, score, -torch.inf).argmax(1, keepdim=True)
            guess.append(pick)
            valid.append(open_.gather(1, pick))
            open_.scatter_(1, pick, False)
            sums = sums + columns[self.rows[:, None], pick]
        return pool.gather(1, torch.cat(guess, 1)), torch.cat(valid, 1)

    def _evaluate(self, sums: list[Tensor], row: Tensor, at: Tensor, feature: Tensor) -> Tensor:
        """Exact gains of scattered (input, step, feature) triples, sorted by input: [K]."""
        sizes = torch.bincount(row, minlength=len(self.rows))
        slot = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
        step, candidate = row.new_zeros(2, len(sizes), int(sizes.amax()))
        step[row, slot], candidate[row, slot] = at, feature
        lead = self.rows[:, None]
        found = self.f.rise([s[lead, step] for s in sums[:-1]], self.matrix[lead, :, candidate])
        return found[row, slot]
