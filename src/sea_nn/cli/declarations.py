"""Options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

from sea_nn.cli.terminal import SET_HELP

DEFAULT_MODEL = "efficientnet-lite0"

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", metavar="NAME", help="A name from 'sea models', or FILE.py:FUNCTION."
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="paper, or names from 'sea methods' with commas; fast and thorough are budgets.",
        show_default="two cheap ones",
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="NUMBER",
        help="Model evaluations a picture, such as 128: learn from its answers about parts.",
        show_default="512; none with --methods or --config",
    ),
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help=SET_HELP, metavar="MEMBER.OPTION=VALUE")
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS", help="Class to explain, number or name.", show_default="predicted"
    ),
]
ModelOutput = Annotated[
    str | None,
    typer.Option(
        help="What the model's outputs are: logits, probabilities, sigmoid or value.",
        metavar="KIND",
        show_default="found out",
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write to.", file_okay=False),
]
Grid = Annotated[
    str | None,
    typer.Option(
        metavar="ROWSxCOLUMNS", help="Work on cells, such as 28x28.", show_default="every pixel"
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings of the ensemble: a TOML or JSON file."),
]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or cuda:1.")]
Seed = Annotated[int, typer.Option(min=0, metavar="NUMBER", help="Starts every random draw.")]
