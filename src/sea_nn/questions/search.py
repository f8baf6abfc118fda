"""Ask the model in rounds, each where the answers so far leave the order of the features open.

A round's sets lie around the present order (``climb``); then windows of neighbours in it are sorted
by what the model says of their halves (``sweep``), from the end to the front, from the front to the
end, or both, as the number of questions allows. How many of what was chosen on tuning inputs
(docs/results/learned.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sea_nn.questions.designs import around, every_set, find_effects, halves, paired, windows
from sea_nn.submodular.answers_fit import fit_answers
from sea_nn.submodular.answers_function import Link, place_units, to_score
from sea_nn.submodular.answers_order import Correction, Predictor, order_features

AskOnly = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, n], to the log-odds (or value) with only these features left, [N, R]."""

CORRECT_FROM = 64  # answers from which the correction orders better than f alone
LEAST_CLIMB = 60  # questions before a sweep


@dataclass(frozen=True)
class Plan:
    """How a number of questions is spent.

    Attributes:
        pairs: sets, each with its complement, in each round of ``climb``.
        sweeps: for each sweep whether it goes forward.
        every: ask about every set there is instead.
    """

    pairs: tuple[int, ...] = ()
    sweeps: tuple[bool, ...] = ()
    every: bool = False


def plan_questions(questions: int, n: int) -> Plan:
    """Spend at most so many questions on n features.

    >>> plan_questions(507, 64)
    Plan(pairs=(10, 16, 16), sweeps=(True,), every=False)
    """
    if n < 2 or questions < 2:
        return Plan()
    if n < 20 and 2**n - 2 <= questions:
        return Plan(every=True)
    width, lows = windows(n)
    price = 4 * (width - 1) * len(lows)
    sweeps: tuple[bool, ...] = ()
    for directions in ((True,), (False, True)):
        if questions - len(directions) * price >= LEAST_CLIMB:
            sweeps = directions
    pairs = (questions - len(sweeps) * price) // 2
    rounds = 2 if pairs <= 40 else 3 if pairs <= 120 else 6
    if pairs < rounds:
        return Plan((pairs,), sweeps)
    first = pairs // 2 if rounds == 2 else pairs // 4
    rest = (pairs - first) // (rounds - 1)
    return Plan((first, *[rest] * (rounds - 1)), sweeps)


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
        seed: starts the draws; each input has its own, the same in any batch.
        sets: what was asked, bool [N, R, n] by round.
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
        count, n = self.heat.shape
        self.places = place_units(n, self.layout)
        self.near = None if self.layout is None else smooth_cells(self.layout)
        self.generators = [torch.Generator().manual_seed(self.seed) for _ in range(count)]
        self.order = self.heat.argsort(dim=1, descending=True, stable=True)

    def run(self, plan: Plan) -> Tensor:
        """Ask what the plan says; returns the order, [N, n]."""
        if plan.every:
            sets = every_set(self.heat.shape[1])
            # In no order: answers are left out of fits by turns.
            mixed = torch.randperm(len(sets), generator=torch.Generator().manual_seed(0))
            sets = sets[mixed].to(self.heat.device)
            self.put(sets.expand(len(self.heat), -1, -1))
            self.order = self.find_order()
        for i, count in enumerate(plan.pairs):
            self.climb(count, spread=1.0 if i == 0 else 0.5)
        for forward in plan.sweeps:
            self.sweep(forward)
        return self.order

    def put(self, sets: Tensor) -> Tensor:
        """Ask about sets, keep the answers, and return them, [N, R]."""
        answers = self.ask(sets).detach().double()
        self.sets.append(sets)
        self.answers.append(answers)
        return answers

    def climb(self, count: int, spread: float) -> None:
        """Ask about ``count`` sets around the order, and their complements; find a new order."""
        if self.sets:
            score = -self.order.argsort(1).double()
        else:
            mean = self.heat.mean(1, keepdim=True)
            score = (torch.where(mean > 0, self.heat / mean, 1.0) + 0.3).log().double()
        self.put(paired(around(score, count, spread, self.generators)))
        self.order = self.find_order()

    def sweep(self, forward: bool) -> None:
        """Sort windows of the order by how their features answer for halves of them."""
        width, lows = windows(self.heat.shape[1])
        order = self.order.clone()
        for low in lows if forward else reversed(lows):
            kept, removed = self.put(paired(halves(order, low, width))).chunk(2, 1)
            effects = find_effects(to_score(kept, self.link) - to_score(removed, self.link), width)
            window = order[:, low : low + width]
            sorted_ = window.gather(1, effects.argsort(dim=1, descending=True, stable=True))
            order[:, low : low + width] = sorted_
        self.order = order

    def find_order(self) -> Tensor:
        """The greedy order of the function learned from all answers, corrected if they are many."""
        sets, answers = torch.cat(self.sets, 1), torch.cat(self.answers, 1)
        ends = self.none, self.all
        known: dict[str, Any] = {"heat": self.heat, "places": self.places, "link": self.link}
        best: Predictor
        best = f = fit_answers(sets, answers, *ends, against=True, **known)
        if answers.shape[1] >= CORRECT_FROM:
            best = Correction(f, sets, answers, self.near)
        count, n = self.heat.shape
        return order_features(best, count, n, self.heat.device)


def smooth_cells(layout: tuple[int, ...]) -> Tensor:
    """How far cells of a grid stand for each other, rows sum to 1: [n, n]."""
    axes = (torch.arange(float(side)) * 8 / max(layout) for side in layout)
    cells = torch.cartesian_prod(*axes).view(-1, len(layout)).double()
    near = torch.exp(-(torch.cdist(cells, cells) / 0.7).square() / 2)
    return near / near.sum(1, keepdim=True)
