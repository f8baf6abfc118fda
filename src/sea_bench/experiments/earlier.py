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
from sea_nn.errors import InputError
from sea_nn.metrics import Metric, bootstrap_difference

ROUNDED = 1e-4  # the archive has five digits of a score
BETTER, WORSE, LEVEL = "better", "worse", "level"
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

    def compare(self, name: str, label: str, other: str) -> tuple[str, str]:
        """How far a map of today is from one of before: in words, and with its interval."""
        own, before, metric = self.now[name][label], self.then[name][other], self.metrics[name]
        apart = bootstrap_difference(torch.stack([before, own], 1), 0, middle=metric.middle)
        mean, low, high = (float(e[1]) for e in (apart.mean, apart.low, apart.high))
        text = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        if low <= 0 <= high or max(abs(low), abs(high)) < ROUNDED:
            return LEVEL, text
        good = (low > 0) == (metric.direction == "higher")
        return (BETTER, f"**{text}**") if good else (WORSE, f"*{text}*")

    def find_best(self, name: str, rivals: Sequence[str]) -> str:
        """The one of some maps of before with the best mean."""
        sign = 1 if self.metrics[name].direction == "higher" else -1
        return max(rivals, key=lambda one: sign * float(self.then[name][one].mean()))


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
    note = NOTE.format(n=count, name=path.name)

    def beside_best(priced: bool) -> Callable[[str, str], tuple[str, str]]:
        def compare(metric: str, label: str) -> tuple[str, str]:
            able = [one for one in rivals if not priced or price[one] <= price[label]]
            best = pairs.find_best(metric, able)
            verdict, text = pairs.compare(metric, label, best)
            return verdict, f"{best} {float(pairs.then[metric][best].mean()):.3f}: {text}"

        return compare

    columns = {f"{new}, {old} before": (new, old) for new, old in pairwise(ours)}
    columns |= {f"{label}, itself before": (label, label) for label in ours}
    tables = [
        _tabulate(
            "A quarter of the questions",
            f"Each budget beside the next larger one before, and beside itself. {note}",
            pairs,
            columns,
            lambda metric, column: pairs.compare(metric, *columns[column]),
        )
    ]
    if price:
        said = "Each budget beside the best of all other maps that cost no more, which is named."
        own = beside_best(priced=True)
        tables.append(_tabulate("First at its own price?", said, pairs, ours, own))
    said = "Each budget beside the best of all other maps, which is named."
    tables.append(_tabulate("First at any price?", said, pairs, ours, beside_best(priced=False)))
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


def _tabulate(
    title: str,
    note: str,
    pairs: Pairs,
    columns: Sequence[str] | Mapping[str, object],
    compare: Callable[[str, str], tuple[str, str]],
) -> Table:
    """A row for each metric that both have; the last counts what the columns are."""
    counted, rows = {column: Counter[str]() for column in columns}, []
    for name, metric in pairs.metrics.items():
        if name in PRICES or name not in pairs.then:
            continue
        cells = []
        for column in columns:
            verdict, text = compare(name, column)
            counted[column][verdict] += name != GAIN
            cells.append(text)
        rows.append([f"{name} {metric.arrow}", *cells])
    said = [" / ".join(f"{c[v]}" for v in (BETTER, LEVEL, WORSE)) for c in counted.values()]
    rows.append(["better / level / worse", *said])
    return Table(title, note, ["metric", *columns], rows)
