"""A worker does shards in turn: while one is explained, the next is read and the last written.

Workers ask a ``Plan`` what to do. In one process they call it directly; with Ray it is an actor.
"""

from __future__ import annotations

import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.numpy import load_file

from sea_nn.datasets.items import Item
from sea_nn.datasets.shard import (
    Answer,
    Job,
    Loaded,
    Packed,
    explain_inputs,
    load_input,
    make_rows,
    pack,
)
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

ATTEMPTS = 3
"""How many workers may die with a shard before it is given up."""


@dataclass(frozen=True)
class ShardWork:
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


class Orders(Protocol):
    """What a worker needs of the plan."""

    def next(self, worker: str) -> tuple[ShardWork | None, ShardWork | None]:
        """The shard to do now, and the one to read meanwhile; None: there is no more."""

    def commit(self, done: Done) -> None:
        """A shard was committed."""

    def tell(self, event: str, *facts: Any) -> None:
        """ "join": a worker is there; "tick": it explained so many more inputs."""


@dataclass
class _Held:
    """What a worker has: shards that it began and did not commit, and the one to read ahead."""

    begun: list[ShardWork] = field(default_factory=list)
    ahead: ShardWork | None = None


class Plan:
    """Hands out the shards of a run; events go to ``tell``, for someone to show.

    Args:
        tasks: what there is to do.
        n_workers: how many share it.
        tell: takes the name of an event and its facts.
        stopping: whether to hand out nothing more.
    """

    def __init__(
        self,
        tasks: Sequence[ShardWork],
        n_workers: int,
        tell: Callable[..., None],
        stopping: Callable[[], bool],
    ) -> None:
        self.queue, self.n_workers = deque(tasks), n_workers
        self._tell, self.stopping = tell, stopping
        self.held: dict[str, _Held] = {}
        self.attempts = Counter[int]()

    def next(self, worker: str) -> tuple[ShardWork | None, ShardWork | None]:
        """The shard that a worker is to do now, and the one that it should read meanwhile."""
        held = self.held.setdefault(worker, _Held())
        task, held.ahead = held.ahead, None
        if self.stopping():
            return None, None
        if task is None and self.queue:
            task = self.queue.popleft()
        if task is not None:
            held.begun.append(task)
            if len(self.queue) >= self.n_workers:  # near the end, nobody holds what others lack
                held.ahead = self.queue.popleft()
        return task, held.ahead

    def tell(self, event: str, *facts: Any) -> None:
        """Something happened."""
        self._tell(event, *facts)

    def commit(self, done: Done) -> None:
        """A worker committed a shard."""
        held = self.held[done.worker]
        held.begun = [task for task in held.begun if task.shard != done.shard]
        self.tell("commit", done)

    def lose(self, worker: str) -> int | None:
        """Take back what a lost worker had; a shard that kills all workers is given up."""
        held = self.held.pop(worker, _Held())
        back = held.begun + ([] if held.ahead is None else [held.ahead])
        given_up = None
        if held.begun:  # the last one was at work; those before it were being written
            shard = held.begun[-1].shard
            self.attempts[shard] += 1
            if self.attempts[shard] >= ATTEMPTS:
                given_up = shard
        self.queue.extendleft(reversed([task for task in back if task.shard != given_up]))
        return given_up


def work(job: Job, plan: Orders, name: str) -> None:
    """Do what the plan says until there is no more.

    This thread explains. Others read one shard ahead, no further, and one packs and writes what
    was explained: memory stays flat.
    """
    log, reading = Log(job.out), dict[ShardWork, AsyncResult[Any]]()
    # Threads of pools are daemons: others would keep CUDA graphs from being recorded.
    readers = ThreadPool(job.source.threads)
    writer = ThreadPool(1, torch.set_num_threads, (job.manifest.threads,))
    writing: AsyncResult[None] | None = None
    plan.tell("join", name, platform.node())
    try:
        while True:
            task, following = plan.next(name)
            if task is None:
                break
            log.write("begin", shard=task.shard)
            for wanted in (task, following):
                if wanted is not None and wanted not in reading:
                    numbers = _numbers(job, wanted)
                    reading[wanted] = readers.map_async(partial(load_input, job), numbers)
            started = time.perf_counter()
            loaded: Loaded = dict(zip(_numbers(job, task), reading.pop(task).get(), strict=True))
            waited = time.perf_counter() - started
            plan.tell("tick", name, sum(not isinstance(item, Item) for item in loaded.values()))
            packed: list[AsyncResult[Packed]] = []
            methods: tuple[str, ...] = ()
            with use_threads(job.manifest.threads):
                for part, answer in explain_inputs(job, loaded):
                    packed.append(writer.apply_async(pack, (job, part, answer)))
                    methods = answer.e.methods if isinstance(answer, Answer) else methods
                    plan.tell("tick", name, len(part))
            seconds = {"wait": waited, "explain": time.perf_counter() - started - waited}
            if writing is not None:
                writing.get()  # it may have failed
            found = loaded, packed, methods
            writing = writer.apply_async(_commit, (job, plan, log, name, task, found, seconds))
        if writing is not None:
            writing.get()
    finally:
        readers.terminate()
        writer.close()
        writer.join()
        log.close()


def _numbers(job: Job, task: ShardWork) -> Sequence[int]:
    return job.manifest.numbers(task.shard) if task.only is None else task.only


def _commit(
    job: Job,
    plan: Orders,
    log: Log,
    name: str,
    task: ShardWork,
    explained: tuple[Loaded, list[AsyncResult[Packed]], tuple[str, ...]],
    seconds: dict[str, float],
) -> None:
    """Write a shard; its batches were packed by the same thread before."""
    started = time.perf_counter()
    loaded, packed, methods = explained
    found = make_rows(job, loaded, (part.get() for part in packed), methods)
    errors = [row for row in found.rows if "error" in row]
    failed = next((row["error"] for row in errors if row["error_kind"] == "model"), None)
    if failed and len(errors) == len(loaded) and task.only is None and not list_committed(job.out):
        # The model cannot explain anything: stop before the run fills with errors.
        raise MemberError(f"no input of shard {task.shard} could be explained: {failed}")
    whole = found if task.only is None else _merge(job, task.shard, found)
    size = commit(job.out, task.shard, whole)
    done = Done(
        task.shard,
        name,
        len(found.rows),
        len(errors),
        sum(row["evaluations"] for row in found.rows),
        size,
        {**seconds, "write": time.perf_counter() - started},
        errors[0]["error"] if errors else "",
    )
    log.write("commit", **asdict(done), processor=time.process_time())
    plan.commit(done)


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
