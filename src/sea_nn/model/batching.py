"""How many inputs fit into one pass of a model: measure one, then divide.

A path integral over a 224 x 224 image asks for 50 backward passes; in one batch they take
gigabytes, in chunks that fit they take less and, on a CPU, run faster.
"""

import math
from collections.abc import Callable, Iterable
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


def measure(
    forward: Callable[[Tensor], Tensor], x: Tensor, weights: Iterable[Tensor] = ()
) -> Footprint:
    """Run `forward` on one input, x [1, ...], and add up what autograd keeps.

    Its `weights` are left out: they are there once, whatever the batch.
    """
    fixed = {t.untyped_storage().data_ptr() for t in weights}
    kept: dict[int, tuple[int, int]] = {}

    alive: list[Tensor] = []  # or an address could stand for two tensors
    watching: list[bool] = []

    def note(tensor: Tensor) -> Tensor | None:
        if not watching:  # an interrupt may leave the hook in place: then it does nothing
            return tensor
        # Nothing is handed to autograd: an operation that saves its own output, and gets it back
        # here, would keep itself alive for ever.
        if not tensor.is_sparse:
            alive.append(tensor.detach())
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in fixed:
                kept[storage.data_ptr()] = (storage.nbytes(), tensor.numel())
        return None

    leaf = x.detach().clone().requires_grad_(True)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        try:
            watching.append(True)
            forward(leaf.clone())  # a copy, as the model may work in place
        finally:
            watching.clear()
    own = x.numel() * x.element_size()
    largest = max([own, *(size for size, _ in kept.values())])
    elements = max([x.numel(), *(numel for _, numel in kept.values())])
    return Footprint(4 * own + sum(size for size, _ in kept.values()), largest, elements)


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
