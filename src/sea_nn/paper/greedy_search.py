"""Greedy on any DSF with as few evaluations as its concavity allows [M4].

A round guesses the next features by greedy on a cheap approximation of f, computes gains and
bounds (``sea_nn.paper.bounds``) at all the guessed prefixes in one batch, evaluates the
candidates that the bounds do not rule out, and keeps the guesses up to the first wrong one, which
it corrects. Sums of all layers are carried along, never recomputed; searches that are done leave
the batch.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.paper.activations import SQRT_FLOOR, Concave
from sea_nn.paper.bounds import MANY, Bounds
from sea_nn.paper.ties import TIE, rounded
from sea_nn.paper.upper_layers import UpperLayers, take_rows, times

SLACK = 1 - 4 * TIE  # a bound below this share of a gain can neither beat it nor tie with it
TINY = 1e-30  # gains below this are not told apart in single precision
FIRST, STRETCH = 4, 48
"""How many features are guessed from one pool of likely ones: at the start of a search, later."""
FIRST_POOL, POOL = 128, 112
BLOCK = 512
"""How many contenders are evaluated in one round (more only for the first step)."""


class Selection(NamedTuple):
    """Features as greedy took them and what each one added; [k], or [N, k] for a batch."""

    order: Tensor
    gains: Tensor


class Lookahead(NamedTuple):
    """What a round found out about the next s steps of each of N searches.

    The last four, [K] each, list the candidates that were evaluated; none other can win a step.
    """

    guess: Tensor  # features tried, [N, s]
    prefix: Tensor  # first-layer sums before each step, [N, s, units]
    known: Tensor  # steps at which nothing is left open, bool [N, s]
    row: Tensor
    step: Tensor
    feature: Tensor
    gain: Tensor


class GreedySearch:
    """Greedy maximisation of a DSF, or of a batch of N at once.

    Args:
        columns: what each feature adds to the first layer's sums, [N, n, units].
        offset: the first layer's biases, [N, 1, units] or [].
        upper: the layers above the first.
        bounded: use bounds and guesses; False evaluates every candidate at every step.
        remove_ties: as in Algorithm 1 [M6], tied features share the gain and leave together.
        last: a finished search on functions of the same size, whose memory may be used again.
    """

    @torch.no_grad()
    def __init__(
        self,
        columns: Tensor,
        offset: Tensor,
        upper: UpperLayers,
        *,
        bounded: bool = True,
        remove_ties: bool = False,
        last: "GreedySearch | None" = None,
    ) -> None:
        self.remove_ties, self.block = remove_ties, BLOCK
        self.columns, self.upper = columns, upper
        # Among tied gains the larger column goes first: see ``sea_nn.paper.ties``.
        self.sizes = rounded(columns.mean(2))
        # How many features to guess ahead at most; with one hidden layer guesses seldom fail.
        self.window = 128 if len(upper.weights) > 1 else 256
        count, n, units = self.columns.shape
        self.sums = self.columns.new_zeros(count, 1, units) + offset
        self.free = torch.ones(count, n, dtype=torch.bool, device=self.columns.device)
        self.rows = torch.arange(count, device=self.columns.device)
        self.bounds = None
        if bounded:
            self.bounds = Bounds(self.columns, self.upper, None if last is None else last.bounds)
        self.rounds = self.evaluated = 0

    @torch.no_grad()
    def run(self, budget: int) -> Selection:
        """The first ``budget`` features and their gains, [N, budget] each."""
        count, n = self.free.shape
        room = budget + (n if self.remove_ties else self.window)  # a round may overshoot
        order = self.rows.new_zeros(count, room)
        gains = self.columns.new_zeros(count, room)
        placed, source = torch.zeros_like(self.rows), self.rows
        # The first steps are the hardest to guess, and among many features the dearest.
        window = min(self.window, 64, max(16, MANY // n), n)
        while count and budget:
            left = (budget - placed).clamp_(min=0)
            most, unfinished = torch.stack([left.amax(), left.count_nonzero()]).tolist()
            if not most:
                break
            if unfinished <= len(source) // 2:
                rows = left.nonzero().squeeze(1)
                placed, source = placed[rows], source[rows]
                self._keep(rows)
            look = self._look(min(window, most))
            self.rounds += 1
            self.evaluated += len(look.row)
            window = look.guess.shape[1]

            # The winner of each step: of the gains that tie with the best, the largest column's,
            # and of equal columns the first.
            key, shape = look.row * window + look.step, look.guess.shape
            best = gains.new_full(shape, -torch.inf).view(-1)
            best.scatter_reduce_(0, key, look.gain, "amax")
            ties = look.gain >= best[key] * (1 - TIE)
            size = torch.where(ties, self.sizes[look.row, look.feature], -1)
            largest = size.new_full(best.shape, -1).scatter_reduce_(0, key, size, "amax")
            ties &= size == largest[key]
            chosen = order.new_full(shape, n - 1).view(-1)
            chosen.scatter_reduce_(0, key, torch.where(ties, look.feature, n - 1), "amin")
            wins = look.feature == chosen[key]
            gain = best.scatter_(0, key[wins], look.gain[wins]).view(shape)
            right = look.known & (chosen.view(shape) == look.guess)
            if self.remove_ties:
                right &= torch.zeros_like(chosen).scatter_add_(0, key, ties.long()).view(shape) == 1
            stands = right.cumprod(1).sum(1)
            last = stands.clamp(max=window - 1)
            mended = (stands < window) & look.known[self.rows, last] & (placed < budget)

            # Guesses that stand go to their places; the step after them may place a tied group.
            ahead = torch.arange(window, device=order.device)
            row, step = (ahead < stands[:, None]).nonzero(as_tuple=True)
            feature = look.guess[row, step]
            slot = (placed[row] + step).clamp_(max=room - 1)
            order[source[row], slot], gains[source[row], slot] = feature, gain[row, step]
            self.free[row, feature] = False
            placed = placed + stands
            group = (ties if self.remove_ties else wins) & mended[look.row]
            group = (group & (look.step == last[look.row])).nonzero().squeeze(1)
            together = (look.row[group] * n + look.feature[group]).sort().values
            row, feature = together // n, together % n
            sizes = torch.bincount(row, minlength=len(source))
            slot = (placed[row] + count_within(row, sizes)).clamp_(max=room - 1)
            order[source[row], slot], gains[source[row], slot] = feature, gain[row, last[row]]
            self.free[row, feature] = False
            placed = placed + sizes

            # The state after what was taken.
            base = look.prefix[self.rows, last].unsqueeze(1)
            after = base + self.columns[self.rows, chosen.view(shape)[self.rows, last]].unsqueeze(1)
            moved = (stands == window) | mended
            self.sums = torch.where(moved[:, None, None], after, base)
            taken = float((stands + sizes.clamp(max=1)).float().mean())
            if not taken:
                raise InputError(
                    "no feature has the largest gain: f's gains are not numbers; look for NaN or "
                    "infinite weights"
                )
            window = min(n, max(min(16, self.window), min(self.window, round(2 * taken))))
        return Selection(order[:, :budget], gains[:, :budget])

    def _keep(self, rows: Tensor) -> None:
        """Go on with some of the searches; the others are done."""
        self.columns, self.upper = self.columns[rows], self.upper.keep(rows)
        self.sums, self.free, self.sizes = self.sums[rows], self.free[rows], self.sizes[rows]
        self.rows = torch.arange(len(rows), device=rows.device)
        if self.bounds is not None:
            self.bounds.keep(rows)

    def _look(self, window: int) -> Lookahead:
        if self.bounds is None:
            return self._look_at_all()
        return self._look_ahead(self.bounds, window)

    def _look_at_all(self) -> Lookahead:
        """One step, every candidate evaluated."""
        exact = self.upper.rises(self.upper.sums(self.sums), self.columns)[-1].squeeze(2)
        exact = torch.where(self.free, exact, -torch.inf)
        guess = exact.argmax(1, keepdim=True)
        row, feature = torch.ones_like(self.free).nonzero(as_tuple=True)
        known = torch.ones_like(guess, dtype=torch.bool)
        zero = torch.zeros_like(row)
        return Lookahead(guess, self.sums, known, row, zero, feature, exact.view(-1))

    def _look_ahead(self, bounds: Bounds, window: int) -> Lookahead:
        """Guess a window of steps and settle as many of them as the block of contenders allows."""
        guess = self._guess(bounds, window)
        lead = self.rows[:, None]
        path, gain = self.upper.walk(self.upper.sums(self.sums), take_rows(self.columns, guess))
        ahead = torch.arange(window, device=guess.device)
        leaves = torch.where(self.free, window, 0)
        leaves.scatter_reduce_(1, guess, ahead.expand_as(guess), "amin")
        levels = SLACK * gain - TINY
        features, contends = bounds.contenders(path, levels, leaves)
        counts = contends.sum(2)
        known = counts.cumsum(1) <= counts[:, :1].clamp_min(self.block)
        # Where no feature was left to guess, one was guessed that is gone.
        known &= (leaves.gather(1, guess) == ahead) & self.free.gather(1, guess)
        row, step, column = (contends & known.unsqueeze(2)).nonzero(as_tuple=True)
        feature = features[row, column]
        found = gain.new_empty(0)
        if len(row):
            near = self._evaluate(bounds.upper, path, row, step, feature, bounds.dtype)
            close = ~(near * (1 + bounds.rounding) < levels[row, step])
            row, step, feature = row[close], step[close], feature[close]
            found = self._evaluate(self.upper, path, row, step, feature, gain.dtype)
        return Lookahead(
            guess,
            path[0],
            known,
            torch.cat([lead.expand_as(guess).reshape(-1), row]),
            torch.cat([ahead.expand_as(guess).reshape(-1), step]),
            torch.cat([guess.reshape(-1), feature]),
            torch.cat([gain.reshape(-1), found]),
        )

    def _guess(self, bounds: Bounds, window: int) -> Tensor:
        """Greedy on an approximation of f, stretch by stretch: [N, window].

        In each stretch the layers above are linear, with their slopes half-way along a path of
        average features, and the likely features are those with the largest bounds there: their
        order half-way is much like that of the whole stretch. The first layer is that of the
        bounds' polynomials; at the start of a search, where these are poor, it is exact.
        """
        z, average, phi = self.sums.to(bounds.dtype), bounds.average, bounds.upper.activation
        deep, free = bool(bounds.upper.weights), self.free.clone()
        exact = deep and not self.rounds
        sizes = [min(FIRST, window)] if exact else []
        while sum(sizes) < window:
            sizes.append(min(STRETCH, window - sum(sizes)))
        half = [sum(sizes[:i]) + size // 2 + 1 for i, size in enumerate(sizes)]
        path = z + torch.tensor(half, dtype=z.dtype, device=z.device)[:, None] * average
        uppers = bounds.upper.slope(bounds.upper.sums(path))
        slopes = uppers * phi.slope(path) if deep else uppers
        hints = times(slopes, bounds.apart.mT)
        guess = []
        for i, steps in enumerate(sizes):
            upper = uppers[:, i : i + 1]
            hint = hints[:, i].masked_fill(~free, -torch.inf)
            best, pool = hint.topk(min(FIRST_POOL if exact else POOL, hint.shape[1]), dim=1)
            closed = torch.where(best == -torch.inf, best, 0)
            if exact:
                near = take_rows(bounds.apart, pool) + average
                picks, z = pick_exactly(phi, near, z, upper, closed, steps)
                exact = False
            else:
                pick = pick_in_numpy if z.device.type == "cpu" else pick_by_polynomial
                powers = take_rows(bounds.powers, pool)
                picks, z = pick(bounds, powers, z, upper, closed, steps)
            guess.append(pool.gather(1, picks))
            free.scatter_(1, guess[-1], False)
        result = torch.cat(guess, 1)
        # Should numbers overflow single precision, a free feature still comes first.
        lead = result[:, :1]
        some = self.free.byte().argmax(1, keepdim=True)
        result[:, :1] = torch.where(self.free.gather(1, lead), lead, some)
        return result

    def _evaluate(
        self,
        upper: UpperLayers,
        path: list[Tensor],
        row: Tensor,
        step: Tensor,
        feature: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        """Gains of scattered (search, step, feature) triples, sorted by search: [K]."""
        sizes = torch.bincount(row, minlength=len(self.rows))
        slot = count_within(row, sizes)
        at, candidate = row.new_zeros(2, len(sizes), int(sizes.amax()))
        at[row, slot], candidate[row, slot] = step, feature
        before = [take_rows(sums, at).to(dtype) for sums in path[:-1]]
        return upper.rises(before, take_rows(self.columns, candidate).to(dtype))[-1][row, slot, 0]


def count_within(row: Tensor, sizes: Tensor) -> Tensor:
    """0, 1, 2, … within each run of equal rows; ``sizes`` counts the runs' lengths."""
    return torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]


def pick_exactly(
    phi: Concave, near: Tensor, z: Tensor, upper: Tensor, closed: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Greedy steps on upper . phi(z) among columns near[N, P, units]: places, and z afterwards.

    ``closed`` [N, P] is -inf where a column may not be picked, else 0.
    """
    lead = torch.arange(len(z), device=z.device)[:, None]
    picks = []
    for _ in range(steps):
        score = (phi.rise(z, near) @ upper.mT).squeeze(2)
        pick = score.add_(closed).argmax(1, keepdim=True)
        closed.scatter_(1, pick, -torch.inf)
        z = z + near[lead, pick]
        picks.append(pick)
    return torch.cat(picks, 1), z


def pick_by_polynomial(
    bounds: Bounds, powers: Tensor, z: Tensor, upper: Tensor, closed: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """The same by the bounds' polynomials, from powers[N, P, ...]."""
    near = powers[..., : bounds.units] + bounds.average
    lead = torch.arange(len(z), device=z.device)[:, None]
    picks, anchor = [], z + bounds.average
    for _ in range(steps):
        score = (powers @ bounds.slopes(upper, anchor).mT).squeeze(2)
        pick = score.add_(closed).argmax(1, keepdim=True)
        closed.scatter_(1, pick, -torch.inf)
        anchor = anchor + near[lead, pick]
        picks.append(pick)
    return torch.cat(picks, 1), anchor - bounds.average


def pick_in_numpy(
    bounds: Bounds, powers: Tensor, z: Tensor, upper: Tensor, closed: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """``pick_by_polynomial`` on a CPU, where numpy takes half the time of so small steps."""
    expand, units = bounds.upper.activation.expand_array, bounds.units
    anchor = (z + bounds.average).clamp_min(SQRT_FLOOR)
    coefficients = anchor.new_empty(powers.shape[2])
    line, bend, twist = (coefficients.numpy()[k * units : (k + 1) * units] for k in range(3))
    picks = np.empty((len(powers), steps), dtype=np.int64)
    product = anchor.new_empty(powers.shape[1])
    score = product.numpy()
    for row, table in enumerate(powers):
        terms, at, above = table.numpy(), anchor[row, 0].numpy(), upper[row, 0].numpy()
        shut, average = closed[row].numpy(), bounds.average[row, 0].numpy()
        line[:] = above
        for step in range(steps):
            if len(twist):
                slope, inverse = expand(at)
                np.multiply(slope, above, out=line)
                np.multiply(line, inverse, out=bend)
                np.multiply(bend, inverse, out=twist)
            # The product is torch's: numpy's would start threads of its own beside torch's.
            torch.mv(table, coefficients, out=product)
            np.add(score, shut, out=score)
            pick = score.argmax()
            shut[pick] = -np.inf
            at += average
            at += terms[pick, :units]
            picks[row, step] = pick
    return torch.from_numpy(picks), anchor - bounds.average
