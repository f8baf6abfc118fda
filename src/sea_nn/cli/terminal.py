"""What every command shares: where it writes, one way to speak of errors, one progress bar.

Rich is imported when there is something to write: help is there without it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130


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
    """One progress bar over all inputs and members, with the time left, where there is a terminal.

    What it gives says what is going on, and how many inputs, or parts of them, are done.
    """
    from rich.progress import Progress

    console, hour = open_console(stderr=True), 3600.0  # a single input may take minutes
    how: dict[str, Any] = {"transient": True, "speed_estimate_period": hour}
    with Progress(console=console, disable=not console.is_terminal, **how) as bar:
        task = bar.add_task(text, total=n_inputs)

        def tell(text: str, n_done: float | None = None) -> None:
            bar.update(task, description=text, completed=n_done)

        yield tell
