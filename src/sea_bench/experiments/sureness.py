"""How sure SEA is, and how much to believe: coverage of intervals, trust in members, steadiness."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sea_bench.data.games import KINDS
from sea_bench.experiments.asking import explain
from sea_bench.experiments.experiment import (
    Compared,
    Findings,
    Measurement,
    Run,
    quantity,
    score_rows,
)
from sea_bench.experiments.predictions import spend
from sea_bench.experiments.rivals import draw_sets
from sea_bench.experiments.subjects import IMAGES, Subject, list_subjects, remember_all
from sea_nn.metrics import random_map
from sea_nn.paper.agreement import spearman

ANSWERS = (30, 128, 378)
BUDGETS = (34, 128, 512)
SHARE = 0.9  # of unseen answers that an interval should hold
TRIED = 384
SHOWN = "random heat"


def measure_coverage(run: Run) -> Findings:
    """Count the unseen answers that lie inside the intervals of ``predict``."""
    inside = f"Share of unseen answers inside the {SHARE:.0%} interval."
    width = "Mean width of the intervals, in probability."
    metrics = [quantity(f"inside@{count}", "higher", inside, (0.0, 1.0)) for count in ANSWERS]
    metrics += [quantity(f"width@{count}", "lower", width, (0.0, 1.0)) for count in ANSWERS]

    def cover(one: Subject) -> dict[str, Tensor]:
        tried = draw_sets(TRIED, one.features.n, run.seed + 77 + one.number)[None]
        truth, found = one.score(tried), dict[str, Tensor]()
        for count in ANSWERS:
            how = {"output": one.output, "seed": run.seed}
            e = spend(one.model, one.x, one.target, count, **how)
            positions = one.features.expand(tried.to(one.x.device))
            _, low, high = (v.double() for v in e.predict(positions, interval=SHARE))
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

    parts, skipped = [], list[str]()
    for _, title, subjects in list_subjects(run, (*IMAGES, *KINDS), skipped):
        found = remember_all(run, title, subjects, cover)
        rows = {
            row: {m.name: found[f"{row} {m.name}"] for m in metrics} for row in ("SEA", "constant")
        }
        about = f"{len(subjects)} inputs."
        parts.append(Compared(score_rows(rows, metrics), "SEA", title, about))
    notes = [
        f"{TRIED} random sets of every size an input that were not asked about; SEA chooses its "
        "questions itself; an interval keeps its word where it holds 85 to 95 % of them",
        "constant: the same share of as many random answers, whatever the set",
    ]
    return Findings(parts, [*notes, *skipped])


def measure_trust(run: Run) -> Findings:
    """Show how much each member's heat explains of what models say."""
    parts, skipped = [], list[str]()

    def ask_trust(one: Subject) -> dict[str, Tensor]:
        def heat(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
            return random_map((len(x), *x.shape[2:]), run.seed, one.number, x.device)[:, None]

        heat.__name__ = SHOWN
        e = explain(one.model, one.x, one.target, budget=128, seed=run.seed)
        methods = [*e.methods, heat]
        e = explain(one.model, one.x, one.target, methods=methods, budget=512, seed=run.seed)
        return {name: share.double().cpu() for name, share in e.trust.items()}

    for _, title, subjects in list_subjects(run, IMAGES, skipped):
        found = remember_all(run, title, subjects, ask_trust)
        metric = quantity(
            "trust", "higher", "Share of what the answers believed, by member.", (0.0, 1.0)
        )
        rows = {name: {"trust": values} for name, values in found.items()}
        about = f"{len(subjects)} inputs."
        parts.append(Compared(score_rows(rows, [metric]), SHOWN, title, about))
    notes = [f"512 evaluations an input; {SHOWN!r} is noise given as a member: the control"]
    return Findings(parts, [*notes, *skipped])


def measure_steadiness(run: Run) -> Findings:
    """Compare maps of two seeds of the questions, and of one input alone and in a batch."""
    names = [f"{what}@{budget}" for budget in BUDGETS for what in ("seeds", "batch")]
    said = {
        "seeds": "Rank correlation of the maps of two seeds.",
        "batch": "Rank correlation of the map of an input alone and beside another.",
    }
    metrics = [quantity(n, "higher", said[n.partition("@")[0]], (-1.0, 1.0)) for n in names]

    def compare(one: Subject) -> dict[str, Tensor]:
        found = {}
        for budget in BUDGETS:
            first = _map(one, budget, run.seed)
            found[f"SEA seeds@{budget}"] = spearman(first, _map(one, budget, run.seed + 1))
            found[f"SEA batch@{budget}"] = spearman(first, _map(one, budget, run.seed, 2))
            noise = [random_map(tuple(first.shape), run.seed + k, one.number) for k in (0, 1)]
            for what in ("seeds", "batch"):
                found[f"random {what}@{budget}"] = spearman(*(v.to(first) for v in noise))
        return found

    parts, skipped = [], list[str]()
    for _, title, subjects in list_subjects(run, IMAGES, skipped):
        found = remember_all(run, title, subjects, compare)
        rows = {row: {n: found[f"{row} {n}"] for n in names} for row in ("SEA", "random")}
        about = f"{len(subjects)} inputs."
        parts.append(Compared(score_rows(rows, metrics), "SEA", title, about))
    return Findings(parts, skipped)


def _map(one: Subject, budget: int, seed: int, copies: int = 1) -> Tensor:
    """The input's map as a row, float64 [1, positions]; beside a mirrored input where wanted."""
    x, target = one.x, one.target.repeat(copies)
    x = torch.cat([x, *[x.flip(-1)] * (copies - 1)])
    e = explain(one.model, x, target, budget=budget, seed=seed)
    return e.attribution[:1].flatten(1).double()


SURENESS_EXPERIMENTS = (
    Measurement(
        "coverage",
        "Does SEA know how sure it is?",
        f"``e.predict(sets, interval={SHARE})`` says an interval for what the model would answer. "
        "How many answers that nobody asked about lie inside?",
        "all",
        n_inputs=16,
        quick=4,
        work=measure_coverage,
    ),
    Measurement(
        "trust",
        "Which method should one believe?",
        "How much of what the model answers does each member's heat explain?",
        "all",
        n_inputs=16,
        quick=4,
        work=measure_trust,
    ),
    Measurement(
        "steady",
        "Does the map stay the same?",
        "Maps of the same inputs with another seed of the questions, and beside another input.",
        "all",
        n_inputs=16,
        quick=4,
        work=measure_steadiness,
    ),
)
