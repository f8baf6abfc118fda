"""Whole data sets: rate against a loop written by hand, two workers, bytes, reading, memory, scale.

Runs take turns, as machines are shared: each round does the loop and the run, and the ratio is the
median over rounds. Ray's rates are of committed inputs between the first and the last commit, so
the start of Ray and of its workers (about 10 s) is left out. A run also writes and syncs its
results; the loop only holds them.
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
MEMORY_PROGRAM = """
import sys, torch
torch.set_num_threads(1)
from benchmarks.datasets import Stream
from sea_nn import SEA, SEAConfig, explain_dataset
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
sea = SEA(model, ("saliency",), SEAConfig(rounds=0, epochs=5), output="logits")
explain_dataset(Stream(int(sys.argv[1])), sea, sys.argv[2], batch_size=256, shard_size=1024,
                curve=False, quiet=True)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""
WORKERS_PROGRAM = """
import sys, torch
torch.set_num_threads(1)
from benchmarks.datasets import fashion
from sea_nn import explain_dataset
x, sea, labels = fashion(int(sys.argv[2]))
workers = int(sys.argv[3])
explain_dataset(x, sea, sys.argv[1], labels=labels, shard_size=16, curve=False, workers=workers,
                address="local" if workers == 1 else None, quiet=True)
"""


class Stream(torch.utils.data.Dataset[torch.Tensor]):
    """Inputs of 28 x 28 made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(index))


def fashion(count: int) -> tuple[torch.Tensor, SEA, tuple[str, ...]]:
    """Shipped pictures of clothes, again with other brightness where there are too few."""
    images = load_sample().images
    turns = -(-count // len(images))
    x = torch.cat([images * (1 - 0.01 * k) for k in range(turns)])[:count]
    loaded = load_model("fashion-cnn")
    return x, SEA(loaded.model, output="logits"), loaded.labels


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
        yield memory_table(folder)
        if torch.cuda.is_available():
            yield gpu_table(folder)
    yield scale_table()


def rate_table(folder: Path) -> Table:
    rows = []
    x, sea, labels = fashion(96)
    by_batch = {b: _loop_tensors(sea, x[:64], b) for b in (4, 16, 64)}
    best = min(by_batch, key=lambda b: by_batch[b])
    rows.append(_compare("Fashion-MNIST, 96, tensors", len(x), best, sea, x, folder, labels=labels))
    loaded = load_model("efficientnet-lite0")
    photographs = write_photographs(folder / "photographs", 8)
    lite = SEA(loaded.model, "fast", output="logits")
    name = "photographs, 8, JPEG, lite0, fast"
    rows.append(_compare(name, 8, 1, lite, photographs, folder, preprocess=loaded.preprocess))
    return (
        "One process against a loop over SEA.explain",
        f"Inputs a second on one thread. Best batch of the loop on Fashion-MNIST: {best} (default "
        "of the run: 16). Without the keep/remove curve, which the loop does not ask for.",
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
    rates, load = {}, os.getloadavg()[0]
    for workers, count in ((1, 96), (2, 192)):
        out = folder / f"workers-{workers}"
        command = [sys.executable, "-c", WORKERS_PROGRAM, str(out), str(count), str(workers)]
        pin = ["taskset", "-c", "0"] if workers == 1 else []
        subprocess.run([*pin, *command], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        events = [e for e in read_log(out) if e["event"] == "commit"]
        by_worker: dict[str, list[Any]] = {}
        for event in events:
            by_worker.setdefault(event["worker"], []).append(event)
        rates[workers] = 0.0
        for own in by_worker.values():
            own.sort(key=lambda e: e["time"])
            if len(own) > 1:
                span = own[-1]["time"] - own[0]["time"]
                rates[workers] += sum(e["n_inputs"] for e in own[1:]) / span
    ratio = rates[2] / (2 * rates[1])
    return (
        "Two Ray workers",
        "Fashion-MNIST, inputs a second while both work; one worker is pinned to one core. The "
        f"load of the machine before was {load:.1f} on {os.cpu_count()} cores: above 0, other work "
        "takes the second worker's core, and the ratio says little.",
        ("one worker", "two workers", "of twice one"),
        [[f"{rates[1]:.2f}", f"{rates[2]:.2f}", f"{ratio:.2f}"]],
    )


def bytes_table(folder: Path) -> Table:
    rows = []
    config = SEAConfig(rounds=0, epochs=5)
    for name, shape in (("1 x 28 x 28", (1, 28, 28)), ("3 x 224 x 224", (3, 224, 224))):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), 4))
        coarse = {"occlusion": {"window": shape[1] // 4, "stride": shape[1] // 4}}
        methods = ("saliency", "input_x_gradient", "occlusion")
        sea = SEA(model, methods, config, output="logits", options=coarse)
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


def gpu_table(folder: Path) -> Table:
    """How busy the GPU is kept with pictures decoded from JPEG; a ResNet-50 of random weights."""
    from sea_nn.vision.resnet import ResNet50

    loaded, rows = load_model("fashion-cnn").preprocess, []
    preprocess = type(loaded)(resize=256, crop=224)
    model = ResNet50().cuda().eval()
    photographs = write_photographs(folder / "gpu-photographs", 512)
    for methods in ("fast", "paper"):
        out = folder / f"gpu-{methods}"
        sea = SEA(model, methods, output="logits")
        explain_dataset(photographs, sea, out, preprocess=preprocess, quiet=True)
        events = sorted(read_log(out), key=lambda e: e["time"])
        commits = [e for e in events if e["event"] == "commit"]
        span = commits[-1]["time"] - events[0]["time"]
        busy = sum(e["seconds"]["explain"] for e in commits)
        load = sum(e["seconds"]["load"] for e in commits)
        write = sum(e["seconds"]["write"] for e in commits)
        rows.append([methods, f"{512 / span:.1f}", f"{busy / span:.1%}", f"{load / span:.1%}",
                     f"{write / span:.1%}"])  # fmt: skip
    return (
        "Pictures from JPEG files on a GPU",
        "512 files of 500 x 375, ResNet-50 at 224 x 224. Explaining is the share of the time in "
        "which the model is at work; loading and writing run beside it.",
        ("members", "inputs a second", "explaining", "loading", "writing"),
        rows,
    )


def memory_table(folder: Path) -> Table:
    rows = []
    for count in (2_000, 20_000):
        command = [sys.executable, "-c", MEMORY_PROGRAM, str(count), str(folder / f"m{count}")]
        started = time.perf_counter()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        took = time.perf_counter() - started
        rows.append([f"{count:,}", f"{int(said.split()[-1]) / 1024:.0f}", f"{count / took:.0f}"])
    return (
        "Memory",
        "Peak of the whole process in MiB; one member, a linear model, so that many inputs pass.",
        ("inputs", "peak, MiB", "inputs a second"),
        rows,
    )


def scale_table() -> Table:
    rows = []
    for shard_size in (256, 1024, 4096):
        found = simulate(10**8, 1000, 0.04, shard_size)
        rows.append(
            [
                str(shard_size),
                f"{found['shards']:,}",
                f"{found['hours']:.2f}",
                f"{found['efficiency']:.1%}",
                f"{found['redone']:.2%}",
                f"{found['writes']:.0f}",
                f"{found['terabytes']:.0f}",
            ]
        )
    return (
        "10^8 pictures on 1,000 GPUs, simulated",
        "0.04 s a picture (25 a second: the paper's members on an H200 with ResNet-50, "
        "members_h200.md), each worker 5 % faster or slower, 1 in 100 half as fast; a worker is "
        "lost once in 30 days on average and back after 5 minutes; 129 kB an input. Efficiency "
        "is against 1,000 even workers that never stop; files are counted a second.",
        ("shard", "shards", "hours", "efficiency", "done again", "files/s", "TB"),
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
        "terabytes": count * 129e3 / 1e12,
    }
