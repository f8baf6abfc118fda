"""The engine for many processes and machines: Ray actors work through the shard plan.

Plain actors rather than Ray Data: a shard's Parquet part is the one record of what is done, so a
second one (Ray Data's checkpoints) could only disagree with it; and with no read and write tasks
beside the actors there is nothing to starve. All machines must see the run's folder.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from sea_nn.datasets.manifest import Manifest
from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job
from sea_nn.datasets.storage import MANIFEST
from sea_nn.datasets.worker import Done, Task, Worker
from sea_nn.errors import InputError, MissingExtraError, SEAError

ATTEMPTS = 3
"""How many workers a shard may outlive before it is given up."""
STALL = 180.0
"""Seconds without any worker after which the run ends with an explanation."""
STORE = 128 << 20  # bytes of Ray's object store when it is started here; the model travels by it


class WorkerLossError(SEAError, RuntimeError):
    """Workers could not be had, or kept dying."""


@dataclass
class _Slot:
    """A worker process: its name once it is ready, what it does, and what it will do next."""

    actor: Any
    waiting: Any
    name: str = ""
    task: Task | None = None
    following: Task | None = None
    asked: Any = None
    explained: int = 0


def run_on_ray(
    job: Job,
    tasks: Sequence[Task],
    finished: Callable[[Done], None],
    stopping: Callable[[], bool],
    progress: Progress,
    workers: int,
    address: str | None,
) -> list[int]:
    """Do all tasks by so many workers; once ``stopping`` is true, end after the open shards.

    Args:
        job: the run.
        tasks: shards to do.
        finished: is called for each committed shard.
        stopping: whether to begin nothing more.
        progress: is told of workers.
        workers: how many processes.
        address: of a Ray cluster; None starts Ray on this machine.

    Returns:
        The shards that were given up, as no worker outlived them.
    """
    queue, attempts, slots = deque(tasks), Counter[int](), list[_Slot]()
    given_up: list[int] = []
    with _connect(workers, address, job) as ray:
        on_gpu = job.manifest.settings.device == "cuda"
        make = ray.remote(
            num_cpus=0 if on_gpu else 1, num_gpus=int(on_gpu), max_restarts=0, max_concurrency=2
        )(_Actor)
        sent = ray.put(_pack(ray, job))

        def hire() -> _Slot:
            actor = make.remote(sent)
            return _Slot(actor, actor.hello.remote())

        slots += [hire() for _ in range(min(workers, len(queue)))]
        lost, seen = 0, time.monotonic()
        try:
            while True:
                halted = stopping()
                for slot in slots:
                    _feed(slot, queue, len(slots), halted)
                if (halted or not queue) and not any(slot.task for slot in slots):
                    return given_up
                waiting = {slot.waiting: slot for slot in slots if slot.waiting is not None}
                arrived, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
                for slot in map(waiting.__getitem__, arrived):
                    seen = time.monotonic()
                    try:
                        answer = ray.get(slot.waiting)
                    except ray.exceptions.RayTaskError as error:
                        known = isinstance(error.cause, SEAError | OSError)
                        raise (error.cause if known else error) from error
                    except ray.exceptions.RayError as error:
                        lost += 1
                        progress.say(f"worker {slot.name} was lost ({type(error).__name__})")
                        progress.leave(slot.name)
                        if lost > ATTEMPTS * (len(attempts) + workers):
                            raise WorkerLossError(
                                f"{lost} workers were lost; what is committed stays. The logs of "
                                f"Ray say why ({error})"
                            ) from error
                        given_up += _return(slot, queue, attempts, progress)
                        slots[slots.index(slot)] = hire()
                        continue
                    slot.waiting = None
                    if slot.task is None:
                        slot.name = answer
                        progress.join(slot.name)
                    else:
                        slot.task = None
                        finished(answer)
                _ask(ray, slots, progress)
                if any(slot.name for slot in slots):
                    seen = time.monotonic()
                elif time.monotonic() - seen > STALL:
                    raise WorkerLossError(
                        f"no worker came up in {STALL:.0f} s: the cluster has "
                        f"{ray.available_resources()} free, and a worker needs "
                        f"1 {'GPU' if on_gpu else 'CPU'}"
                    )
        finally:
            for slot in slots:
                ray.kill(slot.actor)


def _feed(slot: _Slot, queue: deque[Task], n_slots: int, halted: bool) -> None:
    """Give a worker that is ready its next shard, and the one after to read ahead."""
    if slot.waiting is not None:
        return
    task, slot.following = slot.following, None
    if halted:
        if task is not None:
            queue.appendleft(task)
        return
    if task is None and queue:
        task = queue.popleft()
    if task is None:
        return
    if len(queue) > n_slots:  # near the end, nobody should hold work that others lack
        slot.following = queue.popleft()
    slot.task, slot.waiting = task, slot.actor.do.remote(task, slot.following)


def _return(
    slot: _Slot, queue: deque[Task], attempts: Counter[int], progress: Progress
) -> list[int]:
    """Put back what a lost worker had; a shard that no worker outlives is given up."""
    if slot.following is not None:
        queue.appendleft(slot.following)
    if slot.task is None:
        return []
    shard = slot.task.shard
    attempts[shard] += 1
    if attempts[shard] < ATTEMPTS:
        queue.appendleft(slot.task)
        return []
    progress.say(f"shard {shard} was given up: {ATTEMPTS} workers died with it")
    return [shard]


def _ask(ray: Any, slots: Sequence[_Slot], progress: Progress) -> None:
    """Take what workers say of how many inputs they explained, and ask again."""
    for slot in slots:
        if slot.asked is not None and ray.wait([slot.asked], timeout=0)[0]:
            try:
                count = ray.get(slot.asked)
            except ray.exceptions.RayError:
                continue  # it is lost, and will be replaced
            progress.tick(slot.name, count - slot.explained)
            slot.asked, slot.explained = None, count
        if slot.name and slot.asked is None:
            slot.asked = slot.actor.count.remote()


class _Actor:
    """A worker process; ``count`` is answered while ``do`` is at work."""

    def __init__(self, job: Job) -> None:
        self.job, self.explained = job, 0
        model = job.sea.forward_func
        if job.manifest.settings.device == "cuda" and isinstance(model, nn.Module):
            model.to("cuda")  # the one that Ray gave to this process
        self.worker: Worker | None = None

    def hello(self) -> str:
        """Check that this machine sees the run's folder; return the worker's name."""
        out = self.job.out
        if not (out / MANIFEST).is_file() or Manifest.read(out).created != (
            self.job.manifest.created
        ):
            import platform

            raise InputError(
                f"{platform.node()} does not see the run's folder {out}: choose one on storage "
                "that all machines share"
            )
        self.worker = Worker(self.job, self._tick)
        return self.worker.name

    def _tick(self, count: int) -> None:
        self.explained += count

    def count(self) -> int:
        """How many inputs were explained."""
        return self.explained

    def do(self, task: Task, following: Task | None) -> Done:
        """Do a shard; meanwhile read the one that follows."""
        assert self.worker is not None, "hello comes first"
        return self.worker.do(task, following).get()


@contextmanager
def _connect(workers: int, address: str | None, job: Job) -> Iterator[Any]:
    """Ray, started here or at the address, unless the caller has it already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            f"more than one worker needs Ray ({error}). Install it with: pip install 'sea-nn[ray]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        model = job.sea.forward_func
        weights = model.state_dict().values() if isinstance(model, nn.Module) else ()
        options |= {
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",  # nobody else is meant to reach it
            "num_cpus": workers + 1,
            "object_store_memory": max(STORE, 3 * sum(w.nbytes for w in weights)),
        }
    try:
        # "local": not a cluster that happens to run, or ran, on this machine.
        ray.init(address=address or "local", **options)
    except Exception as error:  # Ray's own errors have no common kind
        where = "could not be started here" if address is None else f"does not answer at {address}"
        raise WorkerLossError(
            f"Ray {where} ({error}). A cluster with token authentication needs "
            "RAY_AUTH_MODE=token and its token here too; see Ray's documentation"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _pack(ray: Any, job: Job) -> Job:
    """The job as it travels: the model on the CPU, with the code that others cannot import."""
    model = job.sea.forward_func
    parts: list[Any] = [type(m) for m in model.modules()] if isinstance(model, nn.Module) else []
    parts += [model, job.source.read, *(entry.member for entry in job.sea.entries)]
    for name in {str(getattr(part, "__module__", "")) for part in parts}:
        module = sys.modules.get(name)
        if module is None or name in ("__main__", "builtins"):
            continue
        try:
            known = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            known = False
        if not known or name.startswith("sea_nn_user_"):
            ray.cloudpickle.register_pickle_by_value(module)
    if job.manifest.settings.device == "cpu":
        return job
    sea = copy.deepcopy(job.sea)  # another process may not see the same GPU
    sea.forward_func.cpu()
    return replace(job, sea=sea)
