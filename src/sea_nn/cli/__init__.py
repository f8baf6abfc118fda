"""The ``sea`` command: its commands are imported without torch, and load it when they run.

    sea explain --demo

Exit codes: 0 done, 1 something failed, 2 wrong use, 130 Ctrl-C.
"""

import errno
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from sea_nn.cli import bench, explain, listing, pages
from sea_nn.cli.terminal import (
    FAILED,
    INTERRUPTED,
    WRONG_USE,
    complain,
    describe_error,
)
from sea_nn.errors import AssumptionWarning, InputError, KindError, MissingExtraError, SEAError

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


def add_command(function: Callable[..., None]) -> None:
    """Make a command of a function of options, or of one table of them; its errors are exit codes.

    The function's docstring is the help, and the examples that it ends with stand behind the
    options.
    """
    table = get_type_hints(function).get("o")
    text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("Examples:\n")

    def run(**given: Any) -> None:
        try:
            # The table of checks says what was assumed.
            with warnings.catch_warnings(action="ignore", category=AssumptionWarning):
                function(**given) if table is None else function(table(**given))
        except KeyboardInterrupt:
            complain("Interrupted", "yellow")
            raise typer.Exit(INTERRUPTED) from None
        except (SEAError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output has left; nobody is there to be told
            complain(f"Error: {describe_error(error)}", "bold red")
            wrong = isinstance(error, InputError | KindError | MissingExtraError)
            raise typer.Exit(WRONG_USE if wrong else FAILED) from None

    run.__signature__ = inspect.signature(table or function)  # type: ignore[attr-defined]
    app.command(function.__name__, help=text, epilog=f"\b\nExamples:\n{examples}")(run)


for function in (
    *(explain.explain, bench.bench, explain.run, pages.summary, pages.app),
    *(listing.doctor, pages.report, listing.methods, listing.models),
):
    add_command(function)


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
