"""How many inputs fit into one pass of a model: measure one, then divide.

A path integral over a 224 x 224 image asks for 50 backward passes; in one batch they take
gigabytes, in chunks that fit they take less and, on a CPU, run faster.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

MIB = 1 << 20
CPU_BUDGET = 384 * MIB
CUDA_BUDGET = 32768 * MIB
CUDA_SHARE = 0.5
MAX_CHUNK = {"cuda": 4096, "cpu": 128}
# cuDNN and several CUDA kernels index with 32 bits.
MAX_ELEMENTS = 2**31 - 1
# Forward passes on a CPU are fastest while a layer's output stays in the cache of its core: the
# Fashion-MNIST CNN takes 0.14 ms an input in chunks of 64, 0.16 in chunks of 128 and 0.22 in chunks
# of 256; EfficientNet-Lite0 19 ms in chunks of 1 or 2 and 25 to 30 in chunks of 4 to 16.
CPU_CACHE = 6 << 20
# The largest block for which glibc still adapts its threshold.
LARGEST_BLOCK = (32 << 20) - 4096


@dataclass(frozen=True)
class Footprint:
    """The memory that one input needs, in bytes.

    Attributes:
        saved: what the forward pass keeps for the backward pass.
        largest: the largest single tensor among them.
        elements: the number of elements of that tensor.
    """

    saved: int
    largest: int
    elements: int

    @property
    def gradient(self) -> int:
        """Bytes for a forward and backward pass: kept activations and passing gradients."""
        return self.saved + 4 * self.largest

    @property
    def forward(self) -> int:
        """Bytes for a forward pass alone, where only neighbouring layers are alive at once."""
        return 8 * self.largest


class Kept:
    """What autograd kept of a pass, by place in memory; see ``watch_memory``."""

    def __init__(self, weights: Iterable[Tensor] = ()) -> None:
        # Weights are left out: they are there once, whatever the batch.
        self.fixed = {t.untyped_storage().data_ptr() for t in weights}
        self.sizes: dict[int, tuple[int, int]] = {}
        self.alive: list[Tensor] = []  # or an address could stand for two tensors
        self.watching = True

    def note(self, tensor: Tensor) -> Tensor | None:
        """Add a tensor that autograd keeps."""
        if not self.watching:  # an interrupt may leave the hook in place: then it does nothing
            return tensor
        # Nothing is handed to autograd: an operation that saves its own output, and gets it back
        # here, would keep itself alive for ever.
        if not tensor.is_sparse:
            self.alive.append(tensor.detach())
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.fixed:
                self.sizes[storage.data_ptr()] = (storage.nbytes(), tensor.numel())
        return None

    def measure(self, x: Tensor) -> Footprint:
        """The memory that one input, x [1, ...], takes; what was kept is let go."""
        own, sizes = x.numel() * x.element_size(), list(self.sizes.values())
        self.alive.clear()
        largest = max([own, *(size for size, _ in sizes)])
        elements = max([x.numel(), *(numel for _, numel in sizes)])
        return Footprint(4 * own + sum(size for size, _ in sizes), largest, elements)


@contextmanager
def watch_memory(weights: Iterable[Tensor] = ()) -> Iterator[Kept]:
    """Run with gradients, and note what autograd keeps; nothing can be differentiated after."""
    kept = Kept(weights)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(kept.note, lambda t: t):
        try:
            yield kept
        finally:
            kept.watching = False


def chunk_size(
    total: int,
    need: Footprint | None,
    gradient: bool,
    device: torch.device,
    limit: int | None = None,
) -> int:
    """Return how many of `total` evaluations to run together, in chunks of nearly equal size.

    Args:
        total: the evaluations to run.
        need: the memory that one of them needs; None if it is not known.
        gradient: whether passes go back as well.
        device: where they run.
        limit: the caller's own limit, if any.
    """
    most = min(MAX_CHUNK.get(device.type, 128), total)
    if need is not None:
        room = free_budget(device) // max(1, need.gradient if gradient else need.forward)
        most = min(most, room, MAX_ELEMENTS // max(1, need.elements))
        if device.type == "cpu" and not gradient:
            most = min(most, torch.get_num_threads() * CPU_CACHE // need.largest)
    if limit is not None:
        most = min(most, limit)
    # 51 evaluations with room for 50 are better run as 26 + 25 than as 50 + 1.
    return math.ceil(total / math.ceil(total / max(1, most))) if total > 0 else 1


def keep_freed_memory() -> None:
    """Make the C library keep the memory of freed tensors for the next ones, up to 64 MiB.

    glibc returns freed blocks to the system above a threshold that follows the largest block freed
    so far. Below it, the pages of every layer's output are fetched and zeroed again in every pass:
    a third of the time of the Fashion-MNIST CNN (0.20 ms an input, 0.13 without). One large block
    that is never touched raises the threshold; where there is no glibc, it does nothing.
    """
    torch.empty(LARGEST_BLOCK, dtype=torch.uint8)


def free_budget(device: torch.device) -> int:
    """Return the bytes that one pass may take on `device`.

    On a CPU the smaller of 384 MiB and a quarter of the free memory: larger chunks leave the
    caches and run slower. On a GPU the smaller of 32 GiB, which keep it busy, and half of what is
    free or held unused by PyTorch.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return min(CUDA_BUDGET, int((free + unused) * CUDA_SHARE))
    return min(CPU_BUDGET, _free_ram() // 4)


def _free_ram() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 4 * CPU_BUDGET  # not Linux: the fixed budget decides
