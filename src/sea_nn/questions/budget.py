"""Spend a budget of evaluations: what the members leave of it is asked, and f learned from it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import Features
from sea_nn.model.outputs import Output
from sea_nn.questions.ask import choose_draws, make_ask_only
from sea_nn.questions.asked import Asked
from sea_nn.questions.learn import (
    MOST_FEATURES,
    AnswersMap,
    OnRound,
    check_budget,
    learn_from_answers,
)

MOST_QUESTIONS = 100_000
"""An input; the sets of more would not fit into memory."""


def count_left(
    budget: int, price: int, n: int, constraints: Mapping[str, Any] | None = None
) -> int:
    """The questions an input that a budget leaves, or why it cannot be kept.

    Args:
        budget: evaluations an input.
        price: what the members cost of it.
        n: the number of features that are asked about.
        constraints: masks of features, which do not go with a budget.
    """
    questions = check_budget(budget, price, constraints)
    if n > MOST_FEATURES:
        raise InputError(
            f"a budget is for at most {MOST_FEATURES} features, and there are {n}: give a coarser "
            "feature_mask or grid, or leave out budget"
        )
    if min(questions, 2**n) > MOST_QUESTIONS:
        raise InputError(
            f"the budget leaves {questions:,} questions an input, and at most {MOST_QUESTIONS:,} "
            f"are asked about {n} features: give a smaller budget (1,024 is the most that was "
            "measured)"
        )
    return questions


def check_stops(
    budget: int | None,
    on_round: object = None,
    seconds: object = None,
    tolerance: object = None,
) -> None:
    """Refuse ways to stop that cannot be followed, or that have nothing to stop."""
    given = {"on_round": on_round, "seconds": seconds, "tolerance": tolerance}
    named = [name for name, value in given.items() if value is not None]
    if named and budget is None:
        raise InputError(f"{named[0]} is for explanations with a budget: SEA(model, budget=512)")
    if on_round is not None and not callable(on_round):
        raise KindError(
            f"on_round must be a function of an explanation; got {type(on_round).__name__}"
        )
    for name in ("seconds", "tolerance"):
        value = given[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and value >= 0):  # type: ignore[operator]
            raise InputError(f"{name} must be a number >= 0; got {value!r}")


def learn_within(
    left: int,
    model: Callable[..., Any],
    x: Tensor,
    target: Tensor,
    heat: Tensor,
    *,
    outputs: Tensor,
    output: Output,
    features: Features,
    grid: tuple[int, int] | None,
    absent: str | None,
    background: Tensor | None,
    seed: int,
    previous: Asked | None = None,
    on_round: OnRound | None = None,
    seconds: float | None = None,
    tolerance: float | None = None,
    **call: Any,
) -> AnswersMap:
    """Ask the model with ``left`` evaluations in all, and learn from the answers.

    Args:
        left: evaluations for all inputs together.
        model: the model.
        x: the inputs, [N, ...].
        target: the classes, [N], or pairs, [N, 2].
        heat: where members see evidence, [N, *shape].
        outputs: what the model says of the whole inputs, [N, K].
        output: what these outputs are.
        features: of x.
        grid: the cells that are asked about, if not those of ``Features.to_ask_about``.
        absent: the way to be absent.
        background: other inputs like x, or None.
        seed: starts the draws.
        previous: questions and answers about the same inputs; they count as asked.
        on_round: as for ``learn_from_answers``.
        seconds: as for ``learn_from_answers``.
        tolerance: as for ``learn_from_answers``.
        **call: further arguments of ``make_ask_only``.
    """
    asked = features.to_ask_about(grid, x.device)
    left //= len(x)
    draws = choose_draws(left, asked.n, absent, background)
    said: list[Tensor] = []
    before = None
    if previous is not None:
        earlier, score = previous.read(output, target, outputs, asked.n)
        said, before, draws = [earlier], (previous.sets, score), earlier.shape[2]

    def keep(learned: AnswersMap) -> AnswersMap:
        """Keep the model's own outputs with the answers."""
        answered = torch.cat(said, 1)[:, : learned.asked.sets.shape[1]]
        return replace(learned, asked=replace(learned.asked, outputs=answered, whole=outputs))

    ask_only = make_ask_only(
        model,
        x,
        target,
        draws=draws,
        keep=said.append,
        outputs=outputs,
        output=output,
        features=features,
        absent=absent,
        background=background,
        seed=seed,
        **call,
    )
    learned = learn_from_answers(
        ask_only,
        output.score(outputs, target),
        heat,
        left // draws,
        link="value" if output.kind == "value" else "log-odds",
        features=asked,
        known=before,
        on_round=None if on_round is None else lambda learned: on_round(keep(learned)),
        seconds=seconds,
        tolerance=tolerance,
    )
    return keep(learned)
