"""The ``sea`` command: every command is a module here, imported without torch until it runs.

    sea explain --demo

Exit codes: 0 done, 1 something failed, 2 wrong use, 130 Ctrl-C.
"""

import os
from typing import Annotated

import typer

from sea_nn.cli import app as page
from sea_nn.cli import bench, explain, listing, report, run
from sea_nn.cli.terminal import make_command

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
for name, function, examples in (
    ("explain", explain.explain, explain.EXAMPLES),
    ("bench", bench.bench, bench.EXAMPLES),
    ("run", run.run, run.EXAMPLES),
    ("summary", report.summary, report.SUMMARY_EXAMPLES),
    ("app", page.app, page.EXAMPLES),
    ("doctor", listing.doctor, listing.DOCTOR_EXAMPLES),
    ("report", report.report, report.REPORT_EXAMPLES),
    ("methods", listing.methods, listing.METHODS_EXAMPLES),
    ("models", listing.models, listing.MODELS_EXAMPLES),
):
    app.command(name, epilog=examples)(make_command(function))


def _print_version(wanted: bool) -> None:
    if wanted:
        from sea_nn.version import find_version

        typer.echo(f"sea-nn {find_version()}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; the entry point of ``sea``."""
    for variable, value in WAITING.items():
        os.environ.setdefault(variable, value)
    app()
