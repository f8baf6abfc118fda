"""Explain one text: members by embeddings, then questions that leave words out, then a function.

The same path as ``sea_nn.pipeline``, for inputs that are no tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.ensembling.heatmaps import is_flat
from sea_nn.errors import MemberError, UnfitError
from sea_nn.features import Features
from sea_nn.features.kinds import TEXT
from sea_nn.members.checks import Check, vote
from sea_nn.members.member_maps import MemberMaps, to_heatmaps
from sea_nn.passes.outputs import Output, take
from sea_nn.questions.asked import Asked
from sea_nn.questions.learn import AnswersMap, check_budget, learn_from_answers
from sea_nn.submodular.answers_function import Link
from sea_nn.text.members import MEMBERS, Question, find_price
from sea_nn.text.model import End, TextModel, group_tails
from sea_nn.text.reading import Reading


@dataclass(frozen=True)
class ExplainedText:
    """Everything found about one text of n features.

    Attributes:
        reading: the text.
        members: the members' maps, signed, [1, n] each, with the columns and their target.
        heatmaps: the same, absolute and scaled, [1, m, n].
        learned: the function.
        checks: what to know.
    """

    reading: Reading
    members: MemberMaps
    heatmaps: Tensor
    learned: AnswersMap
    checks: tuple[Check, ...]


def explain_text(
    model: TextModel,
    reading: Reading,
    choose: Callable[[Tensor], Tensor],
    output: Output,
    *,
    ends: Sequence[End] = (),
    methods: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    budget: int,
    tick: Callable[[str, int], None] = lambda member, count: None,
    previous: Asked | None = None,
    on_round: Callable[[ExplainedText], bool | None] | None = None,
    seconds: float | None = None,
    tolerance: float | None = None,
) -> ExplainedText:
    """Explain one text with ``budget`` evaluations, members and questions together.

    Args:
        model: the model.
        reading: the text.
        choose: from columns [1, K] to the target, [1] or, of a pair, [1, 2].
        output: what the columns are.
        ends: a language model's continuations.
        methods: members.
        options: of members.
        budget: evaluations.
        tick: told a member's name ("sea" for questions) and the evaluations just made.
        previous: questions about this text and the model's outputs; they count as asked.
        on_round: is given what was found after each round, and may return False to stop.
        seconds: ask no more after this time, the members' included.
        tolerance: ask no more once the error is at most this.
    """
    per_question, before, began = len(group_tails(ends)), model.evaluations, time.perf_counter()
    check_budget(budget, per_question * find_price(methods, options, len(reading)))
    target: Tensor | None = None
    columns: Tensor | None = None

    def read(found: Tensor) -> Tensor:
        nonlocal target, columns
        if target is None or columns is None:
            columns = found[:1].detach().float()
            target = choose(columns)
        return take(found, target.expand(len(found), *target.shape[1:]))

    question = Question(model, reading, ends, read)
    maps, took, evaluations, failed = {}, {}, {}, {}
    for name in methods:
        started, spent = time.perf_counter(), model.evaluations
        try:
            found = MEMBERS[name](question, **options.get(name, {}))
            maps[name] = found.detach().float().cpu().unsqueeze(0)
        except UnfitError as error:
            failed[name] = str(error)
        took[name] = time.perf_counter() - started
        evaluations[name] = model.evaluations - spent
        tick(name, evaluations[name])
    if not maps:
        name, why = next(iter(failed.items()))
        raise MemberError(
            f'no member can explain this model ({name}: {why}); methods=("leave_one_out",) needs '
            "its answers alone"
        )
    started, spent = time.perf_counter(), model.evaluations
    n = len(reading)
    question.find_value()
    assert target is not None
    assert columns is not None
    # One text's function is small: it is learned on the CPU, wherever the model runs.
    chosen, columns = target.cpu(), columns.cpu()

    said: list[Tensor] = []
    known = None
    if previous is not None:
        earlier, score = previous.read(output, chosen, columns, n)
        said, known = [earlier[0, :, 0]], (previous.sets, score)

    def ask_only(sets: Tensor) -> Tensor:
        found = model.ask(reading, sets[0], ends).float().cpu()
        said.append(found)
        tick("sea", per_question * len(found))
        return output.score(found, chosen.expand(len(found), *chosen.shape[1:])).unsqueeze(0)

    def finish(learned: AnswersMap) -> ExplainedText:
        took["sea"] = time.perf_counter() - started
        evaluations["sea"] = model.evaluations - spent
        answered = torch.cat(said)[: learned.asked.sets.shape[1]]
        asked = replace(learned.asked, outputs=answered[None, :, None], whole=columns)
        learned = replace(learned, asked=asked)
        return ExplainedText(reading, members, heatmaps, learned, tuple(_check(reading, members)))

    ran = (maps, took, evaluations, failed, chosen, columns, output, options)
    members = MemberMaps(*ran, kind=TEXT)
    heatmaps = to_heatmaps(members)
    heat = torch.einsum("nm,nm...->n...", vote(members), heatmaps.to(torch.float64))
    link: Link = "value" if output.kind == "value" else "log-odds"
    learned = learn_from_answers(
        ask_only,
        output.score(columns, chosen),
        heat,
        max(1, (budget - (model.evaluations - before)) // per_question),
        link=link,
        features=Features(TEXT, (n,)),
        known=known,
        on_round=None if on_round is None else lambda learned: on_round(finish(learned)),
        seconds=None if seconds is None else max(0.0, seconds - (time.perf_counter() - began)),
        tolerance=tolerance,
    )
    return finish(learned)


def _check(reading: Reading, members: MemberMaps) -> list[Check]:
    """What to know of the members and of how the text was read."""
    checks = [Check("warn", "text", message, advice) for message, advice in reading.notes]
    checks += [Check("fail", name, why, "it is left out") for name, why in members.failed.items()]
    for name, maps in members.maps.items():
        if bool(is_flat(maps.abs()).any()):
            message = "its map is the same everywhere"
            checks.append(Check("fail", name, message, "it does not count"))
    return checks
