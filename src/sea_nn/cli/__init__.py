"""The ``sea`` command: every command is a module here, imported without torch until it runs.

    sea explain --demo

Exit codes: 0 done, 1 something failed, 2 wrong use, 130 Ctrl-C.
"""

import errno
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer

from sea_nn.cli import app as page
from sea_nn.cli import bench, explain, listing, report, run
from sea_nn.cli.terminal import (
    FAILED,
    INTERRUPTED,
    WRONG_USE,
    check_interrupt,
    describe_error,
    err,
    remember_interrupts,
    say,
    say_error,
)
from sea_nn.errors import AssumptionWarning, InputError, KindError, MissingExtraError, SEAError

__all__ = ["app", "main"]

# Threads that wait go to sleep at once: beside others, spinning costs more than waking.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}


def make_command(function: Callable[[Any], None]) -> Callable[..., None]:
    """A function of one table of options as a command, whose errors are messages and exit codes.

    Typer is shown the fields of the table. Exit codes: 0 done; 1 something failed; 2 wrong use,
    which nothing was computed for; 130 Ctrl-C.
    """
    (table,) = (kind for name, kind in get_type_hints(function).items() if name != "return")
    hints = get_type_hints(table)

    def run(**given: Any) -> None:
        try:
            with remember_interrupts(), warnings.catch_warnings():
                # The table of checks says what was assumed.
                warnings.simplefilter("ignore", AssumptionWarning)
                function(table(**given))
                check_interrupt()
        except SEAError as error:
            say_error(str(error))
            wrong = isinstance(error, InputError | KindError | MissingExtraError)
            raise typer.Exit(WRONG_USE if wrong else FAILED) from None
        except KeyboardInterrupt:
            say("Interrupted", "yellow", err)
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of our output has left; nobody is there to be told
            say_error(describe_error(error))
            raise typer.Exit(FAILED) from None

    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=Annotated[hints[field.name], field.metadata["typer"]],
            )
            for field in fields(table)
        ]
    )
    return run


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
