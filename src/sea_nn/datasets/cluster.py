"""The engine for many processes and machines: Ray's actors work through the shard plan.

Plain actors rather than Ray Data: a shard's Parquet part is the one record of what is done, so a
second one (Ray Data's checkpoints) could only disagree with it; and with no read and write tasks
beside the workers there is nothing to starve. All machines must see the run's folder.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import platform
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from torch import nn

from sea_nn.datasets.manifest import LostError
from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job, Task, Worker
from sea_nn.errors import InputError, SEAError
from sea_nn.extras import import_extra

ATTEMPTS = 3
"""How many workers may die with a shard before it is given up."""
STALL = 180.0
"""Seconds without any worker after which the run ends with an explanation."""
STORE = 128 << 20  # bytes of Ray's object store when it is started here; the model travels by it


class WorkerLossError(SEAError, RuntimeError):
    """Workers could not be had, or kept dying."""


class Plan:
    """Which worker does which shard: the first one that it holds, while it reads the second."""

    def __init__(self, tasks: Sequence[Task], n_workers: int) -> None:
        self.queue, self.n_workers = deque(tasks), n_workers
        self.held: dict[str, deque[Task]] = {}
        self.attempts = Counter[int]()
        self.losses = 0  # of workers, since the last commit
        self.given_up: list[int] = []

    def next(self, worker: str) -> list[Task]:
        """The shard that a worker is to do now, and the one that it should read meanwhile."""
        held = self.held.pop(worker, deque())
        # Near the end, nobody holds what others lack.
        while self.queue and (not held or (len(held) < 2 and len(self.queue) >= self.n_workers)):
            held.append(self.queue.popleft())
        if held:
            self.held[worker] = held
        return list(held)

    def commit(self, worker: str) -> None:
        """A worker committed its shard."""
        self.held[worker].popleft()
        self.losses = 0

    def lose(self, worker: str) -> None:
        """Take back what a lost worker had; a shard that kills all workers is given up."""
        held = self.held.pop(worker, deque())
        self.losses += 1
        if held:
            self.attempts[held[0].shard] += 1
            if self.attempts[held[0].shard] >= ATTEMPTS:
                self.given_up.append(held.popleft().shard)
        self.queue.extendleft(reversed(held))


def run_on_ray(
    job: Job, tasks: Sequence[Task], progress: Progress, workers: int, address: str | None
) -> list[int]:
    """Do all tasks by so many workers; after a signal, end with the open shards.

    Without an address, Ray is started on this machine. Returns the shards that were given up.
    """
    plan, on_gpu = Plan(tasks, workers), job.manifest.device == "cuda"
    with _connect(workers, address, job) as ray:
        kind = ray.remote(num_cpus=int(not on_gpu), num_gpus=int(on_gpu))(_RayWorker)
        sent, names = ray.put(_pack(ray, job)), map(str, count(1))
        running: dict[Any, tuple[str, Any]] = {}  # by a call under way, its worker

        def hire() -> None:
            actor = kind.remote(sent)
            running[actor.join.remote()] = next(names), actor

        for _ in range(min(workers, len(tasks))):
            hire()
        seen = time.monotonic()  # when there were workers
        try:
            while running and (plan.held or (plan.queue and not progress.signal)):
                for future in ray.wait(list(running), timeout=1.0)[0]:
                    name, actor = running.pop(future)
                    try:
                        done = ray.get(future)
                    except ray.exceptions.RayTaskError as error:
                        known = isinstance(error.cause, SEAError | OSError)
                        raise (error.cause if known else error) from error
                    except ray.exceptions.RayError as error:
                        progress.say(f"worker {name} was lost ({type(error).__name__})")
                        plan.lose(name)
                        if plan.losses > ATTEMPTS * (workers + 1):
                            raise WorkerLossError(
                                f"{plan.losses} workers were lost and nothing was done; what is "
                                f"committed stays. The logs of Ray say why ({error})"
                            ) from error
                        hire()
                        continue
                    if done is not None:
                        plan.commit(name)
                        progress.commit(done)
                    if not progress.signal and (tasks := plan.next(name)):
                        running[actor.do.remote(*tasks)] = name, actor
                    else:
                        plan.held.pop(name, None)
                progress.workers = len(plan.held)
                if plan.held:
                    seen = time.monotonic()
                elif time.monotonic() - seen > STALL:
                    raise WorkerLossError(
                        f"no worker came up in {STALL:.0f} s: the cluster has "
                        f"{ray.available_resources()} free, and a worker needs "
                        f"1 {'GPU' if on_gpu else 'CPU'}"
                    )
        finally:
            for _, actor in running.values():
                ray.kill(actor)
    return plan.given_up


class _RayWorker(Worker):
    """A worker as an actor, in a process of its own."""

    def join(self) -> None:
        """Make ready."""
        job, model = self.job, self.job.sea.forward_func
        try:
            job.manifest.check_there(job.out)
        except LostError as error:
            raise InputError(
                f"{platform.node()} does not see the run's folder {job.out}: choose one on storage "
                "that all machines share"
            ) from error
        if job.manifest.device == "cuda" and isinstance(model, nn.Module):
            model.to("cuda")  # the one that Ray gave to this process


@contextmanager
def _connect(workers: int, address: str | None, job: Job) -> Iterator[Any]:
    """Ray, started here or at the address, unless the caller has it already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_extra("ray", "work by several processes")
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
    parts = [model, job.source.fetch, job.source.make, *(one.member for one in job.sea.entries)]
    parts += map(type, model.modules()) if isinstance(model, nn.Module) else ()
    for name in {str(getattr(part, "__module__", "")) for part in parts}:
        if name not in sys.modules or name in ("__main__", "builtins"):
            continue
        known = False
        with suppress(ImportError, ValueError):
            known = importlib.util.find_spec(name) is not None
        if not known or name.startswith("sea_nn_user_"):
            ray.cloudpickle.register_pickle_by_value(sys.modules[name])
    if job.manifest.device == "cpu":
        return job
    sea = copy.deepcopy(job.sea)  # another process may not see the same GPU
    sea.forward_func.cpu()
    return replace(job, sea=sea)
