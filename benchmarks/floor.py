"""The least time that a classifier can take on this machine: its operations at the machine's peak.

The peak is measured, not looked up: the fastest of a large matrix product and two convolutions, in
single precision, on the threads that PyTorch uses. On some machines the convolutions win.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.table import Table

HEADER = [
    "metric",
    "multiply-adds an image, millions",
    "peak, GFLOP/s",
    "asked a map",
    "least time at peak, ms a map",
    "ours",
    "Quantus",
    "ours / least",
    "Quantus / ours",
    "Quantus / least",
]
ROUNDS = 40


@dataclass(frozen=True)
class Raced:
    """A metric that a peer computes too: images asked a map, and seconds a map."""

    name: str
    asked: float
    ours: float
    peer: float


@torch.inference_mode()
def measure_peak() -> float:
    """Return the most operations a second, of which a multiply-add is two."""
    square = torch.randn(2048, 2048)
    out = torch.empty_like(square)
    works: list[tuple[float, Callable[[], object]]] = [
        (2.0 * 2048**3, lambda: torch.mm(square, square, out=out))
    ]
    for channels, side, count in ((256, 14, 32), (64, 14, 128)):
        layer = nn.Conv2d(channels, channels, 3, bias=False)
        image = torch.randn(count, channels, side, side).to(memory_format=torch.channels_last)
        steps = 2.0 * layer(image).numel() * 9 * channels
        works.append((steps, lambda layer=layer, image=image: layer(image)))  # type: ignore[misc]
    best = 0.0
    for _ in range(ROUNDS):  # in turns: the machine is not equally busy all the time
        for steps, work in works:
            started = time.perf_counter()
            work()
            best = max(best, steps / (time.perf_counter() - started))
    return best


def count_operations(model: nn.Module, x: Tensor) -> int:
    """Return the operations of convolutions and linear layers for one of the inputs x."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(x[:1])
    return int(counter.get_total_flops())


def show_floor(raced: Sequence[Raced], operations: int, peak: float) -> Table:
    """Return the table: a row a race."""
    rows = []
    for one in raced:
        least = one.asked * operations / peak
        rows.append(
            [
                one.name,
                f"{operations / 2e6:.2f}",
                f"{peak / 1e9:.0f}",
                f"{one.asked:.1f}",
                f"{least * 1e3:.3f}",
                f"{one.ours * 1e3:.3f}",
                f"{one.peer * 1e3:.2f}",
                f"{one.ours / least:.2f}",
                f"{one.peer / one.ours:.1f}",
                f"{one.peer / least:.1f}",
            ]
        )
    note = (
        "The images asked, times the classifier's multiply-adds (two operations each; "
        "convolutions and linear layers alone), at the machine's peak, measured in the same run "
        f"on {torch.get_num_threads()} CPU threads: the fastest of a 2048 x 2048 matrix product "
        "and two 3 x 3 convolutions. The last column is the largest ratio that code could reach "
        "which runs the classifier as it is, in single precision, on each of these images; beyond "
        "it lies only code that knows the classifier's layers, as ours does where steps are small "
        "enough to compute anew only what they change."
    )
    return "The floor, Fashion-MNIST, cpu", note, HEADER, rows
