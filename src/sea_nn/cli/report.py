"""``sea report``: saved explanations as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from sea_nn.cli.files import find_files
from sea_nn.cli.terminal import BAD_INPUT, PARTIAL, err, guard, list_examples, say, show
from sea_nn.errors import InputError, SEAError

EXAMPLES = list_examples(
    "sea report out/ -o report.html",
    "sea report run/ -o report.html  (the first 200 inputs of a folder that 'sea run' wrote)",
    "sea report out/cat/explanation.safetensors 'runs/*/dog/*.safetensors' --title Pets",
)


@guard
def report(
    explanations: Annotated[
        list[str],
        typer.Argument(
            help="Saved explanations, folders that hold some, or globs.", metavar="FILES"
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.", dir_okay=False)
    ] = Path("report.html"),
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="The page's heading.")
    ] = "SEA explanations",
) -> None:
    """Build one HTML report, which needs no network, from saved explanations."""
    runs = [name for name in explanations if (Path(name) / "manifest.json").is_file()]
    files = [name for name in explanations if name not in runs]
    paths, empty = find_files(files, {".safetensors"}, "saved explanations", recursive=True)
    if not paths and not runs:
        raise InputError("; ".join(empty.values()))

    from dataclasses import replace

    from sea_nn.explanation.explanation import Explanation
    from sea_nn.show.viewer import write_report

    loaded: list[Explanation] = []
    for name in runs:
        from sea_nn.datasets.read import read_dataset

        loaded += read_dataset(name).to_explanations()
    n_failed = len(empty)
    for reason in empty.values():
        say(f"Failed: {reason}", "red", err)
    for path in paths:
        try:
            if not path.exists():
                raise InputError(f"there is no file {show(path)}")
            e = Explanation.load(path)
        except SEAError as error:
            say(f"Failed: {error}", "red", err)
            n_failed += 1
            continue
        # All files that `sea explain` writes have one name; their folders tell them apart.
        name = show(path.parent.name if path.stem == "explanation" else path.stem)
        loaded.append(replace(e, labels=tuple(f"{e.name(i)} ({name})" for i in range(len(e)))))
    if not loaded:
        raise typer.Exit(BAD_INPUT)
    write_report(loaded, output, title)
    n_inputs = sum(map(len, loaded))
    say(f"Open {show(output)} in a browser: {n_inputs} input{'s' if n_inputs > 1 else ''}")
    if n_failed:
        raise typer.Exit(PARTIAL)
