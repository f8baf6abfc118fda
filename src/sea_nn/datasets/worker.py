"""A worker does shards in turn: while one is explained, the next is read and the last written."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from sea_nn.datasets.items import Item, ItemError
from sea_nn.datasets.shard import Job, explain_inputs, load_input
from sea_nn.datasets.storage import (
    Log,
    Rows,
    commit,
    list_committed,
    read_facts,
    read_rows,
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
    """What a worker tells of a committed shard.

    Attributes:
        shard: its number.
        worker: the worker's name.
        n_inputs: inputs that were done.
        failed: how many of them have an error.
        evaluations: of the model, in all.
        bytes: written.
        seconds: of waiting for inputs, explaining and writing.
        example: the first error.
    """

    shard: int
    worker: str
    n_inputs: int
    failed: int
    evaluations: int
    bytes: int
    seconds: dict[str, float]
    example: str = ""


class Worker:
    """Does shards in one process; ``tick`` is told how many inputs were explained."""

    def __init__(self, job: Job, tick: Callable[[int], None] = lambda count: None) -> None:
        self.job, self.tick = job, tick
        self.log = Log(job.out)
        self.name = f"{platform.node()}:{os.getpid()}"
        self._readers, self._writer = ThreadPool(job.source.threads), ThreadPool(1)
        self._ahead: dict[Task, AsyncResult[list[Item | ItemError]]] = {}

    def do(self, task: Task, following: Task | None = None) -> AsyncResult[Done]:
        """Explain a shard and begin to read the next; the result is there once it is committed."""
        self.log.write("begin", shard=task.shard)
        for wanted in (task, following):
            if wanted is not None and wanted not in self._ahead:
                # Reading runs one shard ahead, no further: memory stays flat.
                read = partial(load_input, self.job)
                self._ahead[wanted] = self._readers.map_async(read, self._numbers(wanted))
        times = [time.perf_counter()]
        items = self._ahead.pop(task).get()
        times.append(time.perf_counter())
        with use_threads(self.job.manifest.threads):
            loaded = dict(zip(self._numbers(task), items, strict=True))
            found = explain_inputs(self.job, loaded, self.tick)
        times.append(time.perf_counter())
        seconds = {"wait": times[1] - times[0], "explain": times[2] - times[1]}
        self._check(task, found)
        return self._writer.apply_async(self._commit, (task, found, seconds))

    def close(self) -> None:
        """Wait for what is being written, and read nothing more."""
        self._readers.terminate()
        self._writer.close()
        self._writer.join()
        self.log.close()

    def _numbers(self, task: Task) -> Sequence[int]:
        return self.job.manifest.numbers(task.shard) if task.only is None else task.only

    def _check(self, task: Task, found: Rows) -> None:
        """Stop a run whose model cannot explain anything, before it fills with errors."""
        kinds = {row.get("error_kind") for row in found.rows}
        if task.only is not None or "model" not in kinds or None in kinds:
            return
        if not list_committed(self.job.out):
            first = next(r["error"] for r in found.rows if r["error_kind"] == "model")
            raise MemberError(f"no input of shard {task.shard} could be explained: {first}")

    def _commit(self, task: Task, found: Rows, seconds: dict[str, float]) -> Done:
        started, whole = time.perf_counter(), found
        if task.only is not None:
            whole = _merge(self.job, task.shard, found)
        size = commit(self.job.out, task.shard, whole)
        errors = [row["error"] for row in found.rows if "error" in row]
        done = Done(
            task.shard,
            self.name,
            len(found.rows),
            len(errors),
            sum(row["evaluations"] for row in found.rows),
            size,
            {**seconds, "write": time.perf_counter() - started},
            errors[0] if errors else "",
        )
        self.log.write("commit", **asdict(done), processor=time.process_time())
        return done


def run_here(
    job: Job,
    tasks: Sequence[Task],
    finished: Callable[[Done], None],
    stopping: Callable[[], bool],
    tick: Callable[[str, int], None],
) -> None:
    """Do all tasks in this process; once ``stopping`` is true, end after the open shard."""
    worker = Worker(job, lambda count: tick(worker.name, count))
    writing: AsyncResult[Done] | None = None
    try:
        for task, following in zip(tasks, (*tasks[1:], None), strict=True):
            if stopping():
                break
            next_writing = worker.do(task, following)
            if writing is not None:
                finished(writing.get())
            writing = next_writing
        if writing is not None:
            finished(writing.get())
    finally:
        worker.close()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with so many threads: sums split over other numbers differ in the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _merge(job: Job, shard: int, fresh: Rows) -> Rows:
    """Put freshly explained inputs into the shard that is there."""
    old = load_file(tensors_path(job.out, shard))
    new: dict[int, dict[str, Any]] = {row["index"]: row for row in fresh.rows}
    rows, kept = [], []
    for row in read_rows(job.out, shard).to_pylist():
        row = new.get(row["index"], row)
        if row.get("place") is not None:
            origin = fresh.tensors if row["index"] in new else old
            kept.append({name: values[row["place"]] for name, values in origin.items()})
            row = {**row, "place": len(kept) - 1}
        rows.append(row)
    joined = {name: np.stack([one[name] for one in kept]) for name in (kept[0] if kept else ())}
    return Rows(rows, joined, fresh.methods or tuple(read_facts(job.out, shard)["methods"]))
