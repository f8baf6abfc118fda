"""What `compile=True` gains, and Captum on a model under `torch.compile` beside it.

Compiling takes a minute or two for a model, so each model compiles in a process of its own, all of
them at once; then they are timed one after the other. The table is written after each row into its
own section of docs/results/engine.md.
"""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine import best, load_cases, repeat, write
from benchmarks.members import PAPER, Captum, cosine, explain
from benchmarks.table import Table

HEADER = [
    *("model", "batch", "as it is", "`compile=True`", "gain", "cosine", "first call, s"),
    *("Captum", "Captum, compiled"),
]
NOTE = (
    "Images a second of the paper's ensemble (VG, IG, SG), without and with `compile=True`; the "
    "cosine is the least between the maps of the two. The first call compiles, while the other "
    "processes do as well; an empty cell was served by code made before. Captum by hand is timed "
    "on the same images, the best of two calls after one untimed, plain and under `torch.compile`."
)
EIGHT = 8  # images for which Captum is compiled as well: each number of them takes a minute
WAIT = 60  # seconds for which the first to have compiled wait for the last


def run() -> Iterator[Table]:
    began, gpu = time.perf_counter(), torch.cuda.is_available()
    names, sizes = ("efficientnet-lite0", "resnet50"), (EIGHT, 1, 32)
    if not gpu:
        names, sizes = names[:1], (1,)
    spawn = torch.multiprocessing.get_context("spawn")
    jobs = [(work, name) for work in (_ours, _captum) for name in names]
    found, lock, compiled = spawn.Queue(), spawn.Lock(), spawn.Barrier(len(jobs), timeout=WAIT)
    started = [
        spawn.Process(target=_job, args=(*job, sizes, found, lock, compiled), daemon=True)
        for job in jobs
    ]
    for process in started:
        process.start()
    rows = {(name, size): [name, str(size), *[""] * 7] for name in names for size in sorted(sizes)}
    table: Table = ("Compiled passes", NOTE, HEADER, list(rows.values()))
    while any(process.is_alive() for process in started) or not found.empty():
        try:
            name, size, place, cells = found.get(timeout=1)
        except queue.Empty:
            continue
        rows[name, size][place : place + len(cells)] = cells
        print(f"{time.perf_counter() - began:.0f} s:", " | ".join(rows[name, size]), flush=True)
        write([table], "an H200, compiled" if gpu else "two CPU cores, compiled")
    yield table


def _job(
    work: Any, name: str, sizes: tuple[int, ...], found: Any, lock: Any, compiled: Any
) -> None:
    warnings.simplefilter("ignore")
    cases = {size: case for (_, size), case in load_cases(sizes, (name,)).items()}
    timed = work({size: cases[size] for size in sizes})
    next(timed)  # compiles
    try:
        compiled.wait()
    except Exception as late:
        print(f"{name}: another process still compiles ({late!r})", flush=True)
    with lock:
        for size, place, cells in timed:
            found.put((name, size, place, cells))
    found.close()
    found.join_thread()


Case = tuple[nn.Module, Tensor, Tensor]
Timed = Iterator[tuple[int, int, list[str]]]


def _ours(cases: dict[int, Case]) -> Timed:
    first = {}
    for size, case in cases.items():
        start = time.perf_counter()
        explain(*case, PAPER, True)
        first[size] = time.perf_counter() - start
    yield 0, 0, []
    for size, case in cases.items():
        calls = repeat(size) if torch.cuda.is_available() else (1, 0)
        plain, (expected, _, _) = best(partial(explain, *case, PAPER), *calls)
        quick, (maps, _, _) = best(partial(explain, *case, PAPER, True), *calls)
        same = min(cosine(a, b) for a, b in zip(maps, expected, strict=True))
        cells = [f"{size / plain:.2f}", f"{size / quick:.2f}", f"{plain / quick:.2f}"]
        yield size, 2, [*cells, f"{same:.5f}", f"{first[size]:.0f}"]


def _captum(cases: dict[int, Case]) -> Timed:
    size = EIGHT if EIGHT in cases else 1
    model, x, target = cases[size]
    both = [Captum(model), Captum(torch.compile(model))]  # type: ignore[arg-type]
    for captum in both:
        captum.explain(x, target)
    yield 0, 0, []
    for place, captum in enumerate(both):
        seconds = min(sum(captum.explain(x, target)[1]) for _ in range(2))
        yield size, 7 + place, [f"{size / seconds:.2f}"]
