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
    spent, seconds = _total(explanations, "evaluations"), _total(explanations, "seconds")
    parts = ", ".join(f"{'questions' if k == 'sea' else k} {n:,}" for k, n in spent.items())
    took = seconds.get("total", sum(seconds.values()))
    say(f"Evaluations: {sum(spent.values()):,} ({parts}), {took:.1f} seconds")
    notes = [check for check in _collect_checks(finished) if check.level != "ok"]
    if notes:
        out.print(tabulate_checks(notes))
    for done in finished:
        if done.note:
            say(f"{done.input.folder}: {done.note}", "yellow")
    folders = [done.folder for done in finished]
    first, *others = subject.files
    beside = f", {' and '.join(others)} there" if others else ""
    say(f"Look at {show(folders[0] / first)}{beside}")
    output = subject.o.output
    if len(folders) > 1:
        say(f"and in the other folders of {show(output)}")
    if report is not None:
        say(f"Open {show(report)} in a browser to look closer")
    elif (output / REPORT).exists():
        say(f"{show(output / REPORT)} is of an earlier run", "yellow")
    older = sorted({file.parent for file in output.glob(f"*/{EXPLANATION}")} - set(folders))
    if older:
        names = ", ".join(show(p.name) for p in older[:5]) + (", …" if len(older) > 5 else "")
        say(f"Of earlier runs, and not in this report: {names}", "yellow")


def write_page(finished: Sequence[Finished], path: Path, title: str) -> Path:
    """The report, with the inputs' folders beside the classes; it has no other place for them."""
    labelled = [
        replace(e, labels=(f"{e.name(0)} ({done.input.folder})",))
        for e, done in ((done.explanation, done) for done in finished)
    ]
    return write_report(labelled, path, title)


def _collect_checks(finished: Sequence[Finished]) -> list[Check]:
    """Every kind of check once, as it was first met; how many inputs it concerns is added."""
    first: dict[tuple[str, str, str], Check] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for done in finished:
        for check in name_inputs(done.explanation.checks, [done.input.folder]):
            kind = (check.level, check.subject, check.advice)
            first.setdefault(kind, check)
            count[kind] += 1
    names, total = {done.input.folder for done in finished}, len(finished)
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
    for check in checks:
        level = Text(check.level, COLOURS[check.level])
        table.add_row(level, check.subject, translate(check.message), translate(check.advice))
    return table


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
        "output": show(subject.o.output),
        "report": None if report is None else show(report),
        "inputs": [_describe_input(done, subject) for done in outcome.finished],
        "seconds": _total(explanations, "seconds"),
        "evaluations": _total(explanations, "evaluations"),
        "checks": [
            {name: translate(text) for name, text in asdict(check).items()}
            for check in _collect_checks(outcome.finished)
        ],
        "failed": [{"input": name, "error": translate(why)} for name, why in outcome.failed],
        "interrupted": outcome.interrupted,
    }


def _describe_input(done: Finished, subject: Subject) -> dict[str, Any]:
    e, top = done.explanation, subject.o.n_top
    agreement = float(e.mean_agreement()[0])
    count = N_LISTED if top is None else e.count(top)
    listed = zip(e.order[0, :count].tolist(), e.gains[0, :count].tolist(), strict=True)
    above, below = (float(side[0]) for side in e.sum_gains())

    def name_class(index: int) -> dict[str, Any]:
        return {"class": index, "label": _label(e, index, subject)}

    def place(k: int) -> dict[str, Any]:
        if len(e.feature_shape) != 2 or e.view == "lines":
            return {"feature": e.name_feature(k)}
        return dict(zip(("row", "column"), divmod(k, e.feature_shape[1]), strict=True))

    target = name_class(int(e.target[0])) | {e.output.unit: float(e.score[0])}
    if e.rival is not None:
        target["not"] = name_class(int(e.rival[0]))
    return {
        "input": done.input.name,
        **({} if e.texts is None else {"text": "".join(e.texts[0])}),
        "files": {
            Path(name).stem: show(done.folder / name) for name in (*subject.files, EXPLANATION)
        },
        "predicted": [name_class(index) | {e.output.unit: p} for index, p in done.guesses],
        "target": target,
        "output": e.output.kind,
        "feature_shape": list(e.feature_shape),
        "note": done.note,
        "agreement": None if math.isnan(agreement) else agreement,
        "gains": {
            "unit": e.unit,
            "for": above,
            "against": below,
            "most_against": [e.name_feature(k) for k in e.rank_against(0, N_LISTED)],
        },
        "top": [{**place(k), "gain": gain} for k, gain in listed],
    }


def _tabulate_inputs(finished: Sequence[Finished], subject: Subject) -> Table:
    counts = {done.explanation.order.shape[1] for done in finished}
    heading = ["input", "predicted", "explained", "members agree"]
    if subject.aim is None:
        heading.remove("explained")
    n = f", {counts.pop():,} features" if len(counts) == 1 else ""
    table = make_table(subject.name + n, *heading)
    table.columns[-1].justify = "right"
    for done in finished:
        e = done.explanation
        (best, p), *others = done.guesses
        said = e.write_score(0) if e.ranking is None or e.output.kind == "value" else f"{p:.2f}"
        predicted = Text(f"{_label(e, best, subject)} {said}", "bold")
        rest = [f"{_label(e, index, subject)} {p:.2f}" for index, p in others if p >= 0.005]
        if rest:
            predicted.append(f"\n{', '.join(rest)}", "not bold dim")
        explained = [] if subject.aim is None else [f"{e.name(0)} {e.write_score(0)}"]
        agreement = float(e.mean_agreement()[0])
        agree = "-" if math.isnan(agreement) else f"{agreement:.2f}"
        table.add_row(done.input.folder, predicted, *explained, agree)
    return table


def _label(e: Explanation, index: int, subject: Subject) -> str:
    """The name of an output: the model's own, or what it is."""
    if e.rival is None and index == int(e.target[0]):
        return e.name(0)
    return subject.labels[index] if 0 <= index < len(subject.labels) else f"class {index}"


def _total(explanations: Sequence[Explanation], kind: str) -> dict[str, float]:
    totals = Counter[str]()
    for e in explanations:
        totals.update(getattr(e.provenance, kind))
    return dict(totals)
