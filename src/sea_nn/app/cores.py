"""Who may use how many cores: an explanation all of them, everything else in the process one.

OpenMP keeps a team of threads for each thread that ever computed in parallel. With more of them in
all than the machine has cores, those that wait go to sleep instead of spinning, and waking them for
each of a pass's thousands of small parallel parts made a map take 1.45 times as long on two cores.
A team ends with its thread, so explanations have threads of their own; and where two are at work
at once, sleeping is what should happen.
"""

import threading
from collections.abc import Callable

import torch

_CORES = 0  # 0: nobody called ``share_cores``, and every thread has as many as torch gives it


def share_cores() -> None:
    """Keep the cores for ``start``; call it before the process computes anything."""
    global _CORES
    _CORES = torch.get_num_threads()
    torch.set_num_threads(1)


def start(work: Callable[[], None]) -> threading.Thread:
    """Run work in a thread of its own, with the cores."""
    ready = threading.Event()

    def run() -> None:
        if _CORES:
            torch.set_num_threads(_CORES)  # of this thread, and of those that begin from now on
            torch.get_num_threads()  # else a thread takes the newest number when it first computes
        ready.set()
        work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    if _CORES:
        torch.set_num_threads(1)  # of the caller's thread, and again of those that begin
    return thread
