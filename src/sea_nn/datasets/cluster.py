"""The engine for many processes and machines: Ray actors work through the shard plan.

Plain actors rather than Ray Data: a shard's Parquet part is the one record of what is done, so a
second one (Ray Data's checkpoints) could only disagree with it; and with no read and write tasks
beside the actors there is nothing to starve, and no reader to merge small files into one block.
All machines must see the run's folder.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from sea_nn.datasets.engines import Done, Task, Worker
from sea_nn.datasets.items import MANIFEST
from sea_nn.datasets.plan import Manifest
from sea_nn.datasets.shard import Job
from sea_nn.errors import InputError, MissingExtraError, SEAError

ATTEMPTS = 3
"""How many workers a shard may outlive before it is given up."""
STALL = 180.0
"""Seconds without any worker after which the run ends with an explanation."""
STORE = 128 << 20  # bytes of Ray's object store when it is started here; the model travels by it


class WorkerLossError(SEAError, RuntimeError):
    """Workers could not be had, or kept dying."""


def import_ray() -> Any:
    """Return Ray, with its usage reports off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            f"more than one worker needs Ray ({error}). Install it with: pip install 'sea-nn[ray]'"
        ) from error
    return ray


@dataclass
class _Slot:
    """A worker process: what it is doing, and what it will do next."""

    number: int
    actor: Any
    ready: Any
    name: str = ""
    doing: Task | None = None
    reference: Any = None
    following: Task | None = None


@dataclass
class Cluster:
    """Workers of one run on Ray.

    Attributes:
        job: the run.
        workers: how many worker processes.
        address: of a Ray cluster; None starts Ray on this machine.
    """

    job: Job
    workers: int
    address: str | None = None
    slots: list[_Slot] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    def run(
        self,
        tasks: Sequence[Task],
        finished: Callable[[Done], None],
        stopping: Callable[[], bool],
        report: Callable[[str], None],
    ) -> None:
        """Do all tasks; once ``stopping`` is true, end after the open shards."""
        ray = import_ray()
        started_here = not ray.is_initialized()
        if started_here:
            _start(ray, self.workers, self.address, self.job)
        try:
            _pickle_by_value(ray, self.job)
            self._work(ray, deque(tasks), finished, stopping, report)
        finally:
            for slot in self.slots:
                ray.kill(slot.actor)
            self.slots.clear()
            if started_here:
                ray.shutdown()

    def _work(
        self,
        ray: Any,
        queue: deque[Task],
        finished: Callable[[Done], None],
        stopping: Callable[[], bool],
        report: Callable[[str], None],
    ) -> None:
        job = ray.put(self.job)
        gpus = 1 if self.job.manifest.settings.device == "cuda" else 0
        make = ray.remote(num_cpus=0 if gpus else 1, num_gpus=gpus, max_restarts=0)(_Actor)
        attempts: dict[int, int] = {}
        lost, seen = 0, time.monotonic()
        for number in range(min(self.workers, len(queue))):
            self.slots.append(self._hire(make, job, number))
        while True:
            halted = stopping()
            for slot in self.slots:
                self._feed(slot, queue, halted)
            busy = [slot for slot in self.slots if slot.reference is not None]
            if not busy and (halted or not queue):
                return
            waiting = [w for s in self.slots if (w := s.reference or s.ready) is not None]
            arrived, _ = ray.wait(waiting, num_returns=1, timeout=1.0)
            for slot in list(self.slots):
                waited = slot.reference or slot.ready
                if waited is None or waited not in arrived:
                    continue
                seen = time.monotonic()
                try:
                    answer = ray.get(waited)
                except ray.exceptions.RayTaskError as error:
                    raise _unwrap(error) from error
                except ray.exceptions.RayError as error:
                    lost += 1
                    report(f"worker {slot.name or slot.number} was lost ({type(error).__name__})")
                    self._return(slot, queue, attempts, report)
                    if lost > ATTEMPTS * (len(attempts) + self.workers):
                        raise WorkerLossError(
                            f"{lost} workers were lost; what is committed stays. The logs of Ray "
                            f"say why ({error})"
                        ) from error
                    self.slots[self.slots.index(slot)] = self._hire(make, job, slot.number)
                    continue
                if slot.reference is None:
                    slot.name, slot.ready = answer, None
                else:
                    slot.reference = slot.doing = None
                    finished(answer)
            if not any(s.reference is not None for s in self.slots):
                if any(s.name for s in self.slots):
                    seen = time.monotonic()
                elif time.monotonic() - seen > STALL:
                    raise WorkerLossError(
                        f"no worker came up in {STALL:.0f} s: the cluster has "
                        f"{ray.available_resources()} free, and a worker needs 1 CPU"
                        + (" and 1 GPU" if gpus else "")
                    )

    def _hire(self, make: Any, job: Any, number: int) -> _Slot:
        actor = make.remote(job)
        return _Slot(number, actor, actor.hello.remote())

    def _feed(self, slot: _Slot, queue: deque[Task], halted: bool) -> None:
        """Give a worker that came up its next shard, and the one after to load ahead."""
        if slot.ready is not None or slot.reference is not None:
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
        if len(queue) > len(self.slots):  # near the end, nobody should hold work that others lack
            slot.following = queue.popleft()
        slot.doing = task
        slot.reference = slot.actor.do.remote(task, slot.following)

    def _return(
        self, slot: _Slot, queue: deque[Task], attempts: dict[int, int], report: Callable[..., None]
    ) -> None:
        """Put back what a lost worker had; a shard that no worker outlives is given up."""
        if slot.following is not None:
            queue.appendleft(slot.following)
        if slot.doing is None:
            return
        shard = slot.doing.shard
        attempts[shard] = attempts.get(shard, 0) + 1
        if attempts[shard] < ATTEMPTS:
            queue.appendleft(slot.doing)
        else:
            self.given_up.append(shard)
            report(f"shard {shard} was given up: {ATTEMPTS} workers died with it")


class _Actor:
    """A worker process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.worker: Worker | None = None

    def hello(self) -> str:
        """Check that this machine sees the run's folder; return the worker's name."""
        if (
            not (self.job.out / MANIFEST).is_file()
            or Manifest.read(self.job.out).created != self.job.manifest.created
        ):
            import socket

            raise InputError(
                f"{socket.gethostname()} does not see the run's folder {self.job.out}: choose one "
                "on storage that all machines share"
            )
        self.worker = Worker(self.job)
        return self.worker.name

    def do(self, task: Task, following: Task | None) -> Done:
        """Do a shard; meanwhile load the one that follows."""
        if self.worker is None:
            self.hello()
        assert self.worker is not None
        self.worker.prefetch(task)
        if following is not None:
            self.worker.prefetch(following)
        return self.worker.start(task).result()


def _start(ray: Any, workers: int, address: str | None, job: Job) -> None:
    quiet = {"log_to_driver": False, "include_dashboard": False, "logging_level": "ERROR"}
    if address is not None:
        quiet.pop("include_dashboard")
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError) as error:
            raise WorkerLossError(
                f"no Ray cluster answers at {address} ({error}). One with token authentication "
                "needs RAY_AUTH_MODE=token and its token here too; see Ray's documentation"
            ) from error
        return
    model = job.sea.forward_func
    weights = model.state_dict().values() if isinstance(model, nn.Module) else ()
    size = sum(w.numel() * w.element_size() for w in weights)
    ray.init(
        address="local",  # not a cluster that happens to run, or ran, on this machine
        _node_ip_address="127.0.0.1",  # nobody else is meant to reach it
        num_cpus=workers + 1,
        object_store_memory=max(STORE, 3 * size),
        **quiet,
    )


def _pickle_by_value(ray: Any, job: Job) -> None:
    """Send along the code of modules that other processes cannot import, such as a user's file."""
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


def _unwrap(error: Any) -> BaseException:
    cause = error.cause
    return cause if isinstance(cause, SEAError | OSError) else error
