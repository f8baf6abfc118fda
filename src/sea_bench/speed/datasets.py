"""``sea bench speed_datasets``: whole data sets beside a loop written by hand, and their bytes.

Runs take turns, as machines are shared: the ratio is the median over rounds. A run also writes and
syncs its results; the loop only holds them.
"""

import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_nn import SEA, explain_dataset, read_dataset
from sea_nn.vision.models import load_model
from sea_nn.vision.shipped import load_sample

ROUNDS, BUDGET, BATCH = 3, 64, 64


def time_rate(folder: Path, count: int) -> Table:
    """One process against a loop over ``SEA.explain``."""
    images, loaded = load_sample().images, load_model("fashion-cnn")
    # Again with other brightness where there are too few.
    x = torch.cat([images * (1 - 0.01 * k) for k in range(-(-count // len(images)))])[:count]
    sea = SEA(loaded.model, budget=BUDGET, output="logits")
    how: dict[str, Any] = {"labels": loaded.labels, "batch_size": BATCH, "curve": False}
    loops, runs = [], []
    for turn in range(ROUNDS):
        started = time.process_time()
        kept = [sea.attribute(part) for part in x.split(BATCH)]
        loops.append(len(torch.cat(kept)) / (time.process_time() - started))
        started = time.process_time()
        explain_dataset(x, sea, folder / str(turn), quiet=True, **how)
        runs.append(count / (time.process_time() - started))
    ratios = [mine / loop for mine, loop in zip(runs, loops, strict=True)]
    note = (
        f"Fashion-MNIST, {count} inputs, budget {BUDGET}, batches of {BATCH}: inputs a second of "
        f"processor time, medians of {ROUNDS} turns, without the keep and remove curve."
    )
    row = [f"{median(loops):.1f}", f"{median(runs):.1f}", f"{median(ratios):.2f}"]
    return Table("A run beside a loop", note, ["loop", "run", "ratio"], [row])


def measure_bytes(folder: Path) -> Table:
    """What maps take on the disk, and how fast they are read."""
    rows = []
    for shape in ((1, 28, 28), (3, 224, 224)):
        size = int(torch.tensor(shape).prod())
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, 4))
        sea = SEA(model, ("saliency", "input_x_gradient"), budget=None, output="logits")
        x = torch.rand(64, *shape, generator=torch.Generator().manual_seed(0))
        for precision in ("float16", "uint8"):
            out = folder / f"bytes-{shape[1]}-{precision}"
            explain_dataset(x, sea, out, precision=precision, quiet=True)
            data = read_dataset(out)
            stored = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
            order = random.Random(0).sample(data.ids, len(x))
            started = time.perf_counter()
            for id_ in order:
                _ = data[id_].map
            single = len(x) / (time.perf_counter() - started)
            side = " x ".join(map(str, shape))
            rows.append([side, precision, f"{stored / len(x) / 1000:.1f}", f"{single:.0f}"])
    note = "Kilobytes an input, all files; maps read a second by id in random order (cached)."
    return Table("Bytes and reading", note, ["input", "stored", "kB an input", "read"], rows)


@experiment(
    "speed_datasets",
    "Whole data sets: how fast, how large?",
    "fashion_sample",
    n_inputs=512,
    quick=64,
)
def datasets(run: Run) -> Findings:
    """What does a run that can be resumed cost beside a loop, and what does it write?"""
    with tempfile.TemporaryDirectory() as place:
        run.tell("rate", 0, 2)
        rate = time_rate(Path(place), run.count)
        run.tell("bytes", 1, 2)
        return Findings([rate, measure_bytes(Path(place))])
