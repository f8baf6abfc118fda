"""Whole data sets: rate against a loop written by hand, two workers, bytes, reading, memory, scale.

Runs take turns, as machines are shared: each round does the loop and the run, and the ratio is the
median over rounds, in time and in processor time, which other work disturbs less. Workers of Ray
are compared by the processor time of each input between their first and last commit, so the start
of Ray and of its workers (about 10 s) is left out. A run also writes and syncs its results; the
loop only holds them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.table import Table
from sea_nn import SEA, SEAConfig, explain_dataset, read_dataset
from sea_nn.datasets.storage import read_log
from sea_nn.vision.images import load_image
from sea_nn.vision.models import load_model
from sea_nn.vision.shipped import load_sample

ROUNDS = 3
CHEAP = ("saliency", "input_x_gradient", "grad_cam")
WORKERS_PROGRAM = """
import sys, torch
torch.set_num_threads(1)
from benchmarks.datasets import fashion
from sea_nn import explain_dataset
x, sea, labels = fashion(int(sys.argv[2]))
workers = int(sys.argv[3])
explain_dataset(x, sea, sys.argv[1], labels=labels, batch_size=16, shard_size=16, curve=False,
                workers=workers, address="local" if workers == 1 else None, quiet=True)
"""


def fashion(count: int) -> tuple[torch.Tensor, SEA, tuple[str, ...]]:
    """Shipped pictures of clothes, again with other brightness where there are too few."""
    images = load_sample().images
    turns = -(-count // len(images))
    x = torch.cat([images * (1 - 0.01 * k) for k in range(turns)])[:count]
    loaded = load_model("fashion-cnn")
    return x, SEA(loaded.model, budget=64, output="logits"), loaded.labels


def write_photographs(folder: Path, count: int) -> Path:
    """JPEG files of 500 x 375: crops of the shipped photographs."""
    from benchmarks.members import load_photographs

    pictures, draw = load_photographs(), random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        picture = pictures[number % len(pictures)]
        side = round(draw.uniform(0.6, 1.0) * min(picture.size))
        left, top = (draw.randint(0, whole - side) for whole in picture.size)
        crop = picture.crop((left, top, left + side, top + side)).resize((500, 375))
        crop.save(folder / f"{number:05d}.jpg", quality=92)
    return folder


def run() -> Iterator[Table]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        yield rate_table(folder)
        yield workers_table(folder)
        yield bytes_table(folder)
        yield estimate_table(folder)
    yield scale_table()


def rate_table(folder: Path) -> Table:
    rows = []
    x, sea, labels = fashion(128)
    rows.append(
        _compare("Fashion-MNIST, 128, budget 64", len(x), 64, sea, x, folder, labels=labels)
    )
    loaded = load_model("efficientnet-lite0")
    photographs = write_photographs(folder / "photographs", 4)
    lite = SEA(loaded.model, CHEAP, SEAConfig(), output="logits")
    name = "photographs, 4 JPEG files, lite0, members fast"
    rows.append(_compare(name, 4, 4, lite, photographs, folder, preprocess=loaded.preprocess))
    return (
        "One process against a loop over SEA.explain",
        "Inputs a second on one thread, the run's own batches in both; medians of three turns. "
        "Without the keep/remove curve, which the loop does not ask for.",
        ("data", "batch", "loop", "run", "ratio of time", "ratio of processor time"),
        rows,
    )


def _compare(
    name: str, count: int, best: int, sea: SEA, source: Any, folder: Path, **options: Any
) -> list[str]:
    walls, busy, loops, runs = [], [], [], []
    for turn in range(ROUNDS):
        before, started = time.process_time(), time.perf_counter()
        if isinstance(source, Path):
            _loop_pictures(sea, source, options["preprocess"], best)
        else:
            _loop_tensors(sea, source, best)
        loop, loop_busy = time.perf_counter() - started, time.process_time() - before
        out = folder / f"{name.split(',')[0]}-{turn}"
        before, started = time.process_time(), time.perf_counter()
        explain_dataset(source, sea, out, curve=False, quiet=True, **options)
        mine, mine_busy = time.perf_counter() - started, time.process_time() - before
        walls.append(loop / mine)
        busy.append(loop_busy / mine_busy)
        loops.append(count / loop)
        runs.append(count / mine)
    return [name, str(best), f"{median(loops):.2f}", f"{median(runs):.2f}",
            f"{median(walls):.2f}", f"{median(busy):.2f}"]  # fmt: skip


def _loop_tensors(sea: SEA, x: torch.Tensor, batch: int) -> float:
    started = time.perf_counter()
    kept = [sea.explain(part, quiet=True).attribution for part in x.split(batch)]
    del kept
    return time.perf_counter() - started


def _loop_pictures(sea: SEA, folder: Path, preprocess: Any, batch: int) -> None:
    paths, kept = sorted(folder.iterdir()), []
    for start in range(0, len(paths), batch):
        x = torch.stack([preprocess(load_image(p)) for p in paths[start : start + batch]])
        kept.append(sea.explain(x, quiet=True).attribution)


def workers_table(folder: Path) -> Table:
    """Two workers against one, and two runs that know nothing of each other as a control."""
    rows = []
    for turn in range(ROUNDS):
        rates = []
        for name, runs in (
            ("one", [(1, "0")]),
            ("two", [(2, "0,1")]),
            ("apart", [(1, "0"), (1, "1")]),
        ):
            outs = [folder / f"{name}-{turn}-{i}" for i in range(len(runs))]
            started = [
                subprocess.Popen(
                    ["taskset", "-c", cores, sys.executable, "-c", WORKERS_PROGRAM, str(out),
                     str(256 * workers), str(workers)],
                    env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"},
                )
                for out, (workers, cores) in zip(outs, runs, strict=True)
            ]  # fmt: skip
            if any(process.wait() for process in started):
                raise RuntimeError(f"a run of {name} failed")
            rates.append(sum(measure_workers(out) for out in outs))
        one, two, apart = rates
        ratios = two / one / 2, apart / one / 2, two / apart
        rows.append([str(turn + 1), *(f"{r:.1f}" for r in rates), *(f"{r:.2f}" for r in ratios)])
    return (
        "Two Ray workers, one, and two runs apart",
        "Fashion-MNIST, budget 64, batches of 16, 256 inputs a worker: inputs a second of all "
        "workers together, each from its first commit to its last. One is pinned to a core; two "
        "runs apart are pinned to a core each, and show what the machine gives two processes.",
        ("turn", "one", "two workers", "two runs apart", "two workers of twice one",
         "two runs of twice one", "two workers of two runs"),
        rows,
    )  # fmt: skip


def measure_workers(out: Path) -> float:
    """Inputs a second of all workers together, each from its first commit to its last."""
    by_worker: dict[str, list[Any]] = {}
    for event in read_log(out):
        if event["event"] == "commit":
            by_worker.setdefault(event["worker"], []).append(event)
    return sum(
        sum(event["n_inputs"] for event in own[1:]) / max(own[-1]["time"] - own[0]["time"], 1e-9)
        for own in by_worker.values()
    )


def estimate_table(folder: Path) -> Table:
    x, sea, labels = fashion(192)
    options = {"labels": labels, "batch_size": 32, "shard_size": 96, "quiet": True}
    guess: Any = explain_dataset(x, sea, folder / "estimate", dry_run=True, **options)
    real: Any = explain_dataset(x, sea, folder / "estimate", **options)
    pairs = ("evaluations", "bytes", "seconds")
    rows = [[k, f"{getattr(guess, k):.0f}", f"{getattr(real, k):.0f}",
             f"{getattr(guess, k) / getattr(real, k):.2f}"] for k in pairs]  # fmt: skip
    return (
        "What a dry run says, and what the run then took",
        f"192 pictures of Fashion-MNIST, budget 64; the dry run measured {guess.sample} of them.",
        ("", "dry run", "run", "ratio"),
        rows,
    )


def bytes_table(folder: Path) -> Table:
    rows = []
    config = SEAConfig(epochs=5)
    for name, shape in (("1 x 28 x 28", (1, 28, 28)), ("3 x 224 x 224", (3, 224, 224))):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), 4))
        coarse = {"occlusion": {"window": shape[1] // 4, "stride": shape[1] // 4}}
        methods = ("saliency", "input_x_gradient", "occlusion")
        sea = SEA(model, methods, config, budget=None, output="logits", options=coarse)
        count = 64
        x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))
        for precision, members in (("float16", False), ("uint8", False), ("float16", True)):
            out = folder / f"bytes-{shape[1]}-{precision}-{members}"
            done = explain_dataset(x, sea, out, precision=precision, members=members, quiet=True)  # type: ignore[arg-type]
            data = read_dataset(out)
            started = time.perf_counter()
            for shard in data.shards:
                data.read_shard(shard)
            whole = count / (time.perf_counter() - started)
            order = random.Random(0).sample(data.ids, count)
            started = time.perf_counter()
            for id_ in order:
                _ = data[id_].map
            single = count / (time.perf_counter() - started)
            with_members = f"{precision}{', members' if members else ''}"
            each = getattr(done, "bytes", 0) / count
            rows.append([name, with_members, f"{each / 1000:.1f}", f"{whole:.0f}", f"{single:.0f}"])
    return (
        "Bytes and reading",
        "Kilobytes an input with thumbnail, top features and row; maps read a second, whole shards "
        "and single ids in random order (from the file cache).",
        ("input", "stored", "kB an input", "by shard", "by id"),
        rows,
    )


def scale_table() -> Table:
    rows = []
    for budget, rate, shard_size in (
        (128, 48.0, 256), (128, 48.0, 1024), (128, 48.0, 4096), (512, 13.6, 1024)
    ):  # fmt: skip
        found = simulate(10**8, 1000, 1 / rate, shard_size)
        rows.append(
            [
                str(budget),
                str(shard_size),
                f"{found['shards']:,}",
                f"{found['hours']:.2f}",
                f"{found['efficiency']:.1%}",
                f"{found['redone']:.2%}",
                f"{found['writes']:.0f}",
            ]
        )
    return (
        "10^8 pictures on 1,000 GPUs, simulated",
        "48.0 and 13.6 pictures a second and GPU, as measured on an H200 with JPEG files, "
        "EfficientNet-Lite0, budgets of 128 and 512 and the keep and remove curve "
        "(datasets_real.md); each worker 5 % faster or slower, 1 in 100 half as fast; a worker is "
        "lost once in 30 days on average and back after 5 minutes. Efficiency is against 1,000 "
        "even workers that never stop; files are counted a second. 78 kB an input (8 bits) are "
        "7.8 TB.",
        ("budget", "shard", "shards", "hours", "efficiency", "done again", "files/s"),
        rows,
    )


def simulate(count: int, workers: int, each: float, shard_size: int) -> dict[str, float]:
    """Workers take shards from one queue; those that fail lose their open shard."""
    import heapq

    draw = np.random.default_rng(0)
    pace = draw.normal(1, 0.05, workers).clip(0.8, 1.2) * np.where(
        draw.random(workers) < 0.01, 2, 1
    )
    life, back = 30 * 86400.0, 300.0
    shards = -(-count // shard_size)
    free = [(0.0, k) for k in range(workers)]
    heapq.heapify(free)
    left, lost, last = shards, 0, 0.0
    while left:
        now, worker = heapq.heappop(free)
        took = each * shard_size * float(pace[worker])
        if draw.random() < took / life:
            heapq.heappush(free, (now + took * draw.random() + back, worker))
            lost += 1
            continue
        left -= 1
        last = max(last, now + took)
        heapq.heappush(free, (now + took, worker))
    ideal = count * each / workers
    return {
        "shards": shards,
        "hours": last / 3600,
        "efficiency": ideal / last,
        "redone": lost / shards,
        "writes": 2 * shards / last,
    }
