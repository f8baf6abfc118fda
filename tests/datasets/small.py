"""A small data set and model; run as a program, a run of them that tests can interrupt.

python -m tests.datasets.small OUT [--workers N] [--slow SECONDS] [--address ADDRESS]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn import SEA
from sea_nn.datasets.run import Outcome, explain_dataset

METHODS = ("saliency", "input_x_gradient")
SHAPE = (1, 8, 8)


class Net(nn.Module):
    """Three classes; slow where the environment says so: there is time to kill it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(256, 3)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(float(os.environ.get("SMALL_IS_SLOW", 0)))
        return self.head(self.conv(x).relu().flatten(1))


def make_sea(**options: Any) -> SEA:
    return SEA(Net().eval(), METHODS, **options)


def make_inputs(count: int = 24) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(5))


def run(out: Path, source: Any = None, sea: SEA | None = None, **options: Any) -> Outcome:
    """Explain a data set, of 24 inputs in 12 shards."""
    source = make_inputs() if source is None else source
    options = {"batch_size": 2, "shard_size": 2, "quiet": True, **options}
    return explain_dataset(source, sea or make_sea(), out, **options)


def hash_results(out: Path) -> dict[str, str]:
    """Every byte of the results: rows, tensors and the table of inputs."""
    found = [p for p in Path(out).rglob("*") if p.suffix in (".parquet", ".safetensors")]
    return {
        str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(found)
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--slow", default="0")
    parser.add_argument("--address")
    parser.add_argument("--count", type=int, default=24)
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["SMALL_IS_SLOW"] = given.slow
    how = {"workers": given.workers, "address": given.address, "quiet": False}
    run(given.out, make_inputs(given.count), **how)


if __name__ == "__main__":
    sys.exit(main())
