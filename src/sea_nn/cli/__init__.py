"""The ``sea`` command: its commands are imported without torch, and load it when they run.

    sea explain --demo

Exit codes: 0 done, 1 something failed, 2 wrong use, 130 Ctrl-C.
"""

import os

import typer

from sea_nn.cli import bench, explain, listing, pages
from sea_nn.cli.terminal import add_command, add_version

__all__ = ["app", "main"]

# Threads that wait go to sleep at once: beside others, spinning costs more than waking.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}

app = typer.Typer(
    name="sea",
    help="One attribution map from many that disagree.",
    epilog="Start with: sea explain --demo",
    rich_markup_mode=None,  # plain help is there in half the time
    no_args_is_help=True,
    add_completion=False,
    # A traceback is for bugs, and is then best plain; people's errors never get that far.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_version(app)
for function in (
    *(explain.explain, bench.bench, explain.run, pages.summary, pages.app),
    *(listing.doctor, pages.report, listing.methods, listing.models),
):
    add_command(app, function)


def main() -> None:
    """Run the command line; the entry point of ``sea``."""
    for variable, value in WAITING.items():
        os.environ.setdefault(variable, value)
    app()
