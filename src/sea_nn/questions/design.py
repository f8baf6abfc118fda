"""Which sets to ask a model about: one design for every budget and every kind of input.

It starts with balanced splits: two complementary halves of the features, so that all main effects
are asked about at once. Then it goes on in rounds, each where the order of the features is open: of
functions that the answers do not rule out, the best orders are searched, and of their first
features (and the others) those sets are asked about that leave least unknown about all of them.

``design`` is a generator that yields sets and is sent the model's answers.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial

import torch
from torch import Tensor

from sea_nn.function.function import Link, read
from sea_nn.function.order import find_orders
from sea_nn.function.process import SetProcess, find_blocks
from sea_nn.function.tuning import TUNING

MOST_CANDIDATES = 256
"""Sets to choose a round's questions from; a bound on memory, not on what is found."""
SPARE = 64  # sets of which one was surely not asked about, where candidates run out


def design(
    sets: Tensor,
    answers: Tensor,
    questions: int,
    *,
    link: Link,
    layout: tuple[int, ...] | None = None,
    shares: Tensor | None = None,
    near: Tensor | None = None,
    seed: int = 0,
) -> Generator[Tensor, Tensor, SetProcess | None]:
    """Ask at most ``questions`` more sets of each input; returns the last process it chose by.

    Args:
        sets: what was asked before, the empty and the whole set among it, 0 or 1, [N, R, n].
        answers: what was said, [N, R].
        questions: how many more.
        link: what turns answers into scores.
        layout: the grid that the features lie in, if they do.
        shares: of each member's heat by feature, [N, m, n].
        near: how far neighbours stand for each other, [n, n].
        seed: starts the draws, the same for each input.

    Yields:
        Sets, bool [N, r, n], to be sent their answers, [N, r].
    """
    count, before, n = sets.shape
    generator = torch.Generator().manual_seed(seed)
    x, y = sets.double(), answers.double()
    left = questions
    if n < 20 and 2**n - before <= left:  # every set there is
        rest = torch.stack([_others(one, n) for one in x])
        y = torch.cat([y, (yield rest.bool())], 1)
        x, left = torch.cat([x, rest], 1), 0
    elif before <= 2 and left >= 2:
        first = min(left // 2, max(TUNING.least_splits, round(left * TUNING.splits_share / 2)), n)
        splits = split_evenly(n, first, layout, generator)
        both = torch.cat([splits, 1 - splits]).expand(count, -1, -1)
        y = torch.cat([y, (yield both.bool())], 1)
        x, left = torch.cat([x, both], 1), left - both.shape[1]
    process: SetProcess | None = None
    coarse = None if shares is None else round_off(shares.double(), torch.tensor(1 / n))
    while left > 0:
        size = min(left, max(TUNING.least_round, x.shape[1] // TUNING.rounds_by))
        size = left if left - size < TUNING.least_round // 2 else size
        process = SetProcess.fit(
            x,
            round_off(y, y.std(1, keepdim=True)),
            shares=coarse,
            near=near,
            start=process,
            most=TUNING.most_in_rounds,
        )
        rows = map(process.rows, find_blocks(*y.shape))
        chosen = torch.cat([choose(one, link, size, seed) for one in rows])
        y = torch.cat([y, (yield chosen.bool())], 1)
        x, left = torch.cat([x, chosen], 1), left - chosen.shape[1]
    return process


def round_off(values: Tensor, size: Tensor) -> Tensor:
    """Values as questions are chosen by them: rounded to about a 16th of their size.

    Between two computers, or with other threads, answers and heat differ in their last bits.
    Questions and answers follow each other, so that such a difference would grow; rounded it is
    gone, but for the few values that lie between.
    """
    unit = 2 ** (size.clamp(min=1e-300).log2().round() - 4)
    return (values / unit).round() * unit


def split_evenly(
    n: int, count: int, layout: tuple[int, ...] | None, generator: torch.Generator
) -> Tensor:
    """Halves of n features by rows of a Hadamard matrix, any two of which cross evenly: [count, n].

    On a grid the splits with the fewest borders come first, since evidence lies together more often
    than on every second square; without one the features are dealt to columns at random.

    >>> split_evenly(4, 2, None, torch.Generator().manual_seed(0)).sum(1)
    tensor([2., 2.], dtype=torch.float64)
    """
    signs = one = torch.ones(1, 1, dtype=torch.float64)
    for side in (n,) if layout is None else layout:
        walsh = one
        while len(walsh) < side:
            walsh = torch.cat([torch.cat([walsh, walsh], 1), torch.cat([walsh, -walsh], 1)])
        signs = torch.kron(signs, walsh[:, :side])
    if layout is None:
        signs = signs[:, torch.randperm(n, generator=generator)]
    else:
        grid = signs.view(-1, *layout)
        borders = sum((grid.diff(dim=axis) != 0).flatten(1).sum(1) for axis in range(1, grid.ndim))
        signs = signs[torch.as_tensor(borders).argsort(stable=True)]
    halves = (signs[1:] > 0).double()
    halves = halves[halves.sum(1).remainder(n) > 0]
    if len(halves) < count:
        more = torch.rand(count - len(halves), n, generator=generator).argsort(1) < n // 2
        halves = torch.cat([halves, more.double()])
    return halves[:count]


def _others(asked: Tensor, n: int) -> Tensor:
    """All sets of n features that were not asked about, in a mixed order."""
    every = (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).double()
    code = (asked * 2.0 ** torch.arange(n)).sum(1).long()
    fresh = torch.ones(2**n, dtype=torch.bool)
    fresh[code] = False
    every = every[fresh]
    return every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))]


@torch.no_grad()
def choose(process: SetProcess, link: Link, size: int, seed: int) -> Tensor:
    """The sets to ask about next: float64 [N, size, n].

    Candidates are the first features of the best orders of drawn functions, and the others. Each
    chosen one lessens the variance of all candidates' scores most, given those chosen before.
    """
    count, asked, n = process.sets.shape
    functions = process.draw(TUNING.draws, seed << 20 | asked, mean=True)
    orders = find_orders(process, functions, partial(read, link=link))
    most = max(1, min(n - 1, MOST_CANDIDATES // (2 * orders.shape[1])))
    sizes = torch.linspace(1, n - 1, most, dtype=torch.float64).round().long().unique()
    first = (orders.argsort(2)[:, :, None] < sizes[:, None]).double().flatten(1, 2)
    candidates = torch.cat([first, 1 - first], 1)
    expected, covariance = process.expect(candidates), process.covariance(candidates)
    step = 0.05 * process.spread
    slope = (read(expected + step, link) - read(expected - step, link)).abs() / (2 * step)
    weight = (slope * process.spread + TUNING.curiosity).square()
    known = _mark_known(candidates, process.sets)
    rows, chosen = torch.arange(count), list[Tensor]()
    # A chosen set takes u u' off the covariance C: of all C, the columns that count are followed.
    own = covariance.diagonal(dim1=1, dim2=2).clamp(min=0) + process.kernel.noise[:, None]
    worth = (weight[:, None] @ covariance.square())[:, 0]
    taken = covariance.new_zeros(count, 0, candidates.shape[1])
    for place in range(size):
        less = (worth / own).masked_fill(known, -1)
        best = less.amax(1, keepdim=True)
        at = (less >= best - 1e-9 * best.abs()).double().argmax(1)
        picked = candidates[rows, at]
        nothing_left = best[:, 0] < 0
        if bool(nothing_left.any()):  # fewer candidates than questions: any set will do
            # Drawn apart: that one input needs it must not move what the others are asked.
            spares = torch.Generator().manual_seed(asked + place)
            before = torch.cat([process.sets, *(one[:, None] for one in chosen)], 1)
            spare = (torch.rand(SPARE, n, generator=spares) < 0.5).double().expand(count, -1, -1)
            fresh = (~_mark_known(spare, before)).double().argmax(1)
            picked = torch.where(nothing_left[:, None], spare[rows, fresh], picked)
        chosen.append(picked)
        known |= (candidates == picked[:, None]).all(2)
        u = covariance[rows, at] - (taken[rows, :, at][:, None] @ taken)[:, 0]
        u = u / own[rows, at].sqrt()[:, None]
        turned = (weight * u)[..., None]
        turned = covariance @ turned - taken.mT @ (taken @ turned)
        worth = worth - 2 * u * turned[..., 0] + u.square() * (weight * u * u).sum(1, keepdim=True)
        own = own - u.square()
        taken = torch.cat([taken, u[:, None]], 1)
    return torch.stack(chosen, 1)


def _mark_known(candidates: Tensor, sets: Tensor) -> Tensor:
    """Which candidates were asked about, bool [N, C]."""
    codes = torch.randn(candidates.shape[2], generator=torch.Generator().manual_seed(1)).double()
    told, asked = candidates @ codes, sets @ codes
    return (told[:, :, None] - asked[:, None]).abs().amin(2) < 1e-9 * math.sqrt(len(codes))
