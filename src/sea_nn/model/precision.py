"""TF32 is off while a model is asked about sets, and the caller's choice comes back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

_LOCK = threading.Lock()
_RESTORE: list[Callable[[], None]] = []  # one entry while somebody is inside
_INSIDE: set[object] = set()


@contextmanager
def full_precision() -> Iterator[None]:
    """Keep TF32 off, for all threads, and give back the caller's choice when the last one leaves.

    It concerns GPUs alone; without one it changes nothing that anybody reads.
    """
    me = object()
    try:
        with _LOCK:
            _INSIDE.add(me)
            if not _RESTORE:
                _RESTORE.append(turn_off())
        yield
    finally:
        with _LOCK:
            _INSIDE.discard(me)  # an interrupt may have come before it was there
            if not _INSIDE and _RESTORE:
                _RESTORE.pop()()


def turn_off() -> Callable[[], None]:
    """Turn TF32 off; return a function that restores what there was."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    kinds: tuple[Any, ...] = (cudnn.conv, cudnn.rnn, matmul) if hasattr(cudnn, "conv") else ()
    stack = ExitStack()  # what was noted first is restored last
    for kind in kinds:
        stack.callback(setattr, kind, "fp32_precision", kind.fp32_precision)
    # The older switches too: PyTorch refuses to read them while they say something else. It also
    # does where the caller has set single kinds.
    with suppress(RuntimeError):
        stack.callback(setattr, cudnn, "allow_tf32", cudnn.allow_tf32)
        cudnn.allow_tf32 = False
    with suppress(RuntimeError):
        products = torch.get_float32_matmul_precision()
        stack.callback(torch.set_float32_matmul_precision, products)
        torch.set_float32_matmul_precision("highest")
    for kind in kinds:
        kind.fp32_precision = "ieee"
    return stack.close
