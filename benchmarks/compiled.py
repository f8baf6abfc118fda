"""What `compile=True` gains, and Captum on a model under `torch.compile` beside it.

Written into its own section of docs/results/engine.md, row by row: compiling takes minutes. Nothing
else should compile meanwhile: four processes at once took longer than one after the other.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine import best, forget, load_cases, repeat, write
from benchmarks.members import PAPER, Captum, cosine, explain
from benchmarks.table import Table

HEADER = [
    *("model", "batch", "as it is", "`compile=True`", "gain", "cosine of the two"),
    *("first call, s", "Captum", "Captum, compiled"),
]
NOTE = (
    "Images a second of the paper's ensemble (VG, IG, SG), without and with `compile=True`. The "
    "first call compiles; PyTorch keeps code on disk between runs. Captum by hand is timed on the "
    "same images, its second call, plain and under `torch.compile`."
)
CAPTUM = 8  # images for which Captum is compiled as well: one number of them takes a minute


def run() -> Iterator[Table]:
    warnings.simplefilter("ignore")
    began, gpu = time.perf_counter(), torch.cuda.is_available()
    cases = load_cases() if gpu else load_cases((CAPTUM,), ("efficientnet-lite0",))
    rows = {case: [case[0], str(case[1]), *[""] * (len(HEADER) - 2)] for case in cases}
    table: Table = ("Compiled passes", NOTE, HEADER, list(rows.values()))
    # A model's code for CAPTUM images serves its other batches, so these come first.
    for case in sorted(cases, key=lambda case: (case[0], case[1] != CAPTUM)):
        for measure, place in ((_ours, 2), (_captum, 7)):
            if case[1] != CAPTUM and measure is _captum:
                continue
            if case[1] == CAPTUM:
                forget()
            cells = measure(*cases[case])
            rows[case][place : place + len(cells)] = cells
            print(f"{time.perf_counter() - began:.0f} s:", " | ".join(rows[case]), flush=True)
            write([table], "an H200, compiled" if gpu else "two CPU cores, compiled")
    yield table


def _ours(model: nn.Module, x: Tensor, target: Tensor) -> list[str]:
    size = len(x)
    calls = repeat(size) if x.is_cuda else (1, 0)
    seconds, (plain, _, _) = best(partial(explain, model, x, target, PAPER), *calls)
    start = time.perf_counter()
    explain(model, x, target, PAPER, True)
    first = time.perf_counter() - start
    quick, (maps, _, _) = best(partial(explain, model, x, target, PAPER, True), *calls)
    same = min(cosine(a, b) for a, b in zip(maps, plain, strict=True))
    rates = [f"{size / seconds:.1f}", f"{size / quick:.1f}", f"{seconds / quick:.2f}"]
    return [*rates, f"{same:.5f}", f"{first:.0f}"]


def _captum(model: nn.Module, x: Tensor, target: Tensor) -> list[str]:
    def rate(model: Any) -> str:
        captum = Captum(model)
        captum.explain(x, target)
        return f"{len(x) / sum(captum.explain(x, target)[1]):.1f}"

    # Code for sizes of every kind was half as fast as no code: each size gets its own.
    return [rate(model), rate(torch.compile(model, dynamic=False))]
