"""The engine for one process: while a shard is explained, the next is loaded, the last written."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from sea_nn.datasets.shard import Job, Loaded, Work, explain_shard, load_shard
from sea_nn.datasets.storage import (
    Array,
    Log,
    Rows,
    commit,
    list_committed,
    read_facts,
    read_rows,
    rows_path,
    tensors_path,
)
from sea_nn.errors import MemberError


@dataclass(frozen=True)
class Task:
    """A shard to do: all of it, or only some inputs of one that is there already."""

    shard: int
    only: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Done:
    """What a worker tells of a committed shard."""

    shard: int
    worker: str
    n_inputs: int
    failed: int
    evaluations: int
    bytes: int
    seconds: dict[str, float]
    example: str = ""


class Worker:
    """Does shards one after another in one process."""

    def __init__(self, job: Job, tick: Callable[[int], None] = lambda count: None) -> None:
        self.job, self.tick = job, tick
        self.log = Log(job.out)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._loader = ThreadPoolExecutor(1, "sea-load")
        self._writer = ThreadPoolExecutor(1, "sea-write")
        self._ahead: dict[Task, Future[Loaded]] = {}

    def prefetch(self, task: Task) -> None:
        """Begin to load a shard's inputs."""
        if task not in self._ahead:
            self._ahead[task] = self._loader.submit(load_shard, self.job, task.shard, task.only)

    def start(self, task: Task) -> Future[Done]:
        """Explain a shard; the future is done once it is committed."""
        self.log.write("begin", shard=task.shard)
        self.prefetch(task)
        loaded = self._ahead.pop(task).result()
        with use_threads(self.job.manifest.threads):
            work = explain_shard(self.job, loaded, self.tick)
        self._check(task, work)
        return self._writer.submit(self._commit, task, work)

    def close(self) -> None:
        """Wait for what is being written, and load nothing more."""
        self._loader.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True)
        self.log.close()

    def _check(self, task: Task, work: Work) -> None:
        """Stop a run whose model cannot explain anything, before it fills with errors."""
        kinds = {row.get("error_kind") for row in work.rows.rows}
        if "model" not in kinds or None in kinds or task.only is not None:
            return
        if not list_committed(self.job.out):
            errors = [r["error"] for r in work.rows.rows if r.get("error_kind") == "model"]
            raise MemberError(f"no input of shard {task.shard} could be explained: {errors[0]}")

    def _commit(self, task: Task, work: Work) -> Done:
        started = time.perf_counter()
        version, rows = 0, work.rows
        if task.only is not None:
            version, rows = _merge(self.job, task.shard, rows)
        size = commit(self.job.out, task.shard, rows, version)
        if version:
            tensors_path(self.job.out, task.shard, version - 1).unlink(missing_ok=True)
        seconds = {**work.seconds, "write": time.perf_counter() - started}
        errors = [row["error"] for row in work.rows.rows if row.get("error")]
        done = Done(
            task.shard,
            self.name,
            len(work.rows.rows),
            work.failed,
            work.evaluations,
            size,
            seconds,
            errors[0] if errors else "",
        )
        self.log.write(
            "commit",
            **{**asdict(done), "each": sum(seconds.values()) / max(1, done.n_inputs)},
        )
        return done


def run_here(
    job: Job,
    tasks: Sequence[Task],
    finished: Callable[[Done], None],
    stopping: Callable[[], bool],
    tick: Callable[[int], None],
) -> None:
    """Do all tasks in this process; once ``stopping`` is true, end after the open shard."""
    worker = Worker(job, tick)
    writing: Future[Done] | None = None
    try:
        for place, task in enumerate(tasks):
            if stopping():
                break
            worker.prefetch(task)
            if place + 1 < len(tasks):
                # Loading runs one shard ahead, no further: memory stays flat.
                worker.prefetch(tasks[place + 1])
            following = worker.start(task)
            if writing is not None:
                finished(writing.result())
            writing = following
        if writing is not None:
            finished(writing.result())
    finally:
        worker.close()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with so many threads: sums split over other numbers differ in the last bits."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


def _merge(job: Job, shard: int, fresh: Rows) -> tuple[int, Rows]:
    """Put freshly explained inputs into the shard that is there; return its next version too."""
    from safetensors.numpy import load_file

    facts = read_facts(rows_path(job.out, shard))
    place = job.out / "tensors" / f"{shard // 1000:04d}" / facts["tensors"]
    parts = facts["tensors"].split(".")
    version = int(parts[1]) + 1 if len(parts) == 3 else 1
    tensors: dict[str, Array] = load_file(place)
    new: dict[int, dict[str, Any]] = {row["index"]: row for row in fresh.rows}
    rows, kept = [], []
    for row in read_rows(job.out, shard).to_pylist():
        row = new.get(row["index"], row)
        if row.get("place") is not None:
            origin = fresh.tensors if row["index"] in new else tensors
            kept.append({name: values[row["place"]] for name, values in origin.items()})
            row = {**row, "place": len(kept) - 1}
        rows.append(row)
    joined = {name: np.stack([one[name] for one in kept]) for name in (kept[0] if kept else ())}
    methods = fresh.methods or tuple(facts["methods"])
    return version, replace(fresh, rows=rows, tensors=joined, methods=methods)
