"""What ``sea explain`` says in the end: tables for people, one document for machines."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from sea_nn.cli.batches import Finished, Job, Outcome
from sea_nn.cli.pictures import EXPLANATION, MAP, STRIP, TOP
from sea_nn.cli.terminal import make_table, out, say, show, translate
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.selection import find_input
from sea_nn.members.checks import Check

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
N_LISTED = 20  # features that the JSON document lists


def print_outcome(finished: Sequence[Finished], job: Job, report: Path | None) -> None:
    """Print what was found, how far members agree, what it cost, what to mind, where to look."""
    explanations = [done.explanation for done in finished]
    out.print(_tabulate_inputs(finished, job))
    out.print(_tabulate_members(explanations))
    notes = [check for check in collect_checks(finished) if check.level != "ok"]
    if notes:
        out.print(tabulate_checks(notes))
    for done, name in zip(finished, _shorten(finished), strict=True):
        if done.note:
            say(f"{name}: {done.note}", "yellow")
    _print_places(finished, job, report)


def label_for_report(finished: Sequence[Finished]) -> list[Explanation]:
    """The explanations with their files' names beside the classes'; reports have no other place."""
    return [
        replace(done.explanation, labels=(f"{done.explanation.name(0)} ({name})",))
        for done, name in zip(finished, _shorten(finished), strict=True)
    ]


def _shorten(finished: Sequence[Finished]) -> list[str]:
    """The pictures' names without their folders, where that tells them apart."""
    names = [done.picture.name for done in finished]
    short = [Path(name).name for name in names]
    count = Counter(short)
    return [s if count[s] == 1 else n for s, n in zip(short, names, strict=True)]


def collect_checks(finished: Sequence[Finished]) -> list[Check]:
    """Every kind of check once, as it was first met; how many inputs it concerns is added."""
    first: dict[tuple[str, str, str], Check] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for done, name in zip(finished, _shorten(finished), strict=True):
        for check in name_inputs(done.explanation.checks, [name]):
            kind = (check.level, check.subject, check.advice)
            first.setdefault(kind, check)
            count[kind] += 1
    names, total = set(_shorten(finished)), len(finished)
    return [
        check
        if total == 1 or check.subject in names
        else replace(check, message=f"{check.message} ({count[kind]} of {total} inputs)")
        for kind, check in first.items()
    ]


def name_inputs(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """Checks with the pictures' names for "input 0" and so on."""
    places = [find_input(check) for check in checks]
    return [
        check if i is None else replace(check, subject=names[i])
        for check, i in zip(checks, places, strict=True)
    ]


def tabulate_checks(checks: Sequence[Check]) -> Table:
    """Checks with what to do about them."""
    table = make_table("Checks", "level", "of", "what was seen", "advice")
    for check in map(_reword, checks):
        level = Text(check.level, COLOURS[check.level])
        table.add_row(level, check.subject, check.message, check.advice)
    return table


def _reword(check: Check) -> Check:
    return replace(check, message=translate(check.message), advice=translate(check.advice))


def describe(outcome: Outcome, job: Job, report: Path | None) -> dict[str, Any]:
    """The outcome as plain values for JSON; what is not a number is null."""
    explanations = [done.explanation for done in outcome.finished]
    names, matrix = average_agreement(explanations)
    return {
        "model": job.loaded.name,
        "methods": names[1:],
        "options": {
            entry.label: {name: _plain(value) for name, value in entry.options.items()}
            for entry in job.sea.entries
        },
        "config": job.sea.config.to_dict(),
        "seed": job.sea.seed,
        "output": show(job.out),
        "report": None if report is None else show(report),
        "inputs": [_describe_input(done, job) for done in outcome.finished],
        "agreement": {"names": names, "spearman": matrix},
        "seconds": _total(explanations, "seconds"),
        "evaluations": _total(explanations, "evaluations"),
        "checks": [asdict(_reword(check)) for check in collect_checks(outcome.finished)],
        "failed": [{"input": p.name, "error": translate(why)} for p, why in outcome.failed],
        "interrupted": outcome.interrupted,
    }


def average_agreement(
    explanations: Sequence[Explanation],
) -> tuple[list[str], list[list[float | None]]]:
    """Names (SEA first) and their mean rank correlation over all inputs where both have a map."""
    sums: dict[tuple[str, str], list[float]] = {}
    for e in explanations:
        names = ("SEA", *e.methods)
        rows = e.agreement_with_sea[0].tolist()
        for a, row in zip(names, rows, strict=True):
            for b, value in zip(names, row, strict=True):
                sums.setdefault((a, b), []).extend([] if math.isnan(value) else [value])
    every = list(dict.fromkeys(a for a, _ in sums))
    return every, [[_mean(sums.get((a, b), [])) for b in every] for a in every]


def _describe_input(done: Finished, job: Job) -> dict[str, Any]:
    e = done.explanation
    count = N_LISTED if job.top is None else e.count(job.top)
    columns = e.feature_shape[-1]
    files = {"map": MAP, "strip": STRIP, "top": TOP, "explanation": EXPLANATION}
    return {
        "input": done.picture.name,
        "files": {kind: show(done.folder / name) for kind, name in files.items()},
        "predicted": [
            {"class": index, "label": _label(e, index, job), e.output.unit: p}
            for index, p in done.guesses
        ],
        "target": _name_class(e, int(e.target[0]), job)
        | {
            e.output.unit: float(e.score[0]),
        }
        | ({} if e.rival is None else {"not": _name_class(e, int(e.rival[0]), job)}),
        "output": e.output.kind,
        "feature_shape": list(e.feature_shape),
        "note": done.note,
        "agreement": _number(float(e.mean_agreement()[0])),
        "gains": describe_gains(e),
        "top": [
            {"row": f // columns, "column": f % columns, "gain": gain}
            for f, gain in zip(
                e.order[0, :count].tolist(), e.gains[0, :count].tolist(), strict=True
            )
        ],
    }


def describe_gains(e: Explanation) -> dict[str, Any]:
    """The sums of gains of one explanation: what speaks for the target, and what against it."""
    above, below = (float(side[0]) for side in e.sum_gains())
    worst = [e.name_feature(k) for k in e.rank_against(0, N_LISTED)]
    return {"unit": e.unit, "for": above, "against": below, "most_against": worst}


def _name_class(e: Explanation, index: int, job: Job) -> dict[str, Any]:
    return {"class": index, "label": _label(e, index, job)}


def _tabulate_inputs(finished: Sequence[Finished], job: Job) -> Table:
    n = finished[0].explanation.order.shape[1]
    heading = ["input", "predicted", "explained", "members agree"]
    if job.target is None:
        heading.remove("explained")
    table = make_table(f"{job.loaded.name}, {n:,} features", *heading)
    table.columns[-1].justify = "right"
    for done, name in zip(finished, _shorten(finished), strict=True):
        e = done.explanation
        (best, p), *others = done.guesses
        said = e.write_score(0) if e.output.kind == "value" else f"{p:.2f}"
        predicted = Text(f"{_label(e, best, job)} {said}", "bold")
        rest = [f"{job.loaded.label(index)} {p:.2f}" for index, p in others if p >= 0.005]
        if rest:
            predicted.append(f"\n{', '.join(rest)}", "not bold dim")
        explained = [] if job.target is None else [f"{e.name(0)} {e.write_score(0)}"]
        table.add_row(name, predicted, *explained, _write(float(e.mean_agreement()[0])))
    return table


def _label(e: Explanation, index: int, job: Job) -> str:
    """The name of an output: the model's own, or what it is."""
    named = e.rival is None and index == int(e.target[0])
    return e.name(0) if named else job.loaded.label(index)


def _tabulate_members(explanations: Sequence[Explanation]) -> Table:
    """How far the members agree (the lower triangle is enough) and what each took."""
    names, matrix = average_agreement(explanations)
    seconds, evaluations = _total(explanations, "seconds"), _total(explanations, "evaluations")
    over = f", mean of {len(explanations)} inputs" if len(explanations) > 1 else ""
    table = make_table(f"Agreement: Spearman's rank correlation{over}", "", "")
    table.padding = (0, 1, 0, 0)  # six members and their names fit into 80 columns
    table.columns[1].no_wrap = True
    for heading in (*map(str, range(len(names) - 1)), "passes", "seconds"):
        table.add_column(heading, justify="right")
    for k, name in enumerate(names):
        cells = [_write(matrix[k][j]) if j < k else "" for j in range(len(names) - 1)]
        spent = [f"{evaluations.get(name, 0):,}", f"{seconds.get(name, 0):.1f}"]
        if name == "SEA":
            spent = ["", f"{seconds.get('sea', 0):.1f}"]
        table.add_row(str(k), Text(name, "bold" if name == "SEA" else ""), *cells, *spent)
    table.add_section()
    if asked := evaluations.get("sea", 0):
        table.add_row("", "questions", *[""] * (len(names) - 1), f"{asked:,}", "")
    total = [f"{sum(evaluations.values()):,}", f"{seconds.get('total', 0):.1f}"]
    table.add_row("", "all", *[""] * (len(names) - 1), *total)
    return table


def _print_places(finished: Sequence[Finished], job: Job, report: Path | None) -> None:
    folders = [done.folder for done in finished]
    say(f"Look at {show(folders[0] / MAP)} (the map over the picture), {STRIP} and {TOP} there")
    if len(folders) > 1:
        say(f"and in the other folders of {show(job.out)}")
    if report is not None:
        say(f"Open {show(report)} in a browser to look closer")
    elif (job.out / "report.html").exists():
        say(f"{show(job.out / 'report.html')} is of an earlier run", "yellow")
    older = sorted(
        file.parent.name for file in job.out.glob(f"*/{EXPLANATION}") if file.parent not in folders
    )
    if older:
        names = ", ".join(map(show, older[:5])) + (", …" if len(older) > 5 else "")
        say(f"Of earlier runs, and not in this report: {names}", "yellow")


def _total(explanations: Sequence[Explanation], kind: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for e in explanations:
        for name, value in getattr(e.provenance, kind).items():
            totals[name] = totals.get(name, 0) + value
    return totals


def _plain(value: Any) -> Any:
    """A value that JSON knows, or its text."""
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _write(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2f}"
