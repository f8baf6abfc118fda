"""The work behind ``sea explain --text``: texts in; marked words, files and a report out."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch

from sea_nn.cli.options import parse_assignments
from sea_nn.cli.pictures import EXPLANATION
from sea_nn.cli.summary import describe_gains, tabulate_checks
from sea_nn.cli.terminal import Bar, out, prepare_folder, say, show
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target
from sea_nn.explanation.explanation import Explanation
from sea_nn.sea import SEA
from sea_nn.show.viewer import write_report
from sea_nn.show.words import print_words
from sea_nn.text.load import load_text_model

PREFIX, FIGURE = "hf:", "words.png"
DEFAULT_BUDGET = 128


def explain_texts(
    texts: Sequence[str],
    model: str,
    output: Path,
    *,
    labels: str | None = None,
    methods: str | None = None,
    budget: int | None = None,
    assignments: Sequence[str] = (),
    target: str | None = None,
    rival: str | None = None,
    model_output: str | None = None,
    device: str = "auto",
    report: str | None = None,
    document: TextIO | None = None,
) -> None:
    """Explain texts, write explanation.safetensors, words.png and the report, and print words.

    Args:
        texts: the texts.
        model: "hf:FOLDER".
        output: the folder to write to.
        labels: sentences for the classes of an encoder without a head, with commas.
        methods: members, with commas.
        budget: evaluations a text.
        assignments: options of members.
        target: a class by name or number, or a language model's continuation.
        rival: what the target is explained against.
        model_output: what the outputs are.
        device: where the model runs.
        report: the name of the report; None for none.
        document: where one JSON document goes instead of words for people.
    """
    if not model.startswith(PREFIX):
        raise InputError(
            "--text needs --model hf:FOLDER, a folder on this machine that save_pretrained wrote; "
            f"got {model!r}"
        )
    if rival is not None and target is None:
        raise InputError("--not needs a --target: what is explained against it")
    names = None if labels is None else [part.strip() for part in labels.split(",")]
    loaded, tokenizer = load_text_model(model.removeprefix(PREFIX), names)
    where = "cuda" if device == "auto" and torch.cuda.is_available() else device
    loaded.to("cpu" if where == "auto" else where)
    sea = SEA.for_text(
        loaded,
        tokenizer,
        budget=budget or DEFAULT_BUDGET,
        methods=None if methods is None else methods.split(","),
        options=parse_assignments(assignments),
        output=model_output,
    )
    wanted = _read_target(target, sea.language)
    aim = wanted if rival is None else (wanted, _read_target(rival, sea.language))
    prepare_folder(output)
    page = None if report is None else find_target(output / report)
    name = Path(model.removeprefix(PREFIX)).name
    with Bar(1) as bar:
        e = sea.explain(
            list(texts),
            aim,
            model_name=name,
            progress=lambda member, done, total: bar.show(member, done / total),
        )
    e.save(output / EXPLANATION)
    e.plot("strip", output / FIGURE)
    if page is not None:
        write_report(list(e), output / page.name, f"What {name} reads")
    if document is not None:
        told = describe_texts(e, output, page)
        print(json.dumps(told, indent=2, allow_nan=False), file=document)
        return
    for i, one in enumerate(e):
        say(f"{one.name(0)} {one.write_score(0)}", "bold")
        against = None if one.against is None else one.against[0]
        out.print(print_words(e.texts[i] if e.texts else (), one.attribution[0], against))
        first = (
            f"{one.name_feature(k)} {gain:.2f}"
            for k, gain in zip(one.order[0, :5].tolist(), one.gains[0].tolist(), strict=False)
        )
        say(f"first words, in {one.unit}: {', '.join(first)}", "dim")
        if worst := [one.name_feature(k) for k in one.rank_against(0, 5)]:
            say(f"against it: {', '.join(worst)}", "dim")
    notes = [check for check in e.checks if check.level != "ok"]
    if notes:
        out.print(tabulate_checks(notes))
    files = [EXPLANATION, FIGURE, *([] if page is None else [page.name])]
    say(f"{', '.join(files)} are in {show(output)}")


def describe_texts(e: Explanation, output: Path, report: Path | None) -> dict[str, Any]:
    """The explanation as plain values for JSON."""
    return {
        "model": e.provenance.model,
        "methods": list(e.methods),
        "output": show(output),
        "report": None if report is None else show(report),
        "unit": e.unit,
        "inputs": [
            {
                "text": "".join(one.texts[0]) if one.texts else "",
                "target": one.name(0),
                "score": float(one.score[0]),
                "gains": describe_gains(one),
                "words": [
                    {"word": one.name_feature(k), "gain": gain, "place": k}
                    for k, gain in zip(one.order[0].tolist(), one.gains[0].tolist(), strict=True)
                ],
            }
            for one in e
        ],
        "evaluations": dict(e.provenance.evaluations),
        "checks": [asdict(check) for check in e.checks],
    }


def _read_target(text: str | None, language: bool) -> int | str | None:
    """A class by number or name; of a language model the continuation as it is written."""
    if text is None or language or not text.isdecimal():
        return text
    return int(text)
