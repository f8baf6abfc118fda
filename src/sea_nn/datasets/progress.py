"""How far a run is, and how it is stopped: Ctrl-C and SIGTERM let the open shards finish."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sea_nn.datasets.worker import Done

EVERY = 20.0
"""Seconds between lines where there is no terminal; on one, the line is always the last one."""
STOPS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


class Progress:
    """Tells of inputs, evaluations, failures, workers and time left on standard error.

    Of ``total`` inputs, ``done`` were done by earlier calls.
    """

    def __init__(self, total: int, done: int = 0, quiet: bool = False) -> None:
        self.total, self.before, self.done, self.quiet = total, done, done, quiet
        self.failed = self.evaluations = 0
        self.started = self._told = time.monotonic()
        self.workers: dict[str, int] = {}  # by name, explained and not committed
        self._terminal = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def join(self, worker: str) -> None:
        """A worker is ready."""
        self.workers[worker] = 0

    def leave(self, worker: str) -> None:
        """A worker was lost, and with it what it had not committed."""
        self.workers.pop(worker, None)

    def tick(self, worker: str, count: int) -> None:
        """A worker explained so many more inputs; their shard is not committed yet."""
        if worker in self.workers:
            self.workers[worker] += count
            self._show()

    def commit(self, worker: str, done: Done) -> None:
        """A worker committed a shard."""
        if worker in self.workers:
            self.workers[worker] = max(0, self.workers[worker] - done.n_inputs)
        self.done += done.n_inputs
        self.failed += done.failed
        self.evaluations += done.evaluations
        self._show()

    def say(self, text: str) -> None:
        """One line that stays."""
        if not self.quiet:
            start = "\r\033[K" if self._terminal else ""
            print(f"{start}{text}", file=sys.stderr, flush=True)

    def describe(self) -> str:
        """The state in one line."""
        parts = [f"{self.done} of {self.total} inputs", f"{self.evaluations} evaluations"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if len(self.workers) > 1:
            parts.append(f"{len(self.workers)} workers")
        there = self.done + sum(self.workers.values())
        if there > self.before:
            pace = (time.monotonic() - self.started) / (there - self.before)
            parts.append(f"{_duration(pace * (self.total - there))} left")
        return ", ".join(parts)

    def _show(self) -> None:
        if self._terminal:
            print(f"\r\033[K{self.describe()}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            self.say(self.describe())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _DropError(BaseException):
    """Ends a run at once; not a KeyboardInterrupt, after which a budget gives what it has."""


class Stop:
    """Whether the run should end, and by which signal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.signal: int = 0

    def is_set(self) -> bool:
        """Whether a signal came."""
        return bool(self.signal)

    def handle(self, number: int, _: FrameType | None) -> None:
        """Take a signal; the second one drops the open shards."""
        if self.signal:
            raise _DropError
        self.signal = number
        self.say("stopping once the open shards are written; again to drop them")

    def end(self, text: str) -> None:
        """End as the signal asked, if one came: KeyboardInterrupt, or exit code 143."""
        if not self.signal:
            return
        self.say(text)
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt


@contextmanager
def watch_signals(say: Callable[[str], None]) -> Iterator[Stop]:
    """Take the signals while a run is on; outside the main thread Python has none to give."""
    stop = Stop(say)
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                before[number] = signal.signal(number, stop.handle)
        yield stop
    except _DropError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
