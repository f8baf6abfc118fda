"""Explain one text: members by embeddings, then questions that leave words out, then a function.

The same path as ``sea_nn.explain``, for inputs that are no tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.call import check_budget
from sea_nn.errors import MemberError, UnfitError
from sea_nn.features import Features
from sea_nn.features.kinds import TEXT
from sea_nn.function.function import Link
from sea_nn.members.checks import vote
from sea_nn.members.member_maps import MemberMaps, to_heatmaps
from sea_nn.model.outputs import Output, take
from sea_nn.questions.asked import Asked
from sea_nn.questions.learn import AnswersMap, learn_from_answers
from sea_nn.text.members import MEMBERS, Question, find_price
from sea_nn.text.model import End, TextModel, group_tails
from sea_nn.text.reading import Reading


@dataclass(frozen=True)
class AskedText:
    """One text, and what is explained of it.

    Attributes:
        reading: the text.
        choose: from columns [1, K] to the target, [1] or, of a pair, [1, 2].
        name: from the target to its name.
        output: what the columns are.
        ends: a language model's continuations; none of a classifier.
    """

    reading: Reading
    choose: Callable[[Tensor], Tensor]
    name: Callable[[Tensor], str]
    output: Output
    ends: tuple[End, ...] = ()


@dataclass(frozen=True)
class ExplainedText:
    """Everything found about one text of n features.

    Attributes:
        reading: the text.
        label: the name of what is explained.
        members: the members' maps, signed, [1, n] each, with the columns and their target.
        heatmaps: the same, absolute and scaled, [1, m, n].
        learned: the function.
    """

    reading: Reading
    label: str
    members: MemberMaps
    heatmaps: Tensor
    learned: AnswersMap


def explain_text(
    model: TextModel,
    text: AskedText,
    *,
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

    Arguments are those of ``TextSEA``, but: ``tick`` is told a member's name ("sea" for questions)
    and the evaluations just made; ``previous`` are questions about this text and the model's
    outputs, which count as asked; ``seconds`` are for this text, its members included.
    """
    reading, ends, output = text.reading, text.ends, text.output
    per_question, before, began = len(group_tails(ends)), model.evaluations, time.perf_counter()
    check_budget(budget, per_question * find_price(methods, options, len(reading)))
    target: Tensor | None = None
    columns: Tensor | None = None

    def read(found: Tensor) -> Tensor:
        nonlocal target, columns
        if target is None or columns is None:
            columns = found[:1].detach().float()
            target = text.choose(columns)
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
        return ExplainedText(reading, text.name(chosen), members, heatmaps, learned)

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
