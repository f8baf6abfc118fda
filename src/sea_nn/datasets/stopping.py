"""Ctrl-C and SIGTERM: the first lets the open shards finish, the second drops them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether the run should end, and by which signal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.signal = 0

    def is_set(self) -> bool:
        """Whether a signal came."""
        return bool(self.signal)

    def handle(self, number: int, _: FrameType | None) -> None:
        """Take a signal."""
        if self.signal:
            raise KeyboardInterrupt
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
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
