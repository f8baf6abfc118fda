"""Explain all pictures of the data folder's ImageNet, birds and pets, and measure the runs.

    python -m benchmarks.real_run OUT --runs imagenet_128,birds_512

Needs $SEA_NN_DATA and, for the birds, their classifier (``python -m sea_bench.classifiers cub20``).
Each run is a folder such as OUT/birds_128 that ``read_dataset`` opens; what was measured is in
OUT/measured.jsonl. Started again, it does what is missing. ``--seconds`` ends it in time: the open
shard is finished first. Pages are then written by ``python -m benchmarks.real_pages``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import torch

import sea_nn.datasets.shard
import sea_nn.pipeline
import sea_nn.questions.budget
from sea_bench import data as sets
from sea_bench.classifiers import load_classifier
from sea_nn import SEA, explain_dataset
from sea_nn.datasets.files import THREADS
from sea_nn.vision.images import load_image
from sea_nn.vision.models import LoadedModel

MODELS = {"imagenet": "efficientnet-lite0", "birds": "cub20", "pets": "efficientnet-lite0"}
BATCH = {"cuda": 128, "cpu": 4}
LAST = 17  # seconds before the end at which no shard is begun any more
N_COMPARED = 6  # batches that a loop by hand does too
EVERY = 0.2  # seconds between samples of the GPU's state


def write_table(name: str, path: Path) -> Path:
    """A table of the pictures of a set with the model's number of their class."""
    items = sets.load("cub20" if name == "birds" else name, split="all")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "path", "label"))
        for item in items:
            writer.writerow(
                (item.name, item.path, item.label if name == "birds" else item.imagenet)
            )
    return path


class Clock:
    """Seconds in which the model is at work: members' passes, questions and the curve."""

    def __init__(self) -> None:
        self.seconds = {"members": 0.0, "questions": 0.0, "curve": 0.0}

    def time(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, whose time is counted; the device is waited for."""

        def timed(*given: Any, **options: Any) -> Any:
            _wait()
            started = time.perf_counter()
            found = call(*given, **options)
            _wait()
            self.seconds[part] += time.perf_counter() - started
            return found

        return timed

    def install(self) -> None:
        """Count from now on."""
        sea_nn.pipeline.compute_maps = self.time("members", sea_nn.pipeline.compute_maps)
        shard = sea_nn.datasets.shard
        shard.query_sets = self.time("curve", shard.query_sets)
        make = sea_nn.questions.budget.make_ask_only
        sea_nn.questions.budget.make_ask_only = lambda *given, **options: self.time(
            "questions", make(*given, **options)
        )

    def take(self) -> dict[str, float]:
        """The seconds since the last time."""
        found, self.seconds = self.seconds, dict.fromkeys(self.seconds, 0.0)
        return found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def watch_gpu(found: dict[str, Any]) -> Iterator[None]:
    """Sample how busy the driver says the GPU is."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # no GPU here
        yield
        return
    samples: list[int] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(EVERY):
            samples.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    torch.cuda.reset_peak_memory_stats()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        found["gpu_busy"] = sum(samples) / max(1, len(samples)) / 100
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30


class Runs:
    """All runs of one call."""

    def __init__(self, out: Path, seconds: float, device: str, limit: int | None) -> None:
        self.out, self.device, self.limit = out, device, limit
        self.ends, self.clock = time.monotonic() + seconds, Clock()
        self.models: dict[str, LoadedModel] = {}
        self.clock.install()

    def load(self, name: str) -> LoadedModel:
        if MODELS[name] not in self.models:
            self.models[MODELS[name]] = load_classifier(MODELS[name], self.device)
        return self.models[MODELS[name]]

    def note(self, **facts: Any) -> None:
        """Write down what was measured."""
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in facts.items()}, flush=True)
        with (self.out / "measured.jsonl").open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def run(self, name: str, budget: int, folder: Path, **options: Any) -> float:
        """One run, as far as time allows; returns its seconds."""
        loaded, facts = self.load(name), dict[str, Any]()
        self.clock.take()
        timer = threading.Timer(
            max(0.1, self.ends - LAST - time.monotonic()), os.kill, (os.getpid(), signal.SIGTERM)
        )
        timer.daemon = True
        timer.start()
        started = time.perf_counter()
        options = {"members": True, "limit": self.limit, **options}
        try:
            with watch_gpu(facts):
                explain_dataset(
                    write_table(name, self.out / f"{name}.csv"), SEA(loaded.model, budget=budget),
                    folder, preprocess=loaded.preprocess, labels=loaded.labels,
                    model_name=MODELS[name], precision="uint8", batch_size=BATCH[self.device],
                    shard_size=BATCH[self.device], quiet=True, **options,
                )  # fmt: skip
        except SystemExit:
            facts["stopped"] = True
        finally:
            timer.cancel()
        took = time.perf_counter() - started
        self.note(run=folder.name, budget=budget, seconds=took, model=self.clock.take(), **facts)
        return took

    def compare(self, name: str, budget: int, folder: Path) -> None:
        """A loop by hand over some batches, then a run of the same pictures without the curve."""
        loaded, size = self.load(name), BATCH[self.device]
        with write_table(name, self.out / f"{name}.csv").open() as file:
            paths = [row["path"] for row in csv.DictReader(file)][: self.limit or N_COMPARED * size]
        batches = [paths[start : start + size] for start in range(0, len(paths), size)]
        read = lambda path: loaded.preprocess(load_image(path))  # noqa: E731
        sea = SEA(loaded.model, budget=budget)
        _wait()
        started = time.perf_counter()
        with ThreadPool(THREADS) as team:  # the next batch is read while one is explained
            ahead = team.map_async(read, batches[0])
            for following in (*batches[1:], []):
                x = torch.stack(ahead.get())
                ahead = team.map_async(read, following)
                sea.explain(x.to(self.device), quiet=True).attribution.cpu()
        loop = time.perf_counter() - started
        options = {"members": False, "curve": False, "limit": len(paths)}
        mine = self.run(name, budget, folder, **options)
        self.note(
            compared=name, budget=budget, inputs=len(paths), loop=loop, run=mine, ratio=loop / mine
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", default=",".join(f"{s}_{b}" for b in (128, 512) for s in MODELS))
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--compare", default="", help="a run to compare with a loop by hand")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    runs = Runs(given.out, given.seconds, device, given.limit)
    asked = [(run, *run.split("_")) for run in given.runs.split(",")]
    warm = SEA(runs.load(asked[0][1]).model, budget=64)  # the first pass of a process takes seconds
    warm.explain(torch.rand(8, 3, 224, 224, device=device), quiet=True)
    for run, name, budget in asked:
        if runs.ends - time.monotonic() > LAST:
            runs.run(name, int(budget), given.out / run)
        if run == given.compare and runs.ends - time.monotonic() > LAST:
            runs.compare(name, int(budget), given.out / f"{run}_compared")


if __name__ == "__main__":
    main()
