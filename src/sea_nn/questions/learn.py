"""Learn each input's function from a number of questions, and read its map off it [M12].

>>> worth = torch.tensor([0.0, 3.0, 1.0, 0.0])
>>> def ask_only(sets):
...     return (sets @ worth - 2).sigmoid()
>>> heat, whole = torch.ones(1, 4), torch.tensor([2.0]).sigmoid()
>>> found = learn_from_answers(lambda s: ask_only(s.float()), whole, heat, 20)
>>> found.order[0, :2].tolist(), round(float(found.gains.sum()), 3)
([1, 2], 4.0)
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.config import check_whole
from sea_nn.errors import InputError
from sea_nn.features import Features, Kind
from sea_nn.function.answers_function import AnswersFunction, Link, to_score
from sea_nn.questions.asked import Asked
from sea_nn.questions.curve import Curve, ask_curve, choose_counts
from sea_nn.questions.finer import can_refine, sort_finer
from sea_nn.questions.halves import ask_halves, recall_halves
from sea_nn.questions.painting import ANSWERS_A_NAT, blend, correlate, paint_in_order
from sea_nn.questions.search import HALVE_UP_TO, Plan, Search, plan_questions

LEAST_QUESTIONS = 3
LEAST_MORE = 16  # questions left by an earlier search that are worth another round
MOST_FEATURES = 256
CLIP = 1e-6
"""Probabilities count as at least this and at most one minus this: log-odds up to 13.8."""


@dataclass(frozen=True)
class AnswersMap:
    """What was learned about N inputs of n features from the model's answers.

    Attributes:
        function: the learned functions.
        order: features, the best first, [N, n].
        gains: what each adds after those before it, in the function's unit, [N, n]; below 0 where
            the function has evidence against the class and the feature is part of it.
        attribution: gains above 0 over the positions of the map, [N, *shape]; it sums to these.
            The sum over a feature is its gain, but of cells of images, where pixels have an order
            of their own, by cell and heat: there the k largest pixels sum to what the first
            cells of the same area gain (``paint_in_order``), and the sum over a cell is only
            near its gain.
        error: root mean square error of the score on answers left out of the fit, [N].
        feature_shape: the shape of the feature space; its product is n.
        features: the feature of each position, int64 [1, *shape]; None: one each.
        clipped: where the model is surer of the whole input than log-odds are taken for, bool [N].
        curve: what the model itself said along the order.
        asked: the questions, what the model said, and the orders of the two wishes.
        against: evidence against the class over the positions, >= 0, [N, *shape].
        stopped: why not everything was asked; "" if it was.
    """

    function: AnswersFunction
    order: Tensor
    gains: Tensor
    attribution: Tensor
    error: Tensor
    feature_shape: tuple[int, ...]
    features: Tensor | None
    clipped: Tensor
    curve: Curve
    asked: Asked
    against: Tensor
    stopped: str = ""


OnRound = Callable[[AnswersMap], bool | None]


def learn_from_answers(
    ask_only: Callable[[Tensor], Tensor],
    whole: Tensor,
    heat: Tensor,
    questions: int,
    *,
    link: Link = "log-odds",
    features: Features | None = None,
    known: tuple[Tensor, Tensor] | None = None,
    on_round: OnRound | None = None,
    seconds: float | None = None,
    tolerance: float | None = None,
) -> AnswersMap:
    """Ask at most so many questions about each input, and learn its function from the answers.

    Args:
        ask_only: the score with only a set left, bool [N, R, *shape] -> [N, R]; see
            ``make_ask_only``.
        whole: the score of the whole inputs, [N].
        heat: where members see evidence, >= 0, [N, *shape].
        questions: at most so many sets an input, the empty one among them.
        link: "log-odds" for scores that are probabilities, "value" for others.
        features: what is asked about; None for ``Features.to_ask_about``: every position where
            there are up to 64, else 8 x 8 cells of images, 4 x 4 x 4 of volumes, 64 groups of
            neighbours of others.
        known: sets that were asked before, bool [N, R, n], the empty one first, and their scores,
            [N, R]: they count as questions.
        on_round: is given what the answers say after each round, and may return False to stop.
        seconds: ask no more after this time.
        tolerance: ask no more once the error of every input is at most this.

    The sets are one fixed design, since other draws give other maps (docs/results/learned.md).
    An interrupt (Ctrl-C) ends the questions: what was learned until then is returned.
    """
    if features is None:
        plain = Kind("heat", heat.ndim)
        features = Features.of(heat, kind=plain).to_ask_about(device=heat.device)
    n = features.n
    if n > MOST_FEATURES:
        raise InputError(
            f"a budget is for at most {MOST_FEATURES} features, and there are {n}: give a coarser "
            'feature_mask or grid, or say methods="paper"'
        )
    warm = features.sum(heat.double()) / features.count().to(heat.device)

    def ask_positions(sets: Tensor) -> Tensor:
        return to_answers(ask_only(sets), link)

    def ask(sets: Tensor) -> Tensor:
        return ask_positions(features.expand(sets))

    all_, started = to_answers(whole, link), time.perf_counter()
    if known is None:
        nothing = torch.zeros(len(heat), 1, n, dtype=torch.bool, device=heat.device)
        known = nothing, ask(nothing)
    else:
        known = known[0], to_answers(known[1], link)
    sets, answers = known[0][:, 1:], known[1][:, 1:]
    before = [[part] if part.shape[1] else [] for part in (sets, answers)]
    more = sets.shape[1]  # the draws of a search that goes on are not those that it began with
    search = Search(ask, known[1][:, 0], all_, warm, features.layout, link, more, *before)
    image = can_refine(features)
    counts = choose_counts(questions, n)
    plan = plan_questions(questions - 1 - more, n)
    left = questions - 1 - more - 2 * len(counts)
    if more >= 2**n - 2 or (more and left < LEAST_MORE):
        plan = Plan()
        if image and more < HALVE_UP_TO:
            recall_halves(search, features, heat)
    elif not plan.every:
        plan = plan_questions(left, n, image=image, first=not more)
    rounds = search.rounds(plan)
    if plan.halves:
        rounds = ask_halves(search, ask_positions, features, heat, plan.halves, plan.regions)
    stopped, fine = "", None
    found: AnswersMap | None = None
    try:
        for _ in rounds:
            if on_round is not None:
                found = _read(search, features, heat, whole)
                if on_round(found) is False:
                    stopped = "on_round asked for no more"
            stopped = stopped or _stop(search, started, seconds, tolerance)
            if stopped:
                break
        if plan.finer and not stopped:
            fine = sort_finer(ask_only, features, search.order, heat, plan.finer)
    except KeyboardInterrupt:
        stopped = "interrupted"
    curve = ask_curve(search, search.order, () if stopped else counts, plan.every and not stopped)
    answered = 1 + search.asked[1].shape[1]
    if (
        found is None
        or fine
        or found.order is not search.order
        or found.asked.sets.shape[1] != answered
    ):
        found = _read(search, features, heat, whole, fine)
    return replace(found, curve=curve, stopped=stopped)


def _stop(search: Search, started: float, seconds: float | None, tolerance: float | None) -> str:
    """Why a search should end after a round; "" if it should go on."""
    if tolerance is not None and bool((search.fit()[1] <= tolerance).all()):
        return "the error is below the tolerance"
    if seconds is not None and time.perf_counter() - started > seconds:
        return "the time is up"
    return ""


def _read(
    search: Search,
    features: Features,
    heat: Tensor,
    whole: Tensor,
    fine: tuple[Features, Tensor] | None = None,
) -> AnswersMap:
    """What the answers of a search say so far."""
    order, link, (sets, answers) = search.order, search.link, search.asked
    f, error = search.fit()
    gains = f.gains(order)
    by_feature = torch.zeros_like(gains).scatter(1, order, gains)
    sure = whole > 1 - CLIP if link == "log-odds" else torch.zeros_like(whole, dtype=torch.bool)
    wishes = search.wishes or search.find_wishes()
    empty = torch.zeros_like(order[:, None], dtype=torch.bool)
    return AnswersMap(
        function=f,
        order=order,
        gains=gains,
        attribution=_paint(search, features, heat.double(), by_feature.clamp(min=0), fine),
        against=features.paint(wishes.against, heat.double()),
        error=error,
        feature_shape=features.feature_shape,
        features=features.groups,
        clipped=sure,
        curve=ask_curve(search, order, (), False),
        asked=Asked(
            torch.cat([empty, sets], 1),
            torch.cat([search.none[:, None], answers], 1),
            wishes.keep,
            wishes.remove,
        ),
    )


def _paint(
    search: Search,
    features: Features,
    heat: Tensor,
    gains: Tensor,
    fine: tuple[Features, Tensor] | None,
) -> Tensor:
    """The gains of features, [N, n], over the positions."""
    if not can_refine(features):
        return features.paint(gains, heat)
    score = search.early
    if score is None:
        sets, answers = search.asked
        trust = (2 * correlate(sets, to_score(answers, search.link), search.heat)).clamp(0, 1)
        found, order = (features, search.order) if fine is None else fine
        earliness = found.expand(1 - order.argsort(1).double() / found.n)
        score = blend(earliness, heat, answers.shape[1] / ANSWERS_A_NAT, trust)
    return paint_in_order(score, gains, features.count().to(heat.device))


def to_answers(score: Tensor, link: Link) -> Tensor:
    """Scores as the function's answers: log-odds of clipped probabilities, or values, float64."""
    score = score.detach().double()
    return score.clamp(CLIP, 1 - CLIP).logit() if link == "log-odds" else score


def check_budget(budget: int, price: int, constraints: Mapping[str, Any] | None = None) -> int:
    """The questions an input that a budget leaves, or why it cannot be kept."""
    check_whole("budget", budget, 1)
    if budget < price + LEAST_QUESTIONS:
        raise InputError(
            f"the members alone cost {price} evaluations an input, and at least {LEAST_QUESTIONS} "
            f"questions are needed: give a budget of {price + LEAST_QUESTIONS} or more (got "
            f"{budget}), or cheaper methods"
        )
    if any((constraints or {}).get(name) is not None for name in ("required", "forbidden")):
        raise InputError(
            "required and forbidden do not go with a budget (512 where nothing else is said): say "
            'methods="paper"'
        )
    return budget - price
