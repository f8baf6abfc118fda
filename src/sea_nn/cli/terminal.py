"""What every command shares: exit codes, where it writes, how it speaks of errors, its bar.

Rich is imported when there is something to write: help is there without it.
"""

import errno
import inspect
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from sea_nn.errors import AssumptionWarning, InputError, KindError, MissingExtraError, SEAError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130

EVERY = 20.0
"""Seconds between lines where there is no terminal to draw a bar on."""

_interrupted = threading.Event()


def add_command(app: typer.Typer, function: Callable[[Any], None]) -> None:
    """Make a command of a function of one table of options; its errors become exit codes.

    The function's docstring is the help, and the examples that it ends with stand behind the
    options.
    """
    table = get_type_hints(function)["o"]
    hints = get_type_hints(table)
    text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("Examples:\n")

    def run(**given: Any) -> None:
        try:
            with remember_interrupts(), warnings.catch_warnings():
                # The table of checks says what was assumed.
                warnings.simplefilter("ignore", AssumptionWarning)
                function(table(**given))
        except KeyboardInterrupt:
            complain("Interrupted", "yellow")
            raise typer.Exit(INTERRUPTED) from None
        except (SEAError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output has left; nobody is there to be told
            complain(f"Error: {describe_error(error)}", "bold red")
            wrong = isinstance(error, InputError | KindError | MissingExtraError)
            raise typer.Exit(WRONG_USE if wrong else FAILED) from None

    parameters = []
    for field in fields(table):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        kind = Annotated[hints[field.name], field.metadata["typer"]]
        how: Any = {"default": default, "annotation": kind}
        parameters.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, **how))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(function.__name__, help=text, epilog=f"\b\nExamples:\n{examples}")(run)


def add_version(app: typer.Typer) -> None:
    """Let ``--version`` print the version."""

    def tell(wanted: bool) -> None:
        if wanted:
            from sea_nn.version import find_version

            typer.echo(f"sea-nn {find_version()}")
            raise typer.Exit

    said = "Print the version and stop."
    version = typer.Option("--version", callback=tell, is_eager=True, help=said)

    @app.callback()
    def run(version: Annotated[bool, version] = False) -> None:
        pass


@cache
def open_console(stderr: bool = False) -> "Console":
    """Standard output, or standard error.

    Without markup: a file may be called "[red].png", and its name must come out as it is.
    """
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, stderr=stderr)


def say(what: Any, style: str = "") -> None:
    """Print a table, or a line that the terminal may wrap but that holds no line breaks of ours."""
    open_console().print(what, style=style, soft_wrap=isinstance(what, str))


def complain(text: str, style: str = "red") -> None:
    """Print a line on standard error, in the words of the command line."""
    open_console(stderr=True).print(translate(text), style=style, soft_wrap=True)


def translate(text: str) -> str:
    """Advice that is written for Python, in the words of the command line.

    >>> translate('name one with methods=[("grad_cam", {"layer": ...})]')
    'name one with --set grad_cam.layer=...'
    """
    text = re.sub(r'\boutput=("(\w+)")?', r"--model-output \2", text)
    option = r"""methods=\[\((['"])(\w+)\1, \{(['"])(\w+)\3: ([^{}]+)\}\)\]"""
    return re.sub(option, r"--set \2.\4=\5", text)


@contextmanager
def remember_interrupts() -> Iterator[None]:
    """Remember Ctrl-C: the code of a model or a library may catch the exception that it raises."""
    _interrupted.clear()
    default = signal.default_int_handler
    if signal.getsignal(signal.SIGINT) is not default:  # someone ignores it, or minds it already
        yield
        return

    def remember(number: int, frame: Any) -> None:
        _interrupted.set()
        default(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
        check_interrupt()
    finally:
        signal.signal(signal.SIGINT, default)


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and someone has caught it."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def describe_error(error: Exception) -> str:
    """What went wrong, with the file's name where an error of the system has one."""
    if isinstance(error, OSError) and error.strerror:
        where = f": {show(error.filename)}" if error.filename else ""
        return f"{error.strerror}{where}"
    return str(error)


def show(path: str | Path) -> str:
    """A path as text that any terminal can print, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "replace")


def make_table(title: str, *headings: str) -> "Table":
    """A table in the look of all of them; cells that are too long are folded, never cut."""
    from rich import box
    from rich.table import Table

    look: Any = {"title_justify": "left", "title_style": "bold", "header_style": "dim"}
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, **look)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    return table


@contextmanager
def open_bar(text: str, n_inputs: int | None = None) -> Iterator[Callable[..., None]]:
    """One progress bar on standard error over all inputs and members, with the time left.

    What it gives says what is going on, and how many inputs, or parts of them, are done. Where
    standard error is no terminal, a line now and then does.
    """
    from rich.progress import Progress

    console, hour = open_console(stderr=True), 3600.0  # a single input may take minutes
    hidden = not console.is_terminal
    how: dict[str, Any] = {"transient": True, "disable": hidden, "speed_estimate_period": hour}
    with Progress(console=console, **how) as bar:
        bar.add_task(text, total=n_inputs)
        (task,), said = bar.tasks, bar.get_time()

        def tell(text: str, n_done: float | None = None) -> None:
            nonlocal said
            check_interrupt()
            bar.update(task.id, description=text, completed=n_done)
            if hidden and bar.get_time() - said >= EVERY:
                said, seconds = bar.get_time(), task.time_remaining
                left = "" if seconds is None else f", about {timedelta(seconds=seconds)} left"
                complain(f"{text}, {task.percentage:.0f}% done{left}", "")

        yield tell
