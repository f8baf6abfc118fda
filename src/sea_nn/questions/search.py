"""Ask the model in rounds, each where the answers so far leave the order of the features open.

Few questions are about halves of regions (``halves.py``). More come in rounds: the sets of a round
lie around the present order, those with the least sure answers (``climb``); then windows of
neighbours in the order are sorted by what the model says of their halves (``sort``), and at last
quarters of its first cells (``finer.py``). How many of what was chosen on tuning inputs
(docs/results/learned.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sea_nn.function.answers_fit import FREE, HELD, fit_answers
from sea_nn.function.answers_function import AnswersFunction, Link, place_units, to_score
from sea_nn.function.answers_order import (
    Correction,
    EverySet,
    Predictor,
    fit_and_check,
    order_by_wish,
    order_features,
)
from sea_nn.questions import finer
from sea_nn.questions.designs import (
    around,
    choose_open,
    every_set,
    find_effects,
    halves,
    paired,
    windows,
)

AskOnly = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, n], to the log-odds (or value) with only these features left, [N, R]."""

CORRECT_FROM = 64  # answers from which the correction orders better than f alone
HALVE_UP_TO = 140  # questions below which halves of regions tell more than sets around an order
REGIONS = ((60, 64), (0, 16))  # from so many questions on, halves are of so many regions
SORT_FROM, SORT_ALL_FROM = 400, 800  # questions from which the first half or all of it is sorted
FINER = {800: 5}  # windows of quarter cells from so many questions on
DESIGN = 0  # of the sets: another number draws others, for measurements of what that does
POOL = 8  # sets to choose each from by what f expects
LARGEST = 0.6  # share of the features in the largest set of a round
CONFIRM_FROM = 250  # questions from which some are spent on the sizes of smallest sets
SHARES = (0.5, 0.9)  # of the score that these keep, or break
FOUND_SAY = 0.1  # of the order found in the orders of the two wishes


@dataclass(frozen=True)
class Plan:
    """How a number of questions is spent.

    Attributes:
        halves: splits of regions into halves, each half asked about.
        regions: how many regions these are.
        pairs: sets, each with its complement, in each round of ``climb``.
        lows: where the windows start that are sorted then.
        finer: windows of quarter cells that are sorted last.
        every: ask about every set there is instead.
        confirm: find the sizes of the smallest sets that keep or break the score.
    """

    halves: int = 0
    regions: int = 0
    pairs: tuple[int, ...] = ()
    lows: tuple[int, ...] = ()
    finer: int = 0
    every: bool = False
    confirm: bool = False


def plan_questions(questions: int, n: int, *, image: bool = False, first: bool = True) -> Plan:
    """Spend at most so many questions on n features.

    Args:
        questions: how many.
        n: the number of features.
        image: whether these are cells that have quarters.
        first: whether nothing was asked before.

    >>> plan_questions(28, 64, image=True).halves
    14
    >>> plan_questions(495, 64, image=True).lows
    (0, 8, 16, 24)
    """
    if n < 2 or questions < 2:
        return Plan()
    if n < 20 and 2**n - 2 <= questions:
        return Plan(every=True)
    if image and first and questions < HALVE_UP_TO:
        count = next(count for least, count in REGIONS if questions >= least)
        return Plan(halves=min(questions // 2, count - 1), regions=count)
    confirm = questions >= CONFIRM_FROM
    questions -= count_confirming(n) if confirm else 0
    width, lows = windows(n)
    price = 4 * (width - 1)
    if questions < SORT_FROM * n / 64:
        lows = []
    elif questions < SORT_ALL_FROM * n / 64:
        lows = [low for low in lows if low <= n // 2 - width // 2]
    fine = max((k for least, k in FINER.items() if image and questions >= least), default=0)
    pairs = (questions - len(lows) * price - finer.count_questions(fine)) // 2
    # More rounds are no better, and each lets small differences of the answers grow.
    halved = (pairs // 2, pairs - pairs // 2) if pairs > 1 else (pairs,)
    return Plan(pairs=halved, lows=tuple(lows), finer=fine, confirm=confirm)


def count_confirming(n: int) -> int:
    """The questions an input that confirming costs: by bisection, two wishes, ``SHARES`` of each.

    >>> count_confirming(64)
    24
    """
    return 2 * len(SHARES) * (n - 1).bit_length()


@dataclass(frozen=True)
class Wishes:
    """What answers say beside the order that serves both wishes.

    Attributes:
        keep: features in the order that keeps the score best, int64 [N, n].
        remove: features in the order whose removal breaks it first, int64 [N, n].
        against: how much each feature speaks against the class, [N, n].
    """

    keep: Tensor
    remove: Tensor
    against: Tensor


@dataclass
class Search:
    """What was asked about N inputs with n features, what the model said, and the order it gives.

    Attributes:
        ask: answers sets.
        none: the answer for no feature, [N].
        all: the answer for the whole input, [N].
        heat: where members see evidence, [N, n].
        layout: the shape of the grid that features lie in; None without one.
        link: what the answers are.
        seed: starts the draws, which are the same for each input.
        sets: what was asked, bool [N, R, n] by round; a search may start with answers.
        answers: what was said, [N, R] by round.
    """

    ask: AskOnly
    none: Tensor
    all: Tensor
    heat: Tensor
    layout: tuple[int, ...] | None = None
    link: Link = "log-odds"
    seed: int = 0
    sets: list[Tensor] = field(default_factory=list)
    answers: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = self.heat.shape[1]
        self.wishes: Wishes | None = None
        self.early: Tensor | None = None  # by halves, how early each position comes, [N, *shape]
        self.best: Predictor | None = None
        self.places = None if self.layout is None else place_units(n, self.layout)
        self.near = None if self.layout is None else smooth_cells(self.layout)
        self.generator = torch.Generator().manual_seed(self.seed + DESIGN)
        self.order = self.heat.argsort(dim=1, descending=True, stable=True)
        if self.sets:
            self.order = self.find_order()

    def run(self, plan: Plan) -> Tensor:
        """Ask what the plan says; returns the order, [N, n]."""
        for _ in self.rounds(plan):
            pass
        return self.order

    def rounds(self, plan: Plan) -> Iterator[None]:
        """Ask what the plan says, and stop after each round: the order is then of what was said."""
        if plan.every:
            sets = every_set(self.heat.shape[1])
            # In no order: answers are left out of fits by turns.
            mixed = torch.randperm(len(sets), generator=torch.Generator().manual_seed(0))
            sets = sets[mixed].to(self.heat.device)
            self.put(sets.expand(len(self.heat), -1, -1))
            self.order = self.find_order()
            yield
        for count in plan.pairs:
            self.climb(count)
            yield
        width = windows(self.heat.shape[1])[0]
        for low in plan.lows:
            self.sort(low, width)
            yield
        if plan.confirm:
            self.confirm()
            yield

    @property
    def asked(self) -> tuple[Tensor, Tensor]:
        """All sets, bool [N, R, n], and answers, [N, R], so far."""
        none = torch.zeros(len(self.heat), 0, self.heat.shape[1], dtype=torch.bool)
        answers = torch.cat([self.none.new_zeros(len(self.heat), 0), *self.answers], 1)
        sets = torch.cat([none.to(self.heat.device), *self.sets[: len(self.answers)]], 1)
        return sets, answers

    @property
    def known(self) -> dict[str, Any]:
        """What a fit should know beside the answers."""
        return {"heat": self.heat, "places": self.places, "link": self.link}

    def put(self, sets: Tensor) -> Tensor:
        """Ask about sets, keep the answers, and return them, [N, R]."""
        self.keep(sets, self.ask(sets))
        return self.answers[-1]

    def keep(self, sets: Tensor, answers: Tensor) -> None:
        """Keep sets, or the shares of features that were left, and what was said of them."""
        self.sets.append(sets)
        self.answers.append(answers.detach().double())

    def climb(self, count: int) -> None:
        """Ask about ``count`` sets around the order, and their complements; find a new order."""
        if self.sets:
            score = -self.order.argsort(1).double()
        else:
            mean = self.heat.mean(1, keepdim=True)
            score = (torch.where(mean > 0, self.heat / mean, 1.0) + 0.3).log().double()
        screen = self.best is not None and self.link == "log-odds"
        most = max(1, round(LARGEST * self.heat.shape[1]))
        sets = around(score, count * (POOL if screen else 1), 1.0, self.generator, most)
        if screen and self.best is not None:
            expected = self.best.score(sets), self.best.score(~sets)
            sets = choose_open(sets, *expected, count, self.generator)
        self.put(paired(sets))
        self.order = self.find_order()

    def sort(self, low: int, width: int) -> None:
        """Sort a window of the order by how its features answer for halves of it."""
        order = self.order.clone()
        # Features of a window by number: which halves are asked about does not hang on their order.
        order[:, low : low + width] = order[:, low : low + width].sort(1).values
        kept, removed = self.put(paired(halves(order, low, width))).chunk(2, 1)
        effects = find_effects(to_score(kept, self.link) - to_score(removed, self.link), width)
        window = order[:, low : low + width]
        sorted_ = window.gather(1, effects.argsort(dim=1, descending=True, stable=True))
        order[:, low : low + width] = sorted_
        self.order = order

    def find_order(self) -> Tensor:
        """The greedy order of the function learned from all answers, corrected if they are many."""
        count, n = self.heat.shape
        f = fit_answers(*self.asked, self.none, self.all, against=HELD, **self.known)
        self.best = self.correct(f)
        return order_features(self.best, count, n, self.heat.device)

    def correct(self, f: AnswersFunction) -> Predictor:
        """The best predictor of sets: f, from 64 answers on corrected, or all answers there are."""
        sets, answers = self.asked
        n = self.heat.shape[1]
        if n < 20 and answers.shape[1] == 2**n - 2:  # nothing is left to predict
            return EverySet(sets, answers, self.none, self.all, self.link)
        return f if answers.shape[1] < CORRECT_FROM else Correction(f, sets, answers, self.near)

    def find_wishes(self) -> Wishes:
        """The orders of the two wishes, and evidence against, by the answers so far.

        Evidence against is that of a function that is free to have it. Both functions are learned
        in one fit: on a GPU it takes little more time than each.
        """
        count = len(self.heat)
        twice = [torch.cat([t, t]) for t in (*self.asked, self.none, self.all, self.heat)]
        kinds = torch.tensor([HELD, FREE], dtype=torch.float64, device=self.heat.device)
        known = self.known | {"heat": twice.pop(), "against": kinds.repeat_interleave(count)}
        f = fit_answers(*twice, **known)
        best = self.correct(f.rows(slice(count)))
        say = 0 if isinstance(best, EverySet) else FOUND_SAY
        orders = order_by_wish(best, self.order, say)
        return Wishes(*orders, f.rows(slice(count, None)).find_against())

    def confirm(self) -> None:
        """Ask about the first features by either wish, until their least number is known."""
        self.wishes = self.find_wishes()
        count, n = self.heat.shape
        ranks = torch.stack([order.argsort(1) for order in (self.wishes.keep, self.wishes.remove)])
        ranks = ranks.repeat_interleave(len(SHARES), 0).movedim(0, 1)  # [N, wishes x shares, n]
        keeps = torch.arange(ranks.shape[1], device=ranks.device) < len(SHARES)
        start = self.none if self.link == "value" else torch.zeros_like(self.none)
        whole = to_score(self.all, self.link)
        share = torch.tensor(SHARES * 2, device=ranks.device, dtype=start.dtype)
        least = start[:, None] + share * (whole - start)[:, None]
        low = torch.zeros(count, len(keeps), dtype=torch.int64, device=ranks.device)
        high = torch.full_like(low, n)  # all features do it, none does not
        for _ in range((n - 1).bit_length()):
            size = (low + high).div(2, rounding_mode="floor").clamp(min=1)
            first = ranks < size[:, :, None]
            score = to_score(self.put(torch.where(keeps[:, None], first, ~first)), self.link)
            does = torch.where(keeps, score >= least, score < least)
            high, low = torch.where(does, size, high), torch.where(does, low, size)

    def fit(self) -> tuple[AnswersFunction, Tensor]:
        """The function of all answers, and its error on answers left out of a fit, [N]."""
        return fit_and_check(*self.asked, self.none, self.all, **self.known)


def smooth_cells(layout: tuple[int, ...]) -> Tensor:
    """How far cells of a grid stand for each other, rows sum to 1: [n, n]."""
    axes = (torch.arange(float(side)) * 8 / max(layout) for side in layout)
    cells = torch.cartesian_prod(*axes).view(-1, len(layout)).double()
    near = torch.exp(-(torch.cdist(cells, cells) / 0.7).square() / 2)
    return near / near.sum(1, keepdim=True)
