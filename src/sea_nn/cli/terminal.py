"""What every command shares: two consoles, one way to speak of errors, one progress bar."""

import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from sea_nn.errors import InputError
from sea_nn.explanation.atomic import remove_stale

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


def say_error(text: str) -> None:
    """Print one clear message in red, on standard error."""
    say(f"Error: {translate(text)}", "bold red", err)


def translate(text: str) -> str:
    """Advice that is written for Python, in the words of the command line.

    >>> translate('name one with methods=[("grad_cam", {"layer": ...})]')
    'name one with --set grad_cam.layer=...'
    """
    text = re.sub(r'\boutput=("(\w+)")?', r"--model-output \2", text)
    return _PYTHON_OPTION.sub(r"--set \2.\4=\5", text)


_interrupted = False


@contextmanager
def remember_interrupts() -> Iterator[None]:
    """Remember Ctrl-C: the code of a model or a library may catch the exception that it raises."""
    global _interrupted
    _interrupted = False
    default = signal.default_int_handler
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not default:
        yield
        return

    def remember(number: int, frame: Any) -> None:
        global _interrupted
        _interrupted = True
        default(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, default)


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and someone has caught it."""
    if _interrupted:
        raise KeyboardInterrupt


def describe_error(error: Exception) -> str:
    """What went wrong, with the file's name where an error of the system has one."""
    if isinstance(error, OSError) and error.strerror:
        where = f": {show(error.filename)}" if error.filename else ""
        return f"{error.strerror}{where}"
    return str(error)


def prepare_folder(folder: Path) -> None:
    """Make sure that results can be written, before they are worked for.

    What killed runs left there half-done is removed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        remove_stale(folder)
    except OSError as error:
        raise InputError(
            f"cannot write to {show(folder)} ({error.strerror or error}); choose another folder "
            "with -o"
        ) from error


def show(path: str | Path) -> str:
    """A path as text that any terminal can print, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "replace")


def list_examples(*commands: str) -> str:
    """Commands as the end of a help page, each on a line of its own."""
    return "\n".join(("\b", "Examples:", *(f"  {command}" for command in commands)))


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


class Bar:
    """One progress bar on standard error over all inputs and members, with the time left.

    Where standard error is no terminal, a line now and then says how far it is.
    """

    def __init__(self, n_inputs: int) -> None:
        self._total, self._done, self._said = max(1, n_inputs), 0.0, time.monotonic()
        self._first: tuple[float, float] | None = None  # what was done when the pace was first seen
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._task = self._progress.add_task("preparing", total=n_inputs)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, text: str, n_done: float | None = None) -> None:
        """Say what is going on; ``n_done`` inputs, or parts of them, are done (None: as before)."""
        check_interrupt()
        self._progress.update(self._task, description=text, completed=n_done)
        self._done = self._done if n_done is None else n_done
        now = time.monotonic()
        if self._first is None and self._done:
            # Remembered inputs take no time, so the pace is measured from here on.
            self._first = self._done, now
        if not err.is_terminal and now - self._said >= EVERY:
            self._said = now
            left = self._estimate(now)
            say(f"{text}, {self._done / self._total:.0%} done{left}", console=err)

    def _estimate(self, now: float) -> str:
        first, started = self._first or (0.0, now)
        if self._done <= first:
            return ""
        left = (now - started) / (self._done - first) * (self._total - self._done)
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"
