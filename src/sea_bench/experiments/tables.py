"""A result as files: a page of tables in Markdown, and every number in a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sea_bench.experiments.experiment import Experiment
from sea_bench.experiments.inputs import Inputs
from sea_nn.explanation.atomic import write_atomically
from sea_nn.metrics import Estimate, Metric, Scores

INPUTS = "- inputs: "


def write_csv(experiment: Experiment, inputs: Inputs, scores: Scores, folder: Path) -> Path:
    """Write one row for each input and method, one column for each metric."""
    path = folder / f"{experiment.name}.csv"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["input", "name", "class", "method", *scores.metrics])
    for row, item in enumerate(inputs.items):
        for column, method in enumerate(scores.methods):
            values = [f"{float(scores.values[m][row, column]):.5g}" for m in scores.metrics]
            writer.writerow([row, item.name, inputs.name_class(row), method, *values])
    with write_atomically(path) as file:
        file.write(text.getvalue().encode())
    return path


def write_markdown(
    experiment: Experiment,
    inputs: Inputs,
    scores: Scores,
    figures: Sequence[Path],
    facts: Mapping[str, Any],
    complete: bool,
    folder: Path,
) -> Path:
    """Write the page: what was asked, all means at a glance, each metric in detail, how it ran."""
    name, n = experiment.name, facts["inputs"]
    lines = [f"# {experiment.title}", "", experiment.question, ""]
    if not complete:
        lines += [
            f"**A trial with {n} of {experiment.n_inputs} inputs: too few to conclude anything.**",
            "",
        ]
    lines += [_show(path, name) for path in figures]
    lines += ["", "## All metrics", "", _glance(scores), ""]
    lines += [
        "Mean over inputs, ± half of the 95 % bootstrap interval; ↓ lower is better, ↑ higher is "
        "better; bold: the best mean.",
        "",
    ]
    for metric in scores.metrics.values():
        lines += _detail(experiment, scores, metric)
    lines += ["## How this was made", "", "```", str(facts["command"]), "```", ""]
    lines += [f"- {line}" for line in inputs.facts]
    which = "those classified right" if experiment.correct else "right and wrong ones alike"
    lines.append(f"{INPUTS}{n}, {which}, in a random order; seed {facts['seed']}")
    if complete and n < experiment.n_inputs:
        lines.append(
            f"- that is all the test split has of them, fewer than {experiment.n_inputs}: the "
            "intervals are wide"
        )
    if experiment.classes:
        lines.append(f"- classes: {', '.join(experiment.classes)}")
    lines.append(f"- hardware: {facts['hardware']}")
    versions = ", ".join(f"{package} {number}" for package, number in facts["versions"].items())
    lines.append(f"- versions: {versions}; checksum of the classifier's weights {facts['weights']}")
    lines += [f"- {note}" for note in experiment.notes]
    if experiment.paper_data:
        lines.append(f"- the paper measured on: {experiment.paper_data}")
    said = [(m, note) for m, notes in scores.notes.items() for note in _once(notes)]
    lines += [f"- {m}: {note}" for m, note in said]
    lines += [f"- every number: [{name}.csv]({name}.csv)", ""]
    path = folder / f"{name}.md"
    with write_atomically(path) as file:
        file.write("\n".join(lines).encode())
    return path


def count_published(folder: str | Path, name: str) -> int | None:
    """Return how many inputs the result in a folder has, or None if there is none."""
    try:
        text = (Path(folder) / f"{name}.md").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        if line.startswith(INPUTS):
            return int(line[len(INPUTS) :].partition(",")[0])
    return None


def _glance(scores: Scores) -> str:
    """All means in one table, each metric with digits that suit its size."""
    head = ["method", *(f"{name} {metric.arrow}" for name, metric in scores.metrics.items())]
    cells = [[method] for method in scores.methods]
    for name in scores.metrics:
        estimate = scores.estimate(name)
        best = scores.best(name) if estimate.n_inputs else None
        for column, row in enumerate(cells):
            mean = float(estimate.mean[column])
            half = float(estimate.high[column] - estimate.low[column]) / 2
            digits = _digits(mean)
            text = f"{mean:.{digits}f} ± {half:.{digits}f}"
            row.append(f"**{text}**" if row[0] == best else text)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _digits(value: float) -> int:
    """Decimals that leave a number three significant digits at least."""
    if not math.isfinite(value) or not value:
        return 3
    return 0 if abs(value) >= 1000 else max(1 if abs(value) >= 100 else 3, 2 - _power(value))


def _power(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _detail(experiment: Experiment, scores: Scores, metric: Metric) -> list[str]:
    name = metric.name
    mean, apart = scores.estimate(name), scores.difference(name, experiment.against)
    paper = experiment.paper.get(name, {})
    better = "lower" if metric.direction == "lower" else "higher"
    head = ["method", f"mean {metric.arrow}", f"minus {experiment.against}", "paper"]
    head = head if paper else head[:-1]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    order = sorted(range(len(scores.methods)), key=lambda k: _rank(mean, metric, k))
    for column in order:
        method, digits = scores.methods[column], _digits(float(mean.mean[column]))
        cells = [method, _interval(mean, column, digits)]
        cells.append("" if method == experiment.against else _interval(apart, column, digits, "+"))
        if paper:
            cells.append(f"{paper[method]:g}" if method in paper else "")
        rows.append(cells)
    lines = [f"## {name} {metric.arrow}", "", f"{metric.measures} A {better} value is better.", ""]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", _verdict(experiment.against, scores.methods, metric, apart), ""]
    if apart.n_inputs < len(scores):
        lines += [f"On the {apart.n_inputs} inputs where every method has a value.", ""]
    return lines


def _verdict(against: str, methods: Sequence[str], metric: Metric, apart: Estimate) -> str:
    """Say which methods are better, which worse, and which cannot be told apart."""
    sign = 1 if metric.direction == "higher" else -1
    groups: dict[str, list[str]] = {"better": [], "worse": [], "even": []}
    for column, method in enumerate(methods):
        if method == against:
            continue
        low, high = sorted((sign * float(apart.low[column]), sign * float(apart.high[column])))
        groups["better" if low > 0 else "worse" if high < 0 else "even"].append(method)
    parts = [
        f"better than {against}: {' · '.join(groups['better']) or 'none'}",
        f"worse: {' · '.join(groups['worse']) or 'none'}",
    ]
    if groups["even"]:
        parts.append(f"not told apart: {' · '.join(groups['even'])}")
    text = "; ".join(parts)
    return f"By the 95 % interval of the paired difference, {text}."


def _rank(mean: Estimate, metric: Metric, column: int) -> float:
    value = float(mean.mean[column])
    return value if metric.direction == "lower" else -value


def _interval(estimate: Estimate, column: int, digits: int, sign: str = "") -> str:
    middle, low, high = (
        float(part[column]) for part in (estimate.mean, estimate.low, estimate.high)
    )
    return f"{middle:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def _once(notes: Sequence[str]) -> list[str]:
    """Notes without the counts of single inputs, which say nothing here."""
    return [note for note in dict.fromkeys(notes) if " of 1 inputs" not in note]


def _show(path: Path, name: str) -> str:
    """A figure, or for one that shows pictures of a data set, where it is when it has been drawn.

    Such figures are not published: the sets' terms do not allow it.
    """
    if path.suffix == ".jpg":
        return f"The command below also draws `{path.name}`: pictures of the set with their maps."
    return f"![{_alt(path, name)}]({path.name})"


def _alt(path: Path, name: str) -> str:
    return path.stem.removeprefix(f"{name}_").replace("_", " ")
