"""A worker does shards in turn: while one is explained, the next is read and the last written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any

import torch

from sea_nn.datasets.items import ItemError
from sea_nn.datasets.manifest import LostError
from sea_nn.datasets.shard import (
    Answered,
    Job,
    Loaded,
    explain_inputs,
    load_input,
    make_rows,
    stack_tensors,
)
from sea_nn.datasets.storage import Rows, commit, list_committed, log, read_rows, read_tensors
from sea_nn.errors import MemberError


@dataclass(frozen=True)
class ShardWork:
    """Inputs of a shard to do: all, or of one that is there already those that failed."""

    shard: int
    numbers: Sequence[int]


@dataclass(frozen=True)
class Done:
    """What came of a shard that is committed; ``example`` is its first error.

    Seconds are those of waiting for inputs, explaining and writing.
    """

    shard: int
    n_inputs: int
    failed: int
    evaluations: int
    bytes: int
    seconds: dict[str, float]
    example: str = ""


class Worker:
    """Does shards, one a call. The calling thread explains.

    Other threads read the following shard, no further, and write the last one: memory stays flat.
    """

    def __init__(self, job: Job, name: str = "1") -> None:
        self.job, self.name = job, name
        self.reading: dict[ShardWork, AsyncResult[Any]] = {}
        self.writing: AsyncResult[Done] | None = None
        # Threads of pools are daemons: others would keep CUDA graphs from being recorded.
        self.readers = ThreadPool(job.source.threads)
        self.writer = ThreadPool(1, torch.set_num_threads, (job.manifest.threads,))

    def do(
        self,
        task: ShardWork,
        following: ShardWork | None = None,
        tick: Callable[[int], None] = lambda count: None,
    ) -> Done | None:
        """Explain a shard, and return what came of the one before it, which is written now.

        Args:
            task: the shard.
            following: the one to read meanwhile.
            tick: is told how many more inputs are explained.
        """
        job = self.job
        log(job.out, "begin", shard=task.shard)
        for wanted in (task, following):
            if wanted is not None and wanted not in self.reading:
                load = partial(load_input, job)
                self.reading[wanted] = self.readers.map_async(load, wanted.numbers)
        started = time.perf_counter()
        inputs = self.reading.pop(task).get()
        loaded: Loaded = dict(zip(task.numbers, inputs, strict=True))
        waited = time.perf_counter() - started
        tick(sum(isinstance(item, ItemError) for item in inputs))
        answers: list[Answered] = []
        with use_threads(job.manifest.threads):
            for items, answer in explain_inputs(job, loaded):
                answers.append((items, answer))
                tick(len(items))
        seconds = {"wait": waited, "explain": time.perf_counter() - started - waited}
        done = self.finish()
        self.writing = self.writer.apply_async(self._commit, (task, loaded, answers, seconds))
        return done

    def finish(self) -> Done | None:
        """Wait until the last shard is written, and return what came of it."""
        writing, self.writing = self.writing, None
        return None if writing is None else writing.get()

    def close(self) -> None:
        """End the threads; what is being written is written to its end."""
        self.readers.terminate()
        self.writer.close()
        self.writer.join()

    def _commit(
        self,
        task: ShardWork,
        loaded: Loaded,
        answers: list[Answered],
        seconds: dict[str, float],
    ) -> Done:
        """Write a shard."""
        started, job = time.perf_counter(), self.job
        found = make_rows(job, loaded, answers)
        errors = [row for row in found.rows if "error" in row]
        evaluations = sum(row["evaluations"] for row in found.rows)
        failed = next((row["error"] for row in errors if row["error_kind"] == "model"), None)
        if failed and len(errors) == len(loaded) and not list_committed(job.out):
            # Stop before the run fills with errors.
            raise MemberError(f"no input of shard {task.shard} could be explained: {failed}")
        if len(loaded) < len(job.manifest.numbers(task.shard)):
            found = _merge(job, task.shard, found)
        job.manifest.check_there(job.out)
        try:
            size = commit(job.out, task.shard, found, job.manifest.bind(task.shard, job.source))
        except FileNotFoundError as error:  # what was being written is gone
            raise LostError.of(job.out, str(error)) from error
        done = Done(
            task.shard,
            len(loaded),
            len(errors),
            evaluations,
            size,
            {**seconds, "write": time.perf_counter() - started},
            errors[0]["error"] if errors else "",
        )
        log(job.out, "commit", worker=self.name, **asdict(done))
        return done


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
    table, facts = read_rows(job.out, shard)
    old = read_tensors(job.out, shard, facts)
    new: dict[int, dict[str, Any]] = {row["index"]: row for row in fresh.rows}
    rows, kept = [], []
    for row in table.to_pylist():
        row = new.get(row["index"], row)
        if row.get("place") is not None:
            origin = fresh.tensors if row["index"] in new else old
            kept.append({name: values[row["place"]] for name, values in origin.items()})
            row = {**row, "place": len(kept) - 1}
        rows.append(row)
    return Rows(rows, stack_tensors(rows, kept))
