"""Many inputs at once: how many fit, on which cores, and how their learned functions join."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from sea_nn.config import SEAConfig
from sea_nn.errors import KindError
from sea_nn.paper.dsf import DSF, CollapsedDSF, Scorer

T = TypeVar("T")


def count_rows(n: int, pixels: int, m: int, config: SEAConfig, device: torch.device) -> int:
    """Return how many inputs fit in the memory that is fastest (CPU) or at hand (GPU)."""
    sets = m * len(config.thresholds) if config.margin_weight else 0
    row = 8 * n * (m + 6) + n * sets + 8 * 50 * sets
    if n < pixels:  # heatmaps and sets are pooled onto a grid
        row += 8 * pixels * (m + sets)
    if not config.constant_start:
        first, *rest = (*config.widths, 1)
        row += 8 * 6 * (n * first + sum(a * b for a, b in zip((first, *rest), rest, strict=False)))
    if device.type == "cuda":
        budget = torch.cuda.mem_get_info(device)[0] // 4
    else:
        budget = (64 if config.constant_start else 112) << 20
    return max(1, budget // row)


def join_scorers(scorers: list[Scorer]) -> Scorer:
    """Several batches of functions as one."""
    first = scorers[0]
    if len(scorers) == 1:
        return first
    joined = {
        name: torch.cat([s.state_dict()[name] for s in scorers]) for name in first.state_dict()
    }
    if isinstance(first, CollapsedDSF):
        whole: Scorer = CollapsedDSF(
            joined["weight"],
            widths=first.widths,
            activation=first.activation.name,
            scale=joined["scale"],
            bias=joined.get("bias"),
        )
    elif isinstance(first, DSF):
        whole = first.batched(joined)
    else:
        raise KindError(f"cannot join {type(first).__name__}")
    return whole.requires_grad_(False)  # learned, as each part is


def map_on_cores(work: Callable[[int], T], items: Sequence[int]) -> list[T]:
    """Return [work(i) for i in items], each item on one core, as many at a time as torch threads.

    Torch shares every product between the cores, and for a network's many small steps the waiting
    takes longer than the work. Its kernels let other Python threads run, so inputs are shared out.
    """
    cores = torch.get_num_threads()
    if min(cores, len(items)) <= 1:
        return [work(item) for item in items]
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def alone(item: int) -> T:
        torch.set_num_threads(1)  # for OpenMP each thread has its own number, MKL has one for all
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            return work(item)

    try:
        with ThreadPoolExecutor(min(cores, len(items))) as team:
            return list(team.map(alone, items))
    finally:
        torch.set_num_threads(cores)
