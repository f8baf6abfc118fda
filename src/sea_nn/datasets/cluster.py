"""The engine for many processes and machines: each shard is a task of Ray's.

Plain tasks rather than Ray Data: a shard's Parquet part is the one record of what is done, so a
second one (Ray Data's checkpoints) could only disagree with it; and with no read and write tasks
beside the workers there is nothing to starve. All machines must see the run's folder.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import os
import platform
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job, Task, do_shard
from sea_nn.datasets.storage import MANIFEST
from sea_nn.errors import InputError, SEAError
from sea_nn.extras import import_extra

ATTEMPTS = 3
"""How many workers may die with a shard before it is given up."""
STALL = 180.0
"""Seconds without any shard done after which it is said what the cluster has free."""


class WorkerLossError(SEAError, RuntimeError):
    """Workers could not be had, or kept dying."""


def run_on_ray(
    job: Job, tasks: Sequence[Task], progress: Progress, workers: int, address: str | None
) -> list[int]:
    """Do all tasks by so many workers; after a signal, end with the open shards.

    Without an address, Ray is started on this machine. Returns the shards that were given up.
    """
    on_gpu = job.manifest.device == "cuda"
    with _connect(workers, address) as ray:
        # A process is kept from shard to shard, and what it lost is started again here.
        kept = {"max_calls": 0, "max_retries": 0}
        remote = ray.remote(num_cpus=int(not on_gpu), num_gpus=int(on_gpu), **kept)(_do).remote
        start = partial(remote, ray.put(_pack(ray, job)))
        return share_out(ray, start, tasks, progress, workers)


def share_out(
    ray: Any, start: Callable[[Task], Any], tasks: Sequence[Task], progress: Progress, workers: int
) -> list[int]:
    """Start tasks, so many at once, and again where a worker died; return the shards given up."""
    queue, running = deque(tasks), dict[Any, Task]()
    deaths, given_up, losses = Counter[int](), list[int](), 0
    seen = time.monotonic()  # when a shard was done
    try:
        while running or (queue and not progress.signal):
            while queue and len(running) < workers and not progress.signal:
                task = queue.popleft()
                running[start(task)] = task
            if not running:
                break  # a signal came before the first was started
            for future in ray.wait(list(running), timeout=1.0)[0]:
                task, seen = running.pop(future), time.monotonic()
                try:
                    progress.commit(ray.get(future))
                    losses = 0
                except ray.exceptions.RayTaskError as error:
                    known = isinstance(error.cause, SEAError | OSError)
                    raise (error.cause if known else error) from error
                except ray.exceptions.RayError as error:
                    progress.say(f"a worker was lost ({type(error).__name__})")
                    deaths[task.shard] += 1
                    losses += 1
                    if losses > ATTEMPTS * (workers + 1):
                        raise WorkerLossError(
                            f"{losses} workers were lost and nothing was done; what is committed "
                            f"stays. The logs of Ray say why ({error})"
                        ) from error
                    if deaths[task.shard] < ATTEMPTS:
                        queue.appendleft(task)
                    else:
                        given_up.append(task.shard)
            if time.monotonic() - seen > STALL:
                seen = math.inf  # once is enough
                free = ray.available_resources()
                progress.say(f"no shard was done in {STALL:.0f} s; the cluster has {free} free")
    finally:
        for future in running:
            ray.cancel(future, force=True)
    return given_up


def _do(job: Job, task: Task) -> Counter[str]:
    """Do a shard in a process of Ray's."""
    model = job.sea.forward_func
    if not (job.out / MANIFEST).is_file():
        raise InputError(
            f"{platform.node()} does not see the run's folder {job.out}: choose one on storage "
            "that all machines share"
        )
    if job.manifest.device == "cuda" and isinstance(model, nn.Module):
        model.to("cuda")  # the one that Ray gave to this process
    return do_shard(job, task)


@contextmanager
def _connect(workers: int, address: str | None) -> Iterator[Any]:
    """Ray, started here or at the address, unless the caller has it already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_extra("ray", "work by several processes")
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"include_dashboard": False, "num_cpus": workers + 1}
        options["_node_ip_address"] = "127.0.0.1"  # nobody else is meant to reach it
    try:
        # "local": not a cluster that happens to run, or ran, on this machine.
        ray.init(address=address or "local", **options)
    except Exception as error:  # Ray's own errors have no common kind
        raise WorkerLossError(
            f"Ray cannot be reached at {address or 'this machine'} ({error}). A cluster with token "
            "authentication needs RAY_AUTH_MODE=token and its token here too"
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
