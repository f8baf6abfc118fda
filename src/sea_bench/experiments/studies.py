"""Studies: results on inputs that are no images, each a page of tables from one function.

A study ranks the features of inputs by several methods and scores every order by what the model
itself says of its first features, kept (insertion) and removed (deletion).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from sea_bench.experiments.tables import wrap
from sea_bench.machine import describe_machine
from sea_nn.explanation.atomic import write_atomically
from sea_nn.metrics.bootstrap import bootstrap_difference, bootstrap_mean

ScoreSets = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, n], to what the model says with only these features left, [N, R]."""
Tell = Callable[[str, int, int], None]
MOST_COLUMNS = 5  # cases in a table, so that its lines can be read


@dataclass(frozen=True)
class Case:
    """One model on some inputs: what it says of sets, and the orders that compete.

    Attributes:
        name: heads its column.
        score: answers sets.
        orders: features, the best first, by method, int64 [N, n] each.
        unit: of the scores; only "probability" counts in means over cases.
    """

    name: str
    score: ScoreSets
    orders: Mapping[str, Tensor]
    unit: str = "probability"


@dataclass(frozen=True)
class Findings:
    """What a study found: cases that its tables are of, or tables of its own in ``more``."""

    cases: Sequence[Case]
    notes: Sequence[str] = ()
    more: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True)
class Study:
    """A page of ``docs/results``: ``run(limit, seed, tell)`` measures."""

    name: str
    title: str
    question: str
    data: str
    n_inputs: int
    run: Callable[[int, int, Tell], Findings]
    against: str = "SEA, 128"


def areas(score: ScoreSets, order: Tensor) -> tuple[Tensor, Tensor]:
    """Insertion (higher is better) and deletion (lower is better) of orders [N, n], [N] each.

    Features go in, or out, one by one from the first; the mean of the score by trapezoids.
    """
    n = order.shape[1]
    rank = order.argsort(1)
    kept = rank[:, None] < torch.arange(n + 1)[:, None]
    weight = torch.ones(n + 1, dtype=torch.float64)
    weight[0] = weight[-1] = 0.5
    both = [score(sets).double() @ weight / n for sets in (kept, ~kept)]
    return both[0], both[1]


def greedy(score: ScoreSets, count: int, n: int) -> Tensor:
    """The order by asking the model itself which feature to keep next: [count, n].

    It costs n (n + 1) / 2 questions an input and is what insertion can reach by greed.
    """
    taken = torch.zeros(count, n, dtype=torch.bool)
    order = []
    for k in range(n):
        free = (~taken).nonzero()[:, 1].view(count, n - k)
        sets = taken[:, None] | torch.eye(n, dtype=torch.bool)[free]
        best = free.gather(1, score(sets).argmax(1, keepdim=True))
        taken = taken.scatter(1, best, True)
        order.append(best)
    return torch.cat(order, 1)


def random_order(count: int, n: int, seed: int) -> Tensor:
    """A random map's order, [count, n]."""
    return torch.rand(count, n, generator=torch.Generator().manual_seed(seed)).argsort(1)


def rank(values: Tensor) -> Tensor:
    """Values [N, n] as orders, the largest first, ties by place."""
    return values.double().argsort(dim=1, descending=True, stable=True)


def run_study(
    study: Study, *, limit: int | None, seed: int, out: Path, command: str, tell: Tell
) -> Path:
    """Measure, and write the study's page; a trial with fewer inputs goes to ``out/trial``."""
    count = min(limit or study.n_inputs, study.n_inputs)
    found = study.run(count, seed, tell)
    measured = {case.name: {k: areas(case.score, o) for k, o in case.orders.items()}
                for case in found.cases}  # fmt: skip
    lines = [f"# {study.title}", "", *wrap(study.question), ""]
    if count < study.n_inputs:
        lines += [f"**A trial with {count} of {study.n_inputs} inputs a case.**", ""]
    for number, (name, arrow) in enumerate((("Insertion", "↑"), ("Deletion", "↓"))):
        if found.cases:
            lines += [f"## {name} {arrow}", ""]
            lines += _tabulate(found.cases, measured, number, study.against)
    if found.cases:
        means = (
            "Means over inputs ± half of the 95 % bootstrap interval. ▲ better, ▼ worse than "
            f"{study.against} by the 95 % interval of the paired difference. Numbers after a name "
            "are model evaluations an input; without one, see below. – not applicable."
        )
        lines += [*wrap(means), ""]
    lines += [
        *found.more,
        "## How this was made",
        "",
        f"- command: `{command}`",
        f"- inputs: {count} a case, seed {seed}",
        f"- machine: {describe_machine(torch.device('cpu'))}, torch {torch.__version__}",
        *[line for note in found.notes for line in _item(note)],
    ]
    folder = out if count == study.n_inputs else out / "trial"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{study.name}.md"
    with write_atomically(path) as file:
        file.write(("\n".join(lines).rstrip() + "\n").encode())
    return path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; all columns but the first are right-aligned."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def interval(values: Tensor) -> str:
    """Mean ± half of the interval of values [N]."""
    found = bootstrap_mean(values[:, None])
    half = float(found.high[0] - found.low[0]) / 2
    return f"{float(found.mean[0]):.3f} ± {half:.3f}"


def _item(note: str) -> list[str]:
    first, *rest = wrap(note)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _tabulate(
    cases: Sequence[Case],
    measured: Mapping[str, Mapping[str, tuple[Tensor, Tensor]]],
    number: int,
    against: str,
) -> list[str]:
    pooled = [case.name for case in cases if case.unit == "probability"]
    lines: list[str] = []
    for start in range(0, len(cases), MOST_COLUMNS):
        part = cases[start : start + MOST_COLUMNS]
        rows = []
        for method in dict.fromkeys(name for case in part for name in case.orders):
            cells = [_cell(measured[c.name], method, number, against) for c in part]
            rows.append([method, *cells])
        lines += [*table(["order by", *(case.name for case in part)], rows), ""]
    rows = []
    for method in dict.fromkeys(name for case in cases for name in case.orders):
        own = [name for name in pooled if method in measured[name]]
        joined = {
            k: tuple(torch.cat([measured[c][k][i] for c in own]) for i in (0, 1))
            for k in (method, against)
        }
        rows.append([method, str(len(own)), _cell(joined, method, number, against)])
    lines += ["Over all inputs of the cases with probabilities that a method has:", ""]
    return [*lines, *table(["order by", "cases", "mean"], rows), ""]


def _cell(own: Mapping[str, tuple[Tensor, ...]], method: str, number: int, against: str) -> str:
    if method not in own:
        return "–"
    values = own[method][number]
    text = interval(values)
    if method == against:
        return f"**{text}**"
    pair = torch.stack([own[against][number], values], 1)
    change = bootstrap_difference(pair, 0)
    low, high = float(change.low[1]), float(change.high[1])
    if low <= 0 <= high:
        return text
    return f"{text} {'▲' if (low > 0) == (number == 0) else '▼'}"
