"""How sure SEA is, and how much to believe: coverage of intervals, trust in members, steadiness."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sea_bench.data.games import KINDS
from sea_bench.experiments.experiment import Findings, Run, experiment, quantity
from sea_bench.experiments.rivals import draw_sets
from sea_bench.experiments.subjects import IMAGES, Subject, compare_places
from sea_nn.metrics import random_map
from sea_nn.paper.agreement import spearman

ANSWERS = (30, 128, 378)
BUDGETS = (34, 128, 512)
SHARE = 0.9  # of unseen answers that an interval should hold
TRIED = 384
SHOWN = "random heat"


@experiment("coverage", "Does SEA know how sure it is?", "all", n_inputs=16, quick=4)
def coverage(run: Run) -> Findings:
    """``e.predict(sets, interval=0.9)`` says an interval for what the model would answer.

    How many answers that nobody asked about lie inside?
    """
    inside = f"Share of unseen answers inside the {SHARE:.0%} interval."
    width = "Mean width of the intervals, in probability."
    metrics = [quantity(f"inside@{count}", "higher", inside, (0.0, 1.0)) for count in ANSWERS]
    metrics += [quantity(f"width@{count}", "lower", width, (0.0, 1.0)) for count in ANSWERS]

    def cover(one: Subject) -> dict[str, Tensor]:
        tried = draw_sets(TRIED, one.features.n, run.seed + 77 + one.number)[None]
        truth, found = one.score(tried), dict[str, Tensor]()
        for count in ANSWERS:
            e = one.spend(count, run.seed)
            _, low, high = (v.double() for v in e.predict(one.expand(tried), interval=SHARE))
            found[f"SEA inside@{count}"] = ((low <= truth) & (truth <= high)).double().mean(1)
            found[f"SEA width@{count}"] = (high - low).mean(1)
            # The control: one interval for all sets, from as many answers about random ones.
            asked = one.score(draw_sets(count, one.features.n, run.seed + count)[None])
            ends = torch.tensor([(1 - SHARE) / 2, (1 + SHARE) / 2]).to(asked)
            low, high = asked.quantile(ends, 1)
            held = (low[:, None] <= truth) & (truth <= high[:, None])
            found[f"constant inside@{count}"] = held.double().mean(1)
            found[f"constant width@{count}"] = (high - low).expand(1)
        return found

    notes = [
        f"{TRIED} random sets of every size an input that were not asked about; SEA chooses its "
        "questions itself; an interval keeps its word where it holds 85 to 95 % of them",
        "constant: the same share of as many random answers, whatever the set",
    ]
    return compare_places(run, (*IMAGES, *KINDS), cover, {"": metrics}, "SEA", notes)


@experiment("trust", "Which method should one believe?", "all", n_inputs=16, quick=4)
def trust(run: Run) -> Findings:
    """How much of what the model answers does each member's heat explain?"""
    said = "Share of what the answers believed, by member."
    metrics = [quantity("trust", "higher", said, (0.0, 1.0))]

    def ask_trust(one: Subject) -> dict[str, Tensor]:
        def heat(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
            return random_map((len(x), *x.shape[2:]), run.seed, one.number, x.device)[:, None]

        heat.__name__ = SHOWN
        methods = [*one.explain(128, run.seed).methods, heat]
        e = one.explain(512, run.seed, methods=methods)
        return {name: share.double().cpu() for name, share in e.trust.items()}

    notes = [f"512 evaluations an input; {SHOWN!r} is noise given as a member: the control"]
    return compare_places(run, IMAGES, ask_trust, {"": metrics}, SHOWN, notes, prefix="trust ")


@experiment("steady", "Does the map stay the same?", "all", n_inputs=16, quick=4)
def steady(run: Run) -> Findings:
    """Maps of the same inputs with another seed of the questions, and beside another input."""
    said = {
        "seeds": "Rank correlation of the maps of two seeds.",
        "batch": "Rank correlation of the map of an input alone and beside another.",
    }
    metrics = [
        quantity(f"{what}@{budget}", "higher", about, (-1.0, 1.0))
        for budget in BUDGETS
        for what, about in said.items()
    ]

    def compare(one: Subject) -> dict[str, Tensor]:
        found = {}
        for budget in BUDGETS:
            first = _map(one, budget, run.seed)
            found[f"SEA seeds@{budget}"] = spearman(first, _map(one, budget, run.seed + 1))
            found[f"SEA batch@{budget}"] = spearman(first, _map(one, budget, run.seed, 2))
            noise = [random_map(tuple(first.shape), run.seed + k, one.number) for k in (0, 1)]
            for what in said:
                found[f"random {what}@{budget}"] = spearman(*(v.to(first) for v in noise))
        return found

    return compare_places(run, IMAGES, compare, {"": metrics}, "SEA")


def _map(one: Subject, budget: int, seed: int, copies: int = 1) -> Tensor:
    """The input's map as a row, float64 [1, positions]; beside a mirrored input where wanted."""
    x = torch.cat([one.x, *[one.x.flip(-1)] * (copies - 1)])
    e = replace(one, x=x, target=one.target.repeat(copies)).explain(budget, seed)
    return e.attribution[:1].flatten(1).double()
