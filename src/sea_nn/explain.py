"""The one path of every explanation. Read this first.

    a call, checked (call.py)
        -> the model, opened once; every row that it sees is counted
        -> members say where they see evidence
        -> one function of sets of features is learned for each input
        -> its maps and order, and what a person should know: an Explanation

With a budget, the default, the function is learned from the model's own answers about sets of
features (``ask``); without one it is learned from the members' heatmaps, as in the paper
(``learn``).
"""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from sea_nn.call import Call
from sea_nn.config import SEAConfig
from sea_nn.explanation.assemble import Learned, assemble, count_otherwise, find_checks
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import expand_mask, number_cells, scale
from sea_nn.members.checks import vote
from sea_nn.members.run import MemberMaps, run_members
from sea_nn.model.opening import open_model
from sea_nn.model.outputs import Meter
from sea_nn.model.probe import Probe
from sea_nn.paper.ensemble import ensemble
from sea_nn.questions.learn import AnswersMap, learn_from_answers


def explain(call: Call, quiet: bool = False) -> Explanation:
    """Explain the model's answer about each input of a call.

    Args:
        call: what is explained, by whom, and for how much.
        quiet: leave out the checks, and pictures of the inputs.
    """
    settings, request, started = call.settings, call.request, time.perf_counter()
    count, budget, previous = len(call.x), settings.budget, request.previous
    limit = None if budget is None else budget * count
    total = limit or count * (call.price + call.looks)
    with open_model(
        call.model,
        call.x,
        call.target,
        features=call.features,
        hiding=call.hiding,
        args=request.args,
        baselines=call.baselines,
        limit=request.limit,
        autocast=settings.autocast,
        exact=budget is not None and not settings.autocast,
        output=call.output,
        seed=settings.seed,
        meter=Meter(limit, request.running.progress, total),
    ) as probe:
        # The empty input is the first question, unless an earlier explanation has asked it.
        empty = probe.begin(ask_empty=budget is not None and previous is None)
        probe.meter.done = probe.meter.seen
        earlier = () if previous is None else previous.members
        on_error = request.running.on_error
        members = run_members(probe, call.entries, on_error, earlier, call.named)
        learned: Learned | AnswersMap
        if budget is None:
            learned = learn(call, members)
        else:
            learned = ask(call, probe, members, empty, started)
        checks = () if quiet else find_checks(call, probe, members, learned)
        return assemble(call, probe, members, learned, checks, started, quiet)


def ask(
    call: Call, probe: Probe, members: MemberMaps, empty: Tensor | None, started: float
) -> AnswersMap:
    """Ask the opened model what the budget has left, and learn from the answers.

    Args:
        call: the call.
        probe: the model.
        members: what the members said.
        empty: what the model says of the empty inputs, [N, 1]; None where earlier answers tell.
        started: when the explanation was begun.
    """
    count, n, draws = len(call.x), call.asked.n, call.hiding.n_draws
    running, previous, known = call.request.running, call.request.previous, None
    # What is known already: the answers of an earlier explanation, or that about the empty input.
    basis = find_basis(call, probe)
    if previous is not None and previous.asked is not None:
        previous.asked.check_basis(basis)
        outputs, scores = previous.asked.read(probe.output, probe.target, probe.whole, n)
        probe.said.append(outputs)
        known = previous.asked.sets, scores
    elif empty is not None:
        known = torch.zeros(count, 1, n, dtype=torch.bool, device=call.x.device), empty
    n_known = 0 if known is None else known[0].shape[1]
    # What the budget has left: an answer costs a row for each draw of what is absent.
    budget, paid = call.settings.budget or 0, -(-sum(members.evaluations.values()) // count)
    call.check_budget(paid)
    left = (budget * count - probe.meter.seen) // (count * draws)
    questions = min((budget - paid - call.looks) // draws, left + n_known)
    if call.other is not None and questions > n_known:  # the checks ask by another fill as well
        questions = max(n_known, questions - count_otherwise(questions, n))
    probe.meter.start("questions", "questions", (questions - n_known) * draws * count)

    def keep(learned: AnswersMap) -> AnswersMap:
        """Keep the model's own outputs with the answers."""
        said = torch.cat(probe.said, 1)[:, : learned.asked.sets.shape[1]]
        asked = replace(learned.asked, outputs=said, whole=probe.whole, basis=basis)
        return replace(learned, asked=asked)

    def put(learned: AnswersMap) -> Explanation:
        """The explanation so far."""
        return assemble(call, probe, members, keep(learned), (), started)

    on_round, seconds = running.on_round, running.seconds
    learned = learn_from_answers(
        probe.ask,
        probe.output.score(probe.whole, probe.target),
        members.to_heatmaps(signed=True),
        questions,
        link="value" if probe.output.kind == "value" else "log-odds",
        features=call.asked,
        known=known,
        on_round=None if on_round is None else lambda so_far: on_round(put(so_far)),
        seconds=None if seconds is None else seconds - (time.perf_counter() - started),
        tolerance=running.tolerance,
        seed=call.settings.seed,
    )
    probe.meter.finish()
    return keep(learned)


def learn(call: Call, members: MemberMaps) -> Learned:
    """The paper's form: one function an input, learned from what the members say."""
    heatmaps, features = members.to_heatmaps(), call.features
    config, constraints = call.settings.config or SEAConfig(), call.request.constraints
    bounds: dict[str, Any] = {} if constraints is None else vars(constraints)
    if features.groups is not None:  # equal numbers of a mask are one feature
        count, m = heatmaps.shape[:2]
        sums = features.sum(heatmaps.flatten(0, 1)).view(count, m, -1)
        heatmaps = scale(sums / features.count().to(heatmaps), 2)
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
    return Learned(result.order, result.gains, result.feature_shape, painted, cells)


def find_basis(call: Call, probe: Probe) -> Tensor:
    """What the questions are about, as numbers that tell others: int64 [N, 3].

    They are of the inputs, of what these look like with nothing left, and of the features' groups.
    """
    groups, numbers = call.asked.expand(torch.arange(call.asked.n, device=call.x.device)), []
    for values in (probe.x, probe.absent(), groups.expand(len(call.x), *groups.shape)):
        for row in values.double().cpu():
            digest = blake2b(row.numpy().tobytes(), digest_size=8).digest()
            numbers.append(int.from_bytes(digest, "little", signed=True))
    return torch.tensor(numbers, device=call.x.device).view(3, -1).T
