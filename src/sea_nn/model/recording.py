"""Capture a function of fixed tensors as a CUDA graph, without disturbing other threads."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

_RECORDING = threading.RLock()
# From this version on, other threads may draw random numbers while a capture begins.
_ALONE_UNTIL = "2.13"


# One side stream a device for all recordings: cuBLAS keeps 32 MiB for each stream it has worked on,
# for as long as the process lives.
_ASIDE: dict[int, torch.cuda.Stream] = {}


def find_side_stream() -> torch.cuda.Stream:
    """Return the stream of the current device on which passes are recorded."""
    device = torch.cuda.current_device()
    if device not in _ASIDE:
        _ASIDE[device] = torch.cuda.Stream(device)
    return _ASIDE[device]


def is_alone() -> bool:
    """Whether no other thread of the program can be disturbed by a recording."""
    if torch.__version__ >= _ALONE_UNTIL:
        return True
    here = threading.current_thread()
    # Daemons serve: notebooks and data loaders have some, always, which draw nothing on a GPU.
    return all(t is here or t.daemon for t in threading.enumerate())


class Recording:
    """A function of fixed tensors, captured as a CUDA graph, and the tensors it writes."""

    def __init__(self, run: Callable[[], Tensor], device: torch.device) -> None:
        generator = torch.cuda.default_generators[device.index or 0]
        with torch.cuda.device(device), _RECORDING:
            current, aside = torch.cuda.current_stream(), find_side_stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                expected = run()
            current.wait_stream(aside)
            self.graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
            # A capture locks the state that the generator has when it begins, for all threads, and
            # for good if it fails: so it gets one of its own, and a pass that draws is refused.
            own, scratch = generator.graphsafe_get_state(), generator.clone_state()
            scratch.manual_seed(time.monotonic_ns())  # what a thread draws now is drawn once
            try:
                generator.graphsafe_set_state(scratch)
                # In this mode a pass that waits for the GPU fails, in this thread alone.
                with torch.cuda.graph(
                    self.graph, pool=pool, stream=aside, capture_error_mode="thread_local"
                ):
                    generator.graphsafe_set_state(own)
                    self.output = run()
            except BaseException:
                # A capture that failed leaves its stream and its memory pool in place.
                torch.cuda.set_stream(current)
                with suppress(AttributeError, RuntimeError):
                    torch._C._cuda_endAllocateToPool(device.index or 0, pool)
                raise
            finally:
                generator.graphsafe_set_state(own)
            self.graph.replay()
        apart = (self.output.double() - expected.double()).norm()
        if not bool(apart <= 0.05 * expected.double().norm() + torch.finfo(expected.dtype).tiny):
            raise RuntimeError("a replay differs from the pass that was recorded")

    def replay(self) -> Tensor:
        """Run it again on what the fixed tensors hold now; the output is overwritten each time."""
        self.graph.replay()
        return self.output


def is_capable(device: torch.device) -> bool:
    """Whether the device and this PyTorch can record passes."""
    new = hasattr(torch.Generator, "graphsafe_set_state") and hasattr(torch, "get_autocast_dtype")
    return device.type == "cuda" and new
