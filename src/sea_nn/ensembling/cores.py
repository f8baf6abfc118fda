"""Inputs side by side on a CPU: one Python thread a core, each with one thread of torch.

Torch shares every product between the cores, and for a network's many small steps the waiting
takes longer than the work. Its kernels let other Python threads run, so whole inputs are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def map_on_cores(work: Callable[[int], T], items: Sequence[int]) -> list[T]:
    """[work(i) for i in items], each item on one core, as many at a time as torch has threads."""
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
