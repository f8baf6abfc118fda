"""The ``sea`` command: every command is a module here, imported without torch until it runs.

    sea explain --demo

Exit codes: 0 success, 1 some inputs or checks failed, 2 bad input or usage, 130 Ctrl-C.
"""

from typing import Annotated

import typer

from sea_nn.cli import app as page
from sea_nn.cli import bench, dataset_summary, doctor, explain, listing, report, run
from sea_nn.version import find_version

__all__ = ["app", "main"]

app = typer.Typer(
    name="sea",
    help="One attribution map from many that disagree.",
    epilog="Start with: sea explain --demo",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    # A traceback is for bugs, and is then best plain; people's errors never get that far.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("bench", epilog=bench.EXAMPLES)(bench.bench)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("summary", epilog=dataset_summary.EXAMPLES)(dataset_summary.summary)
app.command("app", epilog=page.EXAMPLES)(page.app)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("report", epilog=report.EXAMPLES)(report.report)
app.command("methods", epilog=listing.METHODS_EXAMPLES)(listing.methods)
app.command("models", epilog=listing.MODELS_EXAMPLES)(listing.models)


def _print_version(wanted: bool) -> None:
    if wanted:
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
    app()
