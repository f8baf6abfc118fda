"""The work behind ``sea explain scan.nii.gz``: volumes in; slices, files and a report out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from sea_nn.call import About, Running
from sea_nn.cli import options
from sea_nn.cli.files import name_folders
from sea_nn.cli.pictures import EXPLANATION, STRIP
from sea_nn.cli.summary import describe_gains, tabulate_checks
from sea_nn.cli.terminal import Bar, out, prepare_folder, say, show
from sea_nn.config import choose_budget
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import find_target
from sea_nn.explanation.explanation import Explanation
from sea_nn.show.viewer import write_report
from sea_nn.vision.models import is_file, load_model
from sea_nn.vision.volumes import load_volume


def explain_volumes(
    paths: Sequence[Path],
    model: str,
    output: Path,
    *,
    methods: str | None,
    budget: int | None,
    assignments: Sequence[str],
    config: Path | None,
    target: str | None,
    rival: str | None,
    device: str,
    means: Mapping[str, Any],
    report: str | None,
    document: TextIO | None,
) -> None:
    """Explain volumes one by one: a folder with explanation.safetensors and strip.png for each.

    Arguments are the options of ``sea explain``; ``means`` are further ones of ``SEA``, ``report``
    is the report's name or None, and ``document`` where one JSON document goes instead of words.
    """
    if not is_file(model):
        raise InputError(
            f"volumes need --model FILE.py:FUNCTION, a model of [N, 1, D, H, W]; {model} takes "
            "pictures"
        )
    settings = options.read_settings(config, None)
    if config is None:
        methods, budget = choose_budget(methods, None, budget)
    loaded = load_model(model, options.find_place(device))
    aim = options.find_target(target, rival, loaded)
    chosen = options.parse_assignments(assignments)
    sea = options.make_sea(loaded.model, methods, settings, budget, chosen, **means)
    # A file that cannot be read is best heard of before the others are worked on.
    volumes = [load_volume(path) for path in paths]
    prepare_folder(output)
    page = None if report is None else find_target(output / report)
    found: list[tuple[Path, Explanation]] = []
    with Bar(len(paths)) as bar:
        for k, (path, folder) in enumerate(zip(paths, name_folders(paths), strict=True)):

            def tell(member: str, done: int, total: int, k: int = k, path: Path = path) -> None:
                bar.show(f"{path.name}: {member}", k + done / max(total, 1))

            e = sea.explain(
                volumes[k].unsqueeze(0).to(options.find_device(loaded)),
                aim,
                labels=loaded.labels or None,
                about=About(model_name=loaded.name),
                running=Running(progress=tell),
            )
            own = output / folder
            own.mkdir(exist_ok=True)
            e.save(own / EXPLANATION)
            e.plot("strip", own / STRIP)
            found.append((own, e))
    if page is not None:
        write_report([e for _, e in found], page, f"What {loaded.name} looks at")
    if document is not None:
        told = [_describe(path, own, e) for path, (own, e) in zip(paths, found, strict=True)]
        whole = {"model": loaded.name, "report": None if page is None else show(page)}
        print(json.dumps({**whole, "inputs": told}, indent=2, allow_nan=False), file=document)
        return
    for path, (own, e) in zip(paths, found, strict=True):
        say(f"{path.name}: {e.name(0)} {e.write_score(0)}", "bold")
        notes = [check for check in e.checks if check.level != "ok"]
        if notes:
            out.print(tabulate_checks(notes))
        say(f"Look at {show(own / STRIP)}")
    if page is not None:
        say(f"Open {show(page)} in a browser to look closer")


def _describe(path: Path, own: Path, e: Explanation) -> dict[str, Any]:
    """One explanation as plain values for JSON."""
    return {
        "input": show(path),
        "files": {"explanation": show(own / EXPLANATION), "strip": show(own / STRIP)},
        "target": e.name(0),
        "score": float(e.score[0]),
        "shape": list(e.shape),
        "feature_shape": list(e.feature_shape),
        "unit": e.unit,
        "gains": describe_gains(e),
        "top": [
            {"place": e.name_feature(k), "gain": gain}
            for k, gain in zip(e.order[0, :20].tolist(), e.gains[0].tolist(), strict=False)
        ],
        "evaluations": dict(e.provenance.evaluations),
        "checks": [asdict(check) for check in e.checks],
    }
