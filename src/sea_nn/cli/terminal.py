"""What every command shares: two consoles, one way to speak of errors, one progress bar."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130

EVERY = 20.0
"""Seconds between lines where there is no terminal to draw a bar on."""

_PYTHON_OPTION = re.compile(r"""methods=\[\((['"])(\w+)\1, \{(['"])(\w+)\3: ([^{}]+)\}\)\]""")

# No markup: a file may be called "[red].png", and its name must come out as it is.
out = Console(markup=False, emoji=False, highlight=False)
err = Console(markup=False, emoji=False, highlight=False, stderr=True)


def say(text: str, style: str = "", console: Console = out) -> None:
    """Print a line that the terminal may wrap but that holds no line breaks of ours."""
    console.print(text, style=style, soft_wrap=True)


def translate(text: str) -> str:
    """Advice that is written for Python, in the words of the command line.

    >>> translate('name one with methods=[("grad_cam", {"layer": ...})]')
    'name one with --set grad_cam.layer=...'
    """
    text = re.sub(r'\boutput=("(\w+)")?', r"--model-output \2", text)
    return _PYTHON_OPTION.sub(r"--set \2.\4=\5", text)


_interrupted = threading.Event()


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


def wait(text: str) -> AbstractContextManager[Any]:
    """A sign on standard error, where that is a terminal, that something takes a while."""
    return err.status(text) if err.is_terminal else nullcontext()


def make_table(title: str, *headings: str) -> Table:
    """A table in the look of all of them; cells that are too long are folded, never cut."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    table.box, table.pad_edge = box.SIMPLE_HEAD, False
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    return table


class Bar(Progress):
    """One progress bar on standard error over all inputs and members, with the time left.

    Where standard error is no terminal, a line now and then says how far it is.
    """

    def __init__(self, n_inputs: int) -> None:
        hidden, hour = not err.is_terminal, 3600.0  # a single input may take minutes
        super().__init__(console=err, transient=True, disable=hidden, speed_estimate_period=hour)
        self._said = self.get_time()
        self.add_task("preparing", total=n_inputs)

    def show(self, text: str, n_done: float | None = None) -> None:
        """Say what is going on; ``n_done`` inputs, or parts of them, are done (None: as before)."""
        check_interrupt()
        (task,) = self.tasks
        self.update(task.id, description=text, completed=n_done)
        if not err.is_terminal and self.get_time() - self._said >= EVERY:
            self._said = self.get_time()
            seconds = task.time_remaining
            left = "" if seconds is None else f", about {timedelta(seconds=seconds)} left"
            say(f"{text}, {task.percentage:.0f}% done{left}", console=err)
