"""Timing and tables that all benchmarks share."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch

from sea_bench.experiments.pages import wrap
from sea_bench.machine import describe_machine

Table = tuple[str, str, Sequence[str], Sequence[Sequence[str]]]


def seconds(work: Callable[[], object], repeats: int = 3, warm: bool = True) -> float:
    """Median wall time of ``work``, after one untimed run; waits for the GPU."""

    def once() -> float:
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - start

    if warm:
        once()
    return sorted(once() for _ in range(repeats))[repeats // 2]


def peak_memory(setup: str, code: str) -> float:
    """MiB that ``code`` adds at its peak, in a fresh process after ``setup`` (Linux)."""
    program = f"""
import torch
from sea_nn import SEAConfig, ensemble

def status(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) / 1024

{setup}
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before = status("VmRSS")
{code}
print(status("VmHWM") - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def hardware() -> str:
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{describe_machine(torch.device('cpu'))}{device}; torch {torch.__version__}"


def to_markdown(title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"## {title}", "", *wrap(note), ""] if note else [f"## {title}", ""]
    lines.append("| " + " | ".join(header) + " |")
    lines.append("|" + "---|" * len(header))
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
