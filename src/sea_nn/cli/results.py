"""What comes of ``sea explain``: a folder for each input, tables for people, JSON for machines."""

import errno
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from sea_nn.cli.request import EXPLANATION, REPORT, Input
from sea_nn.cli.terminal import Bar, describe_error, make_table, out, say, show, translate
from sea_nn.cli.work import Subject
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import draft_folder, find_target
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Provenance
from sea_nn.members.run import Check
from sea_nn.show.viewer import write_report

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
FULL = (errno.ENOSPC, errno.EDQUOT)
N_GUESSES = 3
N_LISTED = 20  # features that the JSON document lists


@dataclass
class Outcome:
    """What came of all inputs: explanations, names of failed ones with the reason, Ctrl-C.

    ``seconds`` and ``evaluations`` are what members and questions took, by name.
    """

    finished: list[tuple[Input, Explanation]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False
    seconds: Counter[str] = field(default_factory=Counter)
    evaluations: Counter[str] = field(default_factory=Counter)


def explain_inputs(
    subject: Subject, inputs: Sequence[Input], empty: Mapping[str, str], bar: Bar
) -> Outcome:
    """Explain inputs, some at a time, and write each one's results as soon as it is done.

    An input that cannot be read or explained is set aside, as the arguments in ``empty`` are, and
    so is one whose results cannot be written. Ctrl-C or a full disk ends the work and keeps what
    is finished.
    """
    outcome = Outcome(failed=list(empty.items()))
    try:
        for start in range(0, len(inputs), subject.size):
            opened: list[tuple[Input, Any]] = []
            for one in inputs[start : start + subject.size]:
                try:
                    opened.append((one, subject.read(one.source)))
                except SEAError as error:
                    outcome.failed.append((one.name, str(error)))
            if opened:
                _explain_batch(subject, opened, outcome, bar)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except OSError as error:  # the disk is full: more would be worked for in vain
        seen = {*(one.name for one, _ in outcome.finished), *dict(outcome.failed)}
        reason = describe_error(error)
        outcome.failed += [(one.name, reason) for one in inputs if one.name not in seen]
    return outcome


def _explain_batch(
    subject: Subject, opened: Sequence[tuple[Input, Any]], outcome: Outcome, bar: Bar
) -> None:
    before = len(outcome.finished) + len(outcome.failed)
    title = opened[0][0].name if len(opened) == 1 else f"{len(opened)} inputs"

    def tick(member: str, done: int, total: int) -> None:
        bar.show(f"{title}: {member}", before + len(opened) * min(1, done / max(total, 1)))

    try:
        explanation = subject.explain([content for _, content in opened], tick)
    except (SEAError, RuntimeError) as error:  # the latter of a full memory, or of the model
        if len(opened) > 1:  # find the one to blame; the others must not suffer
            for suspect in opened:
                _explain_batch(subject, [suspect], outcome, bar)
        else:
            outcome.failed.append((title, str(error)))
        return
    outcome.seconds.update(explanation.provenance.seconds)
    outcome.evaluations.update(explanation.provenance.evaluations)
    for i, (one, content) in enumerate(opened):
        bar.show(f"{one.name}: writing")
        e = explanation[i]
        e = replace(e, checks=(*e.checks, *subject.check(content)))
        try:
            _write_results(subject, e, subject.o.output / one.folder)
        except (SEAError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            outcome.failed.append((one.name, describe_error(error)))
        else:
            outcome.finished.append((one, e))


def _write_results(subject: Subject, e: Explanation, folder: Path) -> None:
    """Write the pictures and the file of one explained input: all of them, or none."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{show(folder)} is a file, and results need a folder of this name")
    with draft_folder(folder.parent) as fresh:
        subject.draw(e, fresh)
        e.save(fresh / EXPLANATION)
        if folder.is_dir():  # of an earlier run, and perhaps with files of one's own
            for name in (EXPLANATION, *subject.files):
                (fresh / name).replace(find_target(folder / name))
        else:
            fresh.rename(folder)


def write_page(outcome: Outcome, subject: Subject) -> Path | None:
    """The report, with the inputs' folders beside the classes; it has no other place for them."""
    if subject.o.no_report or not outcome.finished:
        return None
    labelled = [replace(e, labels=(f"{e.name(0)} ({one.folder})",)) for one, e in outcome.finished]
    title = f"What {subject.name} {'reads' if subject.o.kind == 'text' else 'looks at'}"
    try:
        return write_report(labelled, subject.o.output / REPORT, title)
    except OSError as error:
        outcome.failed.append((REPORT, describe_error(error)))
        return None


def print_outcome(outcome: Outcome, subject: Subject, report: Path | None) -> None:
    """Print what was found, how far members agree, what it cost, what to mind, where to look."""
    out.print(_tabulate_inputs(outcome, subject))
    for _, e in outcome.finished:
        if e.texts is not None:
            from sea_nn.show.words import print_words

            against = None if e.against is None else e.against[0]
            out.print(print_words(e.texts[0], e.attribution[0], against))
    spent, seconds = outcome.evaluations, outcome.seconds
    parts = ", ".join(f"{'questions' if k == 'sea' else k} {n:,}" for k, n in spent.items())
    took = seconds.get("total", sum(seconds.values()))
    say(f"Evaluations: {sum(spent.values()):,} ({parts}), {took:.1f} seconds")
    notes = [check for check in _collect_checks(outcome) if check.level != "ok"]
    if notes:
        out.print(tabulate_checks(notes))
    output, folders = subject.o.output, [one.folder for one, _ in outcome.finished]
    first, *others = subject.files
    beside = f", {' and '.join(others)} there" if others else ""
    say(f"Look at {show(output / folders[0] / first)}{beside}")
    if len(folders) > 1:
        say(f"and in the other folders of {show(output)}")
    if report is not None:
        say(f"Open {show(report)} in a browser to look closer")
    elif (output / REPORT).exists():
        say(f"{show(output / REPORT)} is of an earlier run", "yellow")


def _collect_checks(outcome: Outcome) -> list[Check]:
    """Every kind of check once, as it was first met; how many inputs it concerns is added."""
    met: dict[tuple[str, str, str], list[Check]] = {}
    for one, e in outcome.finished:
        for check in name_checks(e.checks, [one.folder]):
            met.setdefault((check.level, check.subject, check.advice), []).append(check)
    names, total = {one.folder for one, _ in outcome.finished}, len(outcome.finished)
    return [
        check
        if total == 1 or check.subject in names
        else replace(check, message=f"{check.message} ({count} of {total} inputs)")
        for check, count in ((same[0], len(same)) for same in met.values())
    ]


def name_checks(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
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
    explanations = [e for _, e in outcome.finished]
    made = explanations[0].provenance if explanations else Provenance()
    return {
        "model": subject.name,
        "methods": list(dict.fromkeys(name for e in explanations for name in e.methods)),
        "options": made.members,
        "config": made.config,
        "seed": subject.o.seed,
        "output": show(subject.o.output),
        "report": None if report is None else show(report),
        "inputs": [_describe_input(one, e, subject) for one, e in outcome.finished],
        "seconds": outcome.seconds,
        "evaluations": outcome.evaluations,
        "checks": [
            {name: translate(text) for name, text in asdict(check).items()}
            for check in _collect_checks(outcome)
        ],
        "failed": [{"input": name, "error": translate(why)} for name, why in outcome.failed],
        "interrupted": outcome.interrupted,
    }


def _describe_input(one: Input, e: Explanation, subject: Subject) -> dict[str, Any]:
    top, folder = subject.o.n_top, subject.o.output / one.folder
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
        "input": one.name,
        **({} if e.texts is None else {"text": "".join(e.texts[0])}),
        "files": {Path(name).stem: show(folder / name) for name in (*subject.files, EXPLANATION)},
        "predicted": [name_class(index) | {e.output.unit: p} for index, p in _guess(e)],
        "target": target,
        "output": e.output.kind,
        "feature_shape": list(e.feature_shape),
        "agreement": None if math.isnan(agreement) else agreement,
        "gains": {
            "unit": e.unit,
            "for": above,
            "against": below,
            "most_against": [e.name_feature(k) for k in e.rank_against(0, N_LISTED)],
        },
        "top": [{**place(k), "gain": gain} for k, gain in listed],
    }


def _guess(e: Explanation) -> list[tuple[int, float]]:
    """The model's first classes and their probabilities, or its value."""
    if e.ranking is None:
        return [(int(e.target[0]), float(e.score[0]))]
    both = zip(e.ranking.classes[0].tolist(), e.ranking.scores[0].tolist(), strict=True)
    return list(both)[:N_GUESSES]


def _tabulate_inputs(outcome: Outcome, subject: Subject) -> Table:
    counts = {e.order.shape[1] for _, e in outcome.finished}
    heading = ["input", "predicted", "explained", "members agree"]
    if subject.aim is None:
        heading.remove("explained")
    n = f", {counts.pop():,} features" if len(counts) == 1 else ""
    table = make_table(subject.name + n, *heading)
    table.columns[-1].justify = "right"
    for one, e in outcome.finished:
        (best, p), *others = _guess(e)
        said = e.write_score(0) if e.ranking is None or e.output.kind == "value" else f"{p:.2f}"
        predicted = Text(f"{_label(e, best, subject)} {said}", "bold")
        rest = [f"{_label(e, index, subject)} {p:.2f}" for index, p in others if p >= 0.005]
        if rest:
            predicted.append(f"\n{', '.join(rest)}", "not bold dim")
        explained = [] if subject.aim is None else [f"{e.name(0)} {e.write_score(0)}"]
        agreement = float(e.mean_agreement()[0])
        agree = "-" if math.isnan(agreement) else f"{agreement:.2f}"
        table.add_row(one.folder, predicted, *explained, agree)
    return table


def _label(e: Explanation, index: int, subject: Subject) -> str:
    """The name of an output: the model's own, or what it is."""
    if e.rival is None and index == int(e.target[0]):
        return e.name(0)
    return subject.labels[index] if 0 <= index < len(subject.labels) else f"class {index}"
