"""A result as a page of tables in Markdown."""

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from sea_bench.experiments.experiment import PRICES, Compared, Experiment, Findings, Run, Table
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.metrics import Estimate, Metric, Scores, bootstrap_mean

INPUTS = "- inputs: "
MADE = "## How this was made"
TEXT_WIDTH, TABLE_WIDTH = 120, 150


def write_page(
    experiment: Experiment,
    findings: Findings,
    run: Run,
    folder: Path,
    count: int,
    command: str,
    trial: bool = False,
) -> Path:
    """Write the page: what was asked, all tables, what metrics say, how it was made.

    Args:
        experiment: what was asked.
        findings: what was found.
        run: what measured it.
        folder: of the page.
        count: of how many inputs.
        command: that runs it again.
        trial: whether it has fewer inputs than a published result.
    """
    lines, said = [f"# {experiment.title}", "", *wrap(experiment.question), ""], ""
    if trial:
        few = f"A trial with fewer inputs than the {experiment.n_inputs} of a published result"
        lines += [f"**{few}: too few to conclude anything.**", ""]
    for part in findings.parts:
        if part.title:
            lines += [f"## {part.title}", ""]
        if part.note:
            lines += [*wrap(part.note), ""]
        if isinstance(part, Table):
            lines += [*tabulate(part.header, part.rows), ""]
            continue
        for names in _choose_columns(part.scores):
            lines += [*_tabulate_scores(part, names), ""]
        if part.ours:
            lines += [*_rank_ours(part), ""]
        if (about := _explain_metrics(part)) != said:  # once for tables of the same metrics
            lines += [*about.splitlines(), ""]
            said = about
    lines += [MADE, "", f"`{command}`", "", *wrap(f"{INPUTS}{count}, seed {run.seed}")]
    few = f"that is all the data have of them, fewer than {experiment.n_inputs}: the intervals "
    notes = [f"{few}are wide"] if not trial and count < experiment.n_inputs else []
    notes.append(f"made on {', and '.join(run.machines) or run.here}; version {run.version}")
    notes += findings.notes
    for part in findings.parts:
        for metric, some in part.scores.notes.items() if isinstance(part, Compared) else ():
            # Counts of single inputs say nothing here.
            own = (note for note in dict.fromkeys(some) if " of 1 inputs" not in note)
            notes += [f"{metric}: {note}" for note in own]
    lines += [line for note in notes for line in wrap(f"- {note}")]
    path = folder / f"{experiment.name}.md"
    with write_atomically(path) as file:
        file.write("\n".join([*lines, "", ""]).encode())
    return path


def tabulate(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; all columns but the first are right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def write_interval(values: Tensor) -> str:
    """The mean of values [N] ± half of its 95 % bootstrap interval."""
    found = bootstrap_mean(values.double()[:, None])
    return f"{float(found.mean[0]):.3f} ± {float(found.high[0] - found.low[0]) / 2:.3f}"


def count_published(folder: str | Path, name: str) -> int | None:
    """Return how many inputs the result in a folder has, or None if there is none."""
    page = Path(folder) / f"{name}.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    found = re.search(f"^{INPUTS}([0-9]+)", text, re.MULTILINE)
    return None if found is None else int(found[1])


def wrap(text: str) -> list[str]:
    """Break a paragraph or a bullet point into lines that can be read as plain text."""
    indent = "  " if text.startswith("- ") else ""
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent=indent, **whole)


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


def _tabulate_scores(part: Compared, names: Sequence[str]) -> list[str]:
    """Means of some metrics with half of their interval, marked where they differ clearly."""
    scores = part.scores
    columns = [["method", "---", *scores.methods]]
    for name in names:
        metric, paper = scores.metrics[name], part.paper.get(name, {})
        estimate, apart = scores.estimate(name), scores.difference(name, part.against)
        best = _find_best(scores, name, part.aside)
        column = [f"{name} {metric.arrow}", "---:"]
        for k, method in enumerate(scores.methods):
            mean, half = float(estimate.mean[k]), float(estimate.high[k] - estimate.low[k]) / 2
            digits = _digits(mean)
            text = f"{mean:.{digits}f} ± {half:.{digits}f}"
            text = f"**{text}**" if method == best else text
            if name in PRICES:
                text = f"{mean:.3g}" if mean < 1000 else f"{mean:.0f}"
            elif math.isnan(mean):
                text = "–"
            elif method != part.against:
                text += _compare(metric, float(apart.low[k]), float(apart.high[k]))
            column.append(text)
        columns.append(column)
        if paper:
            given = (f"{paper[method]:g}" if method in paper else "" for method in scores.methods)
            columns.append(["paper", "---:", *given])
    return ["| " + " | ".join(row) + " |" for row in zip(*columns, strict=True)]


def _find_best(scores: Scores, name: str, without: Sequence[str]) -> str | None:
    """The method with the best mean, some of them aside; None where there is no value."""
    with suppress(InputError):
        return scores.best(name, without)
    return None


def _rank_ours(part: Compared) -> list[str]:
    """How far each of our maps is from the best of all others, a table of paired differences."""
    scores, ours, rows = part.scores, part.ours, []
    for name, metric in scores.metrics.items():
        best = _find_best(scores, name, (*ours, *part.aside))
        if name in PRICES or best is None:
            continue
        value, apart = scores.mean(name)[best], scores.difference(name, best)
        cells = [write_difference(metric, apart, scores.methods.index(label)) for label in ours]
        short = name.partition(":SEA")[0]
        rows.append([f"{short} {metric.arrow}", f"{best} {value:.{_digits(value)}f}", *cells])
    said = (
        "Against the best of the others in each column, which is named: paired difference [95 % "
        f"interval]. {', '.join(ours)} are not compared with each other. **First**: clearly better;"
        " *behind*: clearly worse; plain: not told apart."
    )
    return [*wrap(said), "", *tabulate(["column", "best of the others", *ours], rows)]


def write_difference(metric: Metric, apart: Estimate, k: int, least: float = 0.0) -> str:
    """A paired difference with its interval: bold if clearly better, slanting if clearly worse."""
    mean, low, high = (float(values[k]) for values in (apart.mean, apart.low, apart.high))
    text = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
    mark = _compare(metric, low, high) if max(abs(low), abs(high)) >= least else ""
    return f"**{text}**" if "▲" in mark else f"*{text}*" if mark else text


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
    return 0 if abs(value) >= 1000 else min(5, max(1 if abs(value) >= 100 else 3, 2 - power))


def _explain_metrics(part: Compared) -> str:
    """Say what cells and metrics mean, metrics that measure alike together."""
    scores, alike = part.scores, dict[str, list[str]]()
    medians = [name for name, metric in scores.metrics.items() if metric.middle == "median"]
    lines = wrap(
        f"{f'Mean ({_join(medians)}: median)' if medians else 'Mean'} over inputs ± half of its "
        "95 % bootstrap interval. Bold: the best. ▲ better, ▼ worse than "
        f"{part.against} by the 95 % interval of the paired difference; without a mark: not told "
        "apart."
    )
    for name, metric in scores.metrics.items():
        alike.setdefault(f"{metric.arrow} {metric.measures}", []).append(name)
    lines.append("")
    for said, names in alike.items():
        lines += wrap(f"- {_join(names)} {said}")
    for name in scores.metrics:
        n_inputs = scores.difference(name, scores.methods[0]).n_inputs
        if 0 < n_inputs < len(scores):
            lines.append(f"- {name}: on the {n_inputs} inputs where every method has a value.")
    return "\n".join(lines)


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
