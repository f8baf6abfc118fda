"""What ``sea explain`` says in the end: tables for people, one document for machines."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from sea_nn.cli.inputs import EXPLANATION, REPORT
from sea_nn.cli.terminal import make_table, out, say, show, translate
from sea_nn.cli.work import Finished, Outcome, Subject
from sea_nn.explanation.explanation import Explanation
from sea_nn.members.checks import Check
from sea_nn.show.viewer import write_report

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
N_LISTED = 20  # features that the JSON document lists


def print_outcome(finished: Sequence[Finished], subject: Subject, report: Path | None) -> None:
    """Print what was found, how far members agree, what it cost, what to mind, where to look."""
    explanations = [done.explanation for done in finished]
    out.print(_tabulate_inputs(finished, subject))
    for e in explanations:
        if e.texts is not None:
            from sea_nn.show.words import print_words

            against = None if e.against is None else e.against[0]
            out.print(print_words(e.texts[0], e.attribution[0], against))
    say(_describe_costs(explanations))
    notes = [check for check in collect_checks(finished) if check.level != "ok"]
    if notes:
        out.print(tabulate_checks(notes))
    for done, name in zip(finished, _shorten(finished), strict=True):
        if done.note:
            say(f"{name}: {done.note}", "yellow")
    _print_places(finished, subject, report)


def write_page(finished: Sequence[Finished], path: Path, title: str) -> Path:
    """The report, with the inputs' names beside the classes'; it has no other place for them."""
    labelled = [
        replace(done.explanation, labels=(f"{done.explanation.name(0)} ({name})",))
        for done, name in zip(finished, _shorten(finished), strict=True)
    ]
    return write_report(labelled, path, title)


def _shorten(finished: Sequence[Finished]) -> list[str]:
    """The inputs' names without their folders, where that tells them apart."""
    names = [done.input.name for done in finished]
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
    """Checks with the inputs' names for "input 0" and so on."""
    return [
        check if check.input is None else replace(check, subject=names[check.input])
        for check in checks
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


def describe(outcome: Outcome, subject: Subject, report: Path | None) -> dict[str, Any]:
    """The outcome as plain values for JSON; what is not a number is null."""
    explanations = [done.explanation for done in outcome.finished]
    made = explanations[0].provenance if explanations else None
    return {
        "model": subject.name,
        "methods": list(dict.fromkeys(name for e in explanations for name in e.methods)),
        "options": {} if made is None else dict(made.members),
        "config": {} if made is None else dict(made.config),
        "seed": subject.o.seed,
        "output": show(subject.out),
        "report": None if report is None else show(report),
        "inputs": [_describe_input(done, subject) for done in outcome.finished],
        "seconds": _total(explanations, "seconds"),
        "evaluations": _total(explanations, "evaluations"),
        "checks": [asdict(_reword(check)) for check in collect_checks(outcome.finished)],
        "failed": [{"input": one.name, "error": translate(why)} for one, why in outcome.failed],
        "interrupted": outcome.interrupted,
    }


def _describe_input(done: Finished, subject: Subject) -> dict[str, Any]:
    e, top = done.explanation, subject.o.n_top
    count = N_LISTED if top is None else e.count(top)
    listed = zip(e.order[0, :count].tolist(), e.gains[0, :count].tolist(), strict=True)
    above, below = (float(side[0]) for side in e.sum_gains())
    target = _name_class(e, int(e.target[0]), subject) | {e.output.unit: float(e.score[0])}
    if e.rival is not None:
        target["not"] = _name_class(e, int(e.rival[0]), subject)
    return {
        "input": done.input.name,
        **({} if e.texts is None else {"text": "".join(e.texts[0])}),
        "files": {
            Path(name).stem: show(done.folder / name) for name in (*subject.files, EXPLANATION)
        },
        "predicted": [
            _name_class(e, index, subject) | {e.output.unit: p} for index, p in done.guesses
        ],
        "target": target,
        "output": e.output.kind,
        "feature_shape": list(e.feature_shape),
        "note": done.note,
        "agreement": _number(float(e.mean_agreement()[0])),
        "gains": {
            "unit": e.unit,
            "for": above,
            "against": below,
            "most_against": [e.name_feature(k) for k in e.rank_against(0, N_LISTED)],
        },
        "top": [{**_place(e, k), "gain": gain} for k, gain in listed],
    }


def _place(e: Explanation, k: int) -> dict[str, Any]:
    """Where a feature is: a row and a column in pictures, else its name."""
    if len(e.feature_shape) != 2 or e.view == "lines":
        return {"feature": e.name_feature(k)}
    columns = e.feature_shape[1]
    return {"row": k // columns, "column": k % columns}


def _name_class(e: Explanation, index: int, subject: Subject) -> dict[str, Any]:
    return {"class": index, "label": _label(e, index, subject)}


def _tabulate_inputs(finished: Sequence[Finished], subject: Subject) -> Table:
    counts = {done.explanation.order.shape[1] for done in finished}
    heading = ["input", "predicted", "explained", "members agree"]
    if subject.aim is None:
        heading.remove("explained")
    n = f", {counts.pop():,} features" if len(counts) == 1 else ""
    table = make_table(subject.name + n, *heading)
    table.columns[-1].justify = "right"
    for done, name in zip(finished, _shorten(finished), strict=True):
        e = done.explanation
        (best, p), *others = done.guesses
        said = e.write_score(0) if e.ranking is None or e.output.kind == "value" else f"{p:.2f}"
        predicted = Text(f"{_label(e, best, subject)} {said}", "bold")
        rest = [f"{_label(e, index, subject)} {p:.2f}" for index, p in others if p >= 0.005]
        if rest:
            predicted.append(f"\n{', '.join(rest)}", "not bold dim")
        explained = [] if subject.aim is None else [f"{e.name(0)} {e.write_score(0)}"]
        table.add_row(name, predicted, *explained, _write(float(e.mean_agreement()[0])))
    return table


def _label(e: Explanation, index: int, subject: Subject) -> str:
    """The name of an output: the model's own, or what it is."""
    if e.rival is None and index == int(e.target[0]):
        return e.name(0)
    return subject.labels[index] if 0 <= index < len(subject.labels) else f"class {index}"


def _print_places(finished: Sequence[Finished], subject: Subject, report: Path | None) -> None:
    folders = [done.folder for done in finished]
    first, *others = subject.files
    beside = f", {' and '.join(others)} there" if others else ""
    say(f"Look at {show(folders[0] / first)}{beside}")
    if len(folders) > 1:
        say(f"and in the other folders of {show(subject.out)}")
    if report is not None:
        say(f"Open {show(report)} in a browser to look closer")
    elif (subject.out / REPORT).exists():
        say(f"{show(subject.out / REPORT)} is of an earlier run", "yellow")
    older = sorted(
        file.parent.name
        for file in subject.out.glob(f"*/{EXPLANATION}")
        if file.parent not in folders
    )
    if older:
        names = ", ".join(map(show, older[:5])) + (", …" if len(older) > 5 else "")
        say(f"Of earlier runs, and not in this report: {names}", "yellow")


def _describe_costs(explanations: Sequence[Explanation]) -> str:
    """What members, questions and all took of the model, and how long it was."""
    spent, seconds = _total(explanations, "evaluations"), _total(explanations, "seconds")
    named = {"questions" if name == "sea" else name: n for name, n in spent.items()}
    parts = ", ".join(f"{name} {n:,}" for name, n in named.items())
    took = seconds.get("total", sum(seconds.values()))
    return f"Evaluations: {sum(spent.values()):,} ({parts}), {took:.1f} seconds"


def _total(explanations: Sequence[Explanation], kind: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for e in explanations:
        for name, value in getattr(e.provenance, kind).items():
            totals[name] = totals.get(name, 0) + value
    return totals


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _write(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2f}"
