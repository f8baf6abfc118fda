"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

EVERY = 20.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Tells of inputs, evaluations, failures and time left on standard error.

    Args:
        total: inputs in all.
        done: inputs that an earlier run did.
        quiet: tell nothing.
    """

    def __init__(self, total: int, done: int = 0, quiet: bool = False) -> None:
        self.total, self.before, self.done = total, done, done
        self.failed = self.evaluations = self._counted = 0
        self.started = self._told = time.monotonic()
        self.workers: dict[str, int] = {}
        self.quiet = quiet
        self._bar: Any = None
        if not quiet and sys.stderr.isatty():
            self._bar = _make_bar(total, done)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tick(self, count: int) -> None:
        """Inputs explained, though their shard is not committed yet."""
        self._counted += count
        self._show()

    def commit(self, n_inputs: int, failed: int, evaluations: int, worker: str) -> None:
        """A shard was committed."""
        self.done += n_inputs
        self._counted = max(0, self._counted - n_inputs)
        self.failed += failed
        self.evaluations += evaluations
        self.workers[worker] = self.workers.get(worker, 0) + 1
        self._show()

    def say(self, text: str) -> None:
        """One line that stays."""
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def describe(self) -> str:
        """The state in one line."""
        parts = [f"{self.done} of {self.total} inputs", f"{self.evaluations} evaluations"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if len(self.workers) > 1:
            counts = ", ".join(f"{name} {n}" for name, n in sorted(self.workers.items()))
            parts.append(f"shards by worker: {counts}")
        fresh = self.done + self._counted - self.before
        if fresh > 0:
            pace = (time.monotonic() - self.started) / fresh
            parts.append(f"{_duration(pace * (self.total - self.done - self._counted))} left")
        return ", ".join(parts)

    def _show(self) -> None:
        now = time.monotonic()
        if self._bar is not None:
            text = self.describe()
            self._bar.update(0, completed=self.done + self._counted, description=text)
        elif now - self._told >= EVERY:
            self._told = now
            self.say(self.describe())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _make_bar(total: int, done: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bar = Progress(
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("starting", total=total, completed=done)
    return bar
