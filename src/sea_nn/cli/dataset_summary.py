"""``sea summary``: what the explanations of a data set say, class by class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sea_nn.cli.terminal import guard, list_examples, make_table, out, say, show

EXAMPLES = list_examples("sea summary out", "sea summary out -o pages --examples 6")
N_SHOWN = 20


@guard
def summary(
    folder: Annotated[
        Path, typer.Argument(help="A folder that 'sea run' wrote, finished or not.", metavar="OUT")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Folder to write to.",
            show_default="OUT/summary",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Prototypes and outliers of each class.")
    ] = 4,
) -> None:
    """Show what a model looks at, class by class: an HTML page, pictures and a table.

    By class: the mean map, the class-level SEA map, where members disagree (with --members), likely
    shortcuts, prototypes and outliers by map.
    """
    from sea_nn.datasets.pages import write_pages
    from sea_nn.datasets.read import read_dataset

    data = read_dataset(folder)
    found = data.summary(n_examples=examples)
    page = write_pages(found, folder / "summary" if output is None else output)
    table = make_table(
        f"{found.n_done} of {found.n_inputs} inputs of {found.model}",
        "name", "inputs", "accuracy", "agreement", "likely shortcuts",
    )  # fmt: skip
    for row in found.table()[:N_SHOWN]:
        table.add_row(
            row["name"],
            str(row["inputs"]),
            *("–" if row[k] is None else f"{row[k]:.2f}" for k in ("accuracy", "agreement")),
            row["shortcuts"],
        )
    out.print(table)
    if len(found.classes) > N_SHOWN:
        say(f"and {len(found.classes) - N_SHOWN} more classes, in the page")
    say(f"Open {show(page)} in a browser")
