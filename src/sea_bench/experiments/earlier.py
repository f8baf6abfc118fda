"""Our maps of today beside scores of the same inputs that an archive keeps: earlier ours, rivals.

Rivals do not change when our function does, so they need not be measured again: ``sea bench NAME
--ours`` measures maps with a budget alone and pairs them, input by input, with the archive.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from sea_bench.experiments.archive import read_scores
from sea_bench.experiments.experiment import PRICES, Compared, Findings, Table
from sea_bench.experiments.metrics import GAIN, compute_gain
from sea_bench.experiments.pages import write_difference
from sea_nn.errors import InputError
from sea_nn.metrics import Metric, bootstrap_difference

ROUNDED = 1e-4  # the archive has five digits of a score
NOTE = (
    "On the {n} inputs that both have; before: scores of the same inputs in {name}. Each cell is "
    "the paired difference [95 % interval]. **Better**, *worse*, plain: not told apart; the gain "
    "is counted in no last line, as it is made of other columns."
)


@dataclass(frozen=True)
class Pairs:
    """Values of today and of before on the same inputs, [N] by metric and method."""

    metrics: Mapping[str, Metric]
    now: Mapping[str, Mapping[str, Tensor]]
    then: Mapping[str, Mapping[str, Tensor]]

    def compare(self, name: str, label: str, other: str) -> str:
        """How far a map of today is from one of before, with its interval."""
        metric = self.metrics[name]
        both = torch.stack([self.then[name][other], self.now[name][label]], 1)
        apart = bootstrap_difference(both, 0, middle=metric.middle)
        return write_difference(metric, apart, 1, ROUNDED)

    def compare_best(self, name: str, label: str, rivals: Sequence[str]) -> str:
        """How far a map of today is from the one of some maps of before with the best mean."""
        means = {one: float(self.then[name][one].mean()) for one in rivals}
        sign = 1 if self.metrics[name].direction == "higher" else -1
        best = max(means, key=lambda one: sign * means[one])
        return f"{best} {means[best]:.3f}: {self.compare(name, label, best)}"

    def tabulate(
        self, title: str, note: str, columns: Sequence[str], compare: Callable[[str, str], str]
    ) -> Table:
        """A row for each metric that both have; the last counts what the columns are."""
        counted, rows = {column: Counter[str]() for column in columns}, []
        for name, metric in self.metrics.items():
            if name in PRICES or name not in self.then:
                continue
            cells = [compare(name, column) for column in columns]
            for column, cell in zip(columns, cells, strict=True):
                verdict = "better" if "**" in cell else "worse" if "*" in cell else "level"
                counted[column][verdict] += name != GAIN
            rows.append([f"{name} {metric.arrow}", *cells])
        kinds = ("better", "level", "worse")
        said = [" / ".join(f"{found[kind]}" for kind in kinds) for found in counted.values()]
        rows.append([" / ".join(kinds), *said])
        return Table(title, note, ["metric", *columns], rows)


def compare_with_earlier(findings: Findings, path: Path, name: str) -> Findings:
    """Add tables of paired differences: to dearer maps of ours before, to rivals by their price."""
    parts = [part for part in findings.parts if isinstance(part, Compared)]
    if len(parts) != 1:
        raise InputError(f"{name} has no single table of maps, so --ours cannot be compared")
    (part,) = parts
    pairs, count = _pair(part, path, name)
    methods = next(iter(pairs.then.values()))
    ours = [label for label in part.scores.methods if label in methods and label in part.ours]
    rivals = [label for label in methods if not label.startswith("SEA")]
    price = {k: float(v.mean()) for k, v in pairs.then.get("evaluations", {}).items()}
    columns = {f"{new}, {old} before": (new, old) for new, old in pairwise(ours)}
    columns |= {f"{label}, itself before": (label, label) for label in ours}
    tables = [
        pairs.tabulate(
            "A quarter of the questions",
            "Each budget beside the next larger one before, and beside itself. "
            f"{NOTE.format(n=count, name=path.name)}",
            list(columns),
            lambda metric, column: pairs.compare(metric, *columns[column]),
        )
    ]
    if price:

        def beside_as_dear(metric: str, label: str) -> str:
            able = [one for one in rivals if price[one] <= price[label]]
            return pairs.compare_best(metric, label, able)

        said = "Each budget beside the best of all other maps that cost no more, which is named."
        tables.append(pairs.tabulate("First at its own price?", said, ours, beside_as_dear))
    tables.append(
        pairs.tabulate(
            "First at any price?",
            "Each budget beside the best of all other maps, which is named.",
            ours,
            lambda metric, label: pairs.compare_best(metric, label, rivals),
        )
    )
    return replace(findings, parts=[replace(part, ours=()), *tables])


def _pair(part: Compared, path: Path, name: str) -> tuple[Pairs, int]:
    """The scores of the inputs that both have, and how many these are."""
    names, methods, before = read_scores(path, name)
    here = [name for name, _ in part.names]
    shared = [one for one in here if one in names]
    if not shared:
        raise InputError(f"none of the {len(here)} inputs is in {path}: was its seed another?")
    if GAIN not in before and (gain := compute_gain(before)) is not None:
        before[GAIN] = gain

    def cut(
        values: Mapping[str, Tensor], rows: list[int], labels: Sequence[str]
    ) -> dict[str, dict[str, Tensor]]:
        return {
            key: dict(zip(labels, table[rows].unbind(1), strict=True))
            for key, table in values.items()
        }

    now = cut(part.scores.values, [here.index(one) for one in shared], part.scores.methods)
    then = cut(before, [names.index(one) for one in shared], methods)
    return Pairs(part.scores.metrics, now, then), len(shared)
