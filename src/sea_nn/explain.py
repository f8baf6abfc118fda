"""The one path of every explanation. Read this first.

    the call, checked -> the model, opened once -> members -> questions -> one learned f an input
        -> map, order and checks: an ``Explanation``

With a budget, the default, f is learned from the model's answers about sets of features
(``questions/learn.py``); without one nothing is asked, and it is learned from the members'
heatmaps, as in the paper (``learn``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.call import Call, check_budget
from sea_nn.explanation.assemble import Explained, Learned, assemble
from sea_nn.explanation.checks import (
    check_absence,
    check_function,
    check_outputs,
    check_range,
    check_units,
    count_otherwise,
    keep_first,
)
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import expand_mask, number_cells
from sea_nn.members.checks import (
    Check,
    check_completeness,
    check_maps,
    check_members,
    check_probe,
    vote,
)
from sea_nn.members.run import MemberMaps, run_members, to_heatmaps, to_signed
from sea_nn.model.borrowing import full_precision
from sea_nn.model.outputs import Meter
from sea_nn.model.probe import Probe, open_model
from sea_nn.paper.ensemble import ensemble
from sea_nn.paper.heatmaps import scale
from sea_nn.questions.asked import find_basis
from sea_nn.questions.learn import AnswersMap, learn_from_answers


def explain(call: Call, quiet: bool = False) -> Explanation:
    """Explain the model's answer about each input of a call.

    Args:
        call: what is explained, by whom, and for how much.
        quiet: leave out the checks, and pictures of the inputs.
    """
    started = time.perf_counter()
    count, limit = len(call.x), None if call.budget is None else call.budget * len(call.x)
    total = limit or count * (call.price + call.looks)
    exact = call.budget is not None and not call.autocast
    with (
        full_precision(call.x.device, exact),
        open_model(
            call.model,
            call.x,
            call.target,
            features=call.features,
            hiding=call.hiding,
            args=call.args,
            baselines=call.baselines,
            limit=call.limit,
            autocast=call.autocast,
            output=call.output,
            seed=call.seed,
            meter=Meter(limit, call.running.progress, total),
        ) as probe,
    ):
        previous = None if call.previous is None else call.previous.asked
        empty = probe.begin(ask_empty=call.budget is not None and previous is None)
        earlier = () if call.previous is None else call.previous.members
        probe.meter.paid = probe.meter.seen

        def put(learned: Learned | AnswersMap, checks: Sequence[Check] = ()) -> Explanation:
            found = Explained(members, to_heatmaps(members), learned, probe, started)
            return assemble(call, found, checks, quiet)

        members = run_members(probe, call.choices, call.running.on_error, earlier)
        if call.budget is None:
            learned: Learned | AnswersMap = learn(call, members)
        else:
            learned = ask(call, probe, members, empty, started, put)
        return put(learned, () if quiet else check(call, probe, members, learned))


def check(
    call: Call, probe: Probe, members: MemberMaps, learned: Learned | AnswersMap
) -> tuple[Check, ...]:
    """What a person should know about an explanation."""
    optional = {e.label for choice in call.choices for e in choice if e.optional}
    checks = [*check_probe(probe), *check_outputs(probe, call.target, members)]
    checks += check_members(members, optional)
    if isinstance(learned, AnswersMap):
        left = (call.budget or 0) - -(-probe.meter.seen // len(call.x))
        absence = check_absence(probe, learned, call.asked, call.other, left)
        checks += check_function(learned, absence)
    else:
        checks += [*check_maps(members), *check_completeness(probe, members)]
    if call.background is not None:
        checks += check_range(call.x, call.background, call.features)
    elif call.budget is not None and call.told.get("absent") is None and call.baselines is None:
        checks += check_units(call.x, call.features)
    return keep_first(checks)


def ask(
    call: Call,
    probe: Probe,
    members: MemberMaps,
    empty: Tensor | None,
    started: float,
    put: Callable[[AnswersMap], Explanation],
) -> AnswersMap:
    """Ask the opened model what the budget has left, and learn from the answers.

    Args:
        call: the call.
        probe: the model.
        members: what the members said.
        empty: what the model says of the empty inputs, [N, 1]; None where earlier answers tell.
        started: when the explanation was begun.
        put: makes an explanation of what is learned so far, for ``on_round``.
    """
    count, running, meter = len(call.x), call.running, probe.meter
    budget, draws, known = call.budget or 0, call.hiding.n_draws, None
    if call.previous is not None and call.previous.asked is not None:
        earlier = call.previous.asked
        earlier.check_basis(find_basis(probe, call.asked))
        told = earlier.read(probe.output, probe.target, probe.whole, call.asked.n)
        probe.said.append(told[0])
        known = earlier.sets, told[1]
    elif empty is not None:
        nothing = torch.zeros(count, 1, call.asked.n, dtype=torch.bool, device=call.x.device)
        known = nothing, empty
    paid = -(-sum(members.evaluations.values()) // count)
    check_budget(budget, paid, call.looks, call.asked.n)
    before = 0 if known is None else known[0].shape[1]
    left = (budget * count - meter.seen) // (count * draws)
    questions = min((budget - paid - call.looks) // draws, left + before)
    if call.other is not None and questions > before:  # the checks ask by another fill as well
        questions = max(before, questions - count_otherwise(questions, call.asked.n))
    meter.start("questions", "questions", (questions - before) * draws * count)

    def keep(learned: AnswersMap) -> AnswersMap:
        """Keep the model's own outputs with the answers."""
        answered = torch.cat(probe.said, 1)[:, : learned.asked.sets.shape[1]]
        basis = find_basis(probe, call.asked)
        asked = replace(learned.asked, outputs=answered, whole=probe.whole, basis=basis)
        return replace(learned, asked=asked)

    on_round = running.on_round
    seconds = running.seconds
    learned = learn_from_answers(
        probe.ask,
        probe.output.score(probe.whole, probe.target),
        to_signed(members),
        questions,
        link="value" if probe.output.kind == "value" else "log-odds",
        features=call.asked,
        known=known,
        on_round=None if on_round is None else lambda so_far: on_round(put(keep(so_far))),
        seconds=None if seconds is None else seconds - (time.perf_counter() - started),
        tolerance=running.tolerance,
        seed=call.seed,
    )
    meter.finish()
    return keep(learned)


def learn(call: Call, members: MemberMaps) -> Learned:
    """The paper's form: one function an input, learned from what the members say."""
    heatmaps, features, config = to_heatmaps(members), call.features, call.config
    bounds: dict[str, Any] = {} if call.constraints is None else vars(call.constraints)
    if features.groups is not None:  # equal numbers of a mask are one feature
        (count, m), config = heatmaps.shape[:2], config.replace(grid=None)
        own = features.count().to(heatmaps)
        sums = features.sum(heatmaps.flatten(0, 1)).view(count, m, -1)
        heatmaps = scale(sums / own, 2)
        for name, mask in bounds.items():
            if name != "epsilon" and mask is not None:
                wide = expand_mask(mask, name, count, features.shape).to(heatmaps)
                bounds = {**bounds, name: features.sum(wide) > 0}
    result = ensemble(heatmaps, config, weights=vote(members), quiet=True, **bounds)
    painted, cells = result.attribution, features.groups
    if cells is not None:
        painted = features.expand(painted)
    elif result.feature_shape != features.shape:  # pooled onto a grid
        cells = number_cells(result.feature_shape, features.shape).unsqueeze(0)
    return Learned(result, painted, cells)
