"""How far a run is, and how it is stopped: Ctrl-C and SIGTERM let the open shards finish."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

EVERY = 10.0  # seconds between lines
STOPS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


class _DropError(BaseException):
    """Ends a run at once; not a KeyboardInterrupt, after which a budget gives what it has."""


class Progress:
    """Tells of inputs, evaluations, failures and time left on standard error.

    Of ``total`` inputs, ``before`` were done by earlier calls; ``counts`` are of what this one has
    committed, and ``opened`` are explained but not yet committed. As a context it takes the
    signals, the first of which it keeps in ``signal``.
    """

    def __init__(self, total: int, before: int = 0, quiet: bool = False) -> None:
        self.total, self.before, self.quiet = total, before, quiet
        self.counts, self.opened, self.signal = Counter[str](), 0, 0
        self.started = self._told = time.monotonic()
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Progress:
        if threading.current_thread() is threading.main_thread():  # others have none to give
            for number in STOPS:
                self._handlers[number] = signal.signal(number, self._take_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if kind is _DropError:
            raise KeyboardInterrupt from None

    def _take_signal(self, number: int, _: Any) -> None:
        if self.signal:
            raise _DropError
        self.signal = number
        self.say("stopping once the open shards are written; again to drop them")

    def tick(self, count: int) -> None:
        """So many more inputs are explained; their shard is not committed yet."""
        self.opened += count
        self._show()

    def commit(self, done: Counter[str]) -> None:
        """A shard is committed, with these counts."""
        self.opened = 0
        self.counts.update(done)
        self._show()

    def say(self, text: str) -> None:
        """Print one line, unless nothing is to be told."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """End as the signal asked, if one came: KeyboardInterrupt, or exit code 143."""
        if self.signal:
            self.say(text)
            raise SystemExit(143) if self.signal == signal.SIGTERM else KeyboardInterrupt

    def describe(self) -> str:
        """The state in one line."""
        fresh, counts = self.counts["n_inputs"], self.counts
        said = f"{self.before + fresh} of {self.total} inputs, {counts['evaluations']} evaluations"
        if counts["failed"]:
            said += f", {counts['failed']} failed"
        if fresh := fresh + self.opened:
            pace = (time.monotonic() - self.started) / fresh
            said += f", {timedelta(seconds=round(pace * (self.total - self.before - fresh)))} left"
        return said

    def _show(self) -> None:
        if time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            self.say(self.describe())
