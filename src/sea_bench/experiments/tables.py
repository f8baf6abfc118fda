"""A result as files: a page of tables in Markdown, and every number in a CSV file."""

import csv
import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sea_bench.experiments.experiment import Experiment
from sea_bench.experiments.inputs import Inputs
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.metrics import Metric, Scores

INPUTS = "- inputs: "
MADE = "## How this was made"
TEXT_WIDTH, TABLE_WIDTH = 120, 150
PRICES = ("evaluations", "seconds")  # what a map costs: no score to be best in


def write_csv(experiment: Experiment, inputs: Inputs, scores: Scores, folder: Path) -> Path:
    """Write one row for each input and method, one column for each metric.

    An input's name and class stand in the first of its rows alone.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["input", "name", "class", "method", *scores.metrics])
    for row, item in enumerate(inputs.items):
        about = [item.name, inputs.name_class(row)]
        for column, method in enumerate(scores.methods):
            values = [f"{float(scores.values[m][row, column]):.5g}" for m in scores.metrics]
            writer.writerow([row, *(about if column == 0 else ["", ""]), method, *values])
    return _write(folder / f"{experiment.name}.csv", text.getvalue())


def write_page(
    experiment: Experiment,
    scores: Scores,
    made: Sequence[str],
    figures: Sequence[Path],
    folder: Path,
    trial: bool = False,
) -> Path:
    """Write the page: what was asked, figures, all means, what the metrics say, how it was made.

    The last is by ``describe_making``; a trial has fewer inputs than a published result.
    """
    name = experiment.name
    lines = [f"# {experiment.title}", "", *wrap(experiment.question), ""]
    if trial:
        few = f"**A trial with {len(scores)} of {experiment.n_inputs} inputs: too few to conclude"
        lines += [f"{few} anything.**", ""]
    for path in figures:
        lines += [*_show(path, name), ""]
    for names in _choose_columns(scores):
        lines += [*_tabulate(experiment, scores, names), ""]
    lines += [*wrap(
        f"{_name_middle(scores)} over inputs ± half of its 95 % bootstrap interval. Bold: the "
        f"best. ▲ better, ▼ worse than {experiment.against} by the 95 % interval of the paired "
        "difference; without a mark: not told apart."
    ), ""]  # fmt: skip
    if experiment.ours:
        lines += [*_rank_ours(experiment, scores), ""]
    lines += [*_explain_metrics(scores), "", MADE, "", *made, ""]
    return _write(folder / f"{name}.md", "\n".join(lines))


def describe_making(
    experiment: Experiment, inputs: Inputs, scores: Scores, facts: Mapping[str, Any]
) -> list[str]:
    """Return the lines that say how a result was made."""
    n = len(scores)
    which = "those classified right" if experiment.correct else "right and wrong ones alike"
    said = [*(f"- {line}" for line in inputs.facts)]
    said.append(f"{INPUTS}{n}, {which}, in a random order; seed {facts['seed']}")
    if not facts["trial"] and n < experiment.n_inputs:
        said.append(
            f"- that is all the test split has of them, fewer than {experiment.n_inputs}: the "
            "intervals are wide"
        )
    if experiment.classes:
        said.append(f"- classes: {', '.join(experiment.classes)}")
    said.append(f"- made on {facts['machine']}")
    said += [f"- {note}" for note in experiment.notes]
    if experiment.paper_data:
        said.append(f"- the paper measured on: {experiment.paper_data}")
    notes = [(m, note) for m, notes in scores.notes.items() for note in dict.fromkeys(notes)]
    # Counts of single inputs say nothing here.
    said += [f"- {m}: {note}" for m, note in notes if " of 1 inputs" not in note]
    return [f"`{facts['command']}`", "", *(line for one in said for line in wrap(one))]


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


def wrap(text: str) -> list[str]:
    """Break a paragraph or a bullet point into lines that can be read as plain text."""
    indent = "  " if text.startswith("- ") else ""
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent=indent, **options)  # type: ignore[arg-type]


def _choose_columns(scores: Scores) -> Iterator[list[str]]:
    """Yield metrics that fit into one table beside the names of the methods."""
    room = TABLE_WIDTH - max(len(method) for method in scores.methods) - 4
    chosen: list[str] = []
    for name in scores.metrics:
        if chosen and sum(max(len(one) + 5, 26) for one in (*chosen, name)) > room:
            yield chosen
            chosen = []
        chosen.append(name)
    yield chosen


def _tabulate(experiment: Experiment, scores: Scores, names: Sequence[str]) -> list[str]:
    """Means of some metrics with half of their interval, marked where they differ clearly."""
    columns = [["method", "---", *scores.methods]]
    for name in names:
        metric, paper = scores.metrics[name], experiment.paper.get(name, {})
        estimate, apart = scores.estimate(name), scores.difference(name, experiment.against)
        best = _find_best(scores, name, experiment.aside)
        column = [f"{name} {metric.arrow}", "---:"]
        for k, method in enumerate(scores.methods):
            mean, half = float(estimate.mean[k]), float(estimate.high[k] - estimate.low[k]) / 2
            digits = _digits(mean)
            if name in PRICES:
                column.append(f"{mean:.3g}" if mean < 1000 else f"{mean:.0f}")
                continue
            text = f"{mean:.{digits}f} ± {half:.{digits}f}"
            text = f"**{text}**" if method == best else text
            mark = _compare(metric, float(apart.low[k]), float(apart.high[k]))
            column.append(text if method == experiment.against else text + mark)
        columns.append(column)
        if paper:
            given = (f"{paper[method]:g}" if method in paper else "" for method in scores.methods)
            columns.append(["paper", "---:", *given])
    return ["| " + " | ".join(row) + " |" for row in zip(*columns, strict=True)]


def _name_middle(scores: Scores) -> str:
    medians = [name for name, metric in scores.metrics.items() if metric.middle == "median"]
    return f"Mean ({_join(medians)}: median)" if medians else "Mean"


def _find_best(scores: Scores, name: str, without: Sequence[str]) -> str | None:
    """The method with the best mean, some of them aside; None where there is no value."""
    try:
        return scores.best(name, without)
    except InputError:
        return None


def _rank_ours(experiment: Experiment, scores: Scores) -> list[str]:
    """How far each of our maps is from the best of all others, a table of paired differences."""
    lines = [
        *wrap(
            "Against the best of the others in each column, "
            f"which is named: paired difference [95 % interval]. {', '.join(experiment.ours)} are "
            "not compared with each other. **First**: clearly better; *behind*: clearly worse; "
            "plain: not told apart."
        ),
        "",
        "| column | best of the others | " + " | ".join(experiment.ours) + " |",
        "|---|---|" + "---|" * len(experiment.ours),
    ]
    for name, metric in scores.metrics.items():
        if name in PRICES:
            continue
        best = _find_best(scores, name, (*experiment.ours, *experiment.aside))
        if best is None:
            continue
        value, apart = scores.mean(name)[best], scores.difference(name, best)
        cells = []
        for label in experiment.ours:
            k = scores.methods.index(label)
            low, high = float(apart.low[k]), float(apart.high[k])
            sign = f"{_sign(float(apart.mean[k]))} [{_sign(low)}, {_sign(high)}]"
            mark = _compare(metric, low, high)
            cells.append(f"**{sign}**" if "▲" in mark else f"*{sign}*" if mark else sign)
        found = f"{best} {value:.{_digits(value)}f}"
        short = name.partition(":SEA")[0]
        lines.append(f"| {short} {metric.arrow} | {found} | " + " | ".join(cells) + " |")
    return lines


def _sign(value: float) -> str:
    """A difference, short enough that a row of four fits into a line.

    >>> _sign(-0.0301), _sign(12.801)
    ('-.030', '+12.8')
    """
    decimals = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1
    return re.sub(r"^([+-])0\.", r"\1.", f"{value:+.{decimals}f}")


def _compare(metric: Metric, low: float, high: float) -> str:
    """Mark a difference to the method that all are compared with, if its interval leaves out 0."""
    if low <= 0 <= high or math.isnan(low):
        return ""
    return " ▲" if (low > 0) == (metric.direction == "higher") else " ▼"


def _digits(value: float) -> int:
    """Decimals that leave a number three significant digits at least."""
    if not math.isfinite(value) or not value:
        return 3
    power = math.floor(math.log10(abs(value)))
    return 0 if abs(value) >= 1000 else max(1 if abs(value) >= 100 else 3, 2 - power)


def _explain_metrics(scores: Scores) -> list[str]:
    """Say what each metric measures, those that measure alike together."""
    alike: dict[str, list[str]] = {}
    for name, metric in scores.metrics.items():
        alike.setdefault(f"{metric.arrow} {metric.measures}", []).append(name)
    lines = [line for said, names in alike.items() for line in wrap(f"- {_join(names)} {said}")]
    for name in scores.metrics:
        n_inputs = scores.difference(name, scores.methods[0]).n_inputs
        if n_inputs < len(scores):
            lines.append(f"- {name}: on the {n_inputs} inputs where every method has a value.")
    return lines


def _join(names: Sequence[str]) -> str:
    """Names of metrics with what they share said once.

    >>> _join(["deletion:mean", "deletion:blur", "gini"])
    'deletion:mean, blur; gini'
    """
    heads: dict[str, list[str]] = {}
    for name in names:
        head, _, rest = name.partition(":")
        heads.setdefault(head, []).append(rest)
    parts = (f"{head}:{', '.join(rest)}" if rest[0] else head for head, rest in heads.items())
    return "; ".join(parts)


def _show(path: Path, name: str) -> list[str]:
    """A figure, or for one that shows pictures of a data set, where it is when it has been drawn.

    Such figures are not published: the sets' terms do not allow it.
    """
    if path.suffix == ".jpg":
        return wrap(f"The command below also draws `{path.name}`: pictures of the set and maps.")
    return [f"![{path.stem.removeprefix(f'{name}_').replace('_', ' ')}]({path.name})"]


def _write(path: Path, text: str) -> Path:
    with write_atomically(path) as file:
        file.write(text.encode())
    return path
