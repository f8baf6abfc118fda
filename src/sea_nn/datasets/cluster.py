"""The engine for many processes and machines: Ray's tasks work through the shard plan.

Plain tasks rather than Ray Data: a shard's Parquet part is the one record of what is done, so a
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from torch import nn

from sea_nn.datasets.manifest import Manifest
from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job
from sea_nn.datasets.storage import MANIFEST
from sea_nn.datasets.worker import ATTEMPTS, Done, Plan, ShardWork, work
from sea_nn.errors import InputError, MissingExtraError, SEAError

STALL = 180.0
"""Seconds without any worker after which the run ends with an explanation."""
STORE = 128 << 20  # bytes of Ray's object store when it is started here; the model travels by it


class WorkerLossError(SEAError, RuntimeError):
    """Workers could not be had, or kept dying."""


def run_on_ray(
    job: Job,
    tasks: Sequence[ShardWork],
    tell: Callable[..., None],
    stopping: Callable[[], bool],
    progress: Progress,
    workers: int,
    address: str | None,
) -> list[int]:
    """Do all tasks by so many workers; once ``stopping`` is true, end after the open shards.

    Args:
        job: the run.
        tasks: shards to do.
        tell: is told what workers say, see ``Plan``.
        stopping: whether to begin nothing more.
        progress: is told of lost workers.
        workers: how many processes.
        address: of a Ray cluster; None starts Ray on this machine.

    Returns:
        The shards that were given up, as no worker outlived them.
    """
    given_up: list[int] = []
    with _connect(workers, address, job) as ray:
        on_gpu = job.manifest.settings.device == "cuda"
        needs = {"num_cpus": 0 if on_gpu else 1, "num_gpus": int(on_gpu), "max_retries": 0}
        # On the head node: without that one there is no cluster anyway.
        at_head = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
        plan = ray.remote(**at_head)(_SharedPlan).remote(tasks, workers)
        sent, names = ray.put(_pack(ray, job)), map(str, count(1))
        running: dict[Any, str] = {}

        def hire() -> None:
            name = next(names)
            running[ray.remote(**needs)(_work).remote(sent, plan, name)] = name

        for _ in range(min(workers, len(tasks))):
            hire()
        losses, seen = 0, time.monotonic()  # since the last commit, and since workers were there
        left = len(tasks)
        try:
            while running and left:
                ended, _ = ray.wait(list(running), timeout=1.0)
                for event, *facts in ray.get(plan.take_news.remote(stopping())):
                    tell(event, *facts)
                    if event == "commit":
                        losses, left = 0, left - 1
                for future in ended:
                    name = running.pop(future)
                    try:
                        ray.get(future)  # there was no more to do
                    except ray.exceptions.RayTaskError as error:
                        known = isinstance(error.cause, SEAError | OSError)
                        raise (error.cause if known else error) from error
                    except ray.exceptions.RayError as error:
                        progress.say(f"worker {name} was lost ({type(error).__name__})")
                        progress.leave(name)
                        losses += 1
                        if losses > ATTEMPTS * (workers + 1):
                            raise WorkerLossError(
                                f"{losses} workers were lost and nothing was done; what is "
                                f"committed stays. The logs of Ray say why ({error})"
                            ) from error
                        shard = ray.get(plan.lose.remote(name))
                        if shard is not None:
                            progress.say(f"shard {shard} was given up: {ATTEMPTS} workers died")
                            given_up.append(shard)
                            left -= 1
                        hire()
                if progress.workers:
                    seen = time.monotonic()
                elif time.monotonic() - seen > STALL:
                    raise WorkerLossError(
                        f"no worker came up in {STALL:.0f} s: the cluster has "
                        f"{ray.available_resources()} free, and a worker needs "
                        f"1 {'GPU' if on_gpu else 'CPU'}"
                    )
            for event, *facts in ray.get(plan.take_news.remote(False)):
                tell(event, *facts)
            if running:  # they end by themselves, but for those that never found room
                _, unused = ray.wait(list(running), num_returns=len(running), timeout=2.0)
                running = {future: running[future] for future in unused}
        finally:
            for future in running:
                ray.cancel(future, force=True)
    return given_up


class _SharedPlan(Plan):
    """The plan as an actor: it keeps events until the driver asks."""

    def __init__(self, tasks: Sequence[ShardWork], n_workers: int) -> None:
        self.news: list[tuple[Any, ...]] = []
        self.stop = False
        keep: Callable[..., None] = lambda *event: self.news.append(event)  # noqa: E731
        super().__init__(tasks, n_workers, keep, lambda: self.stop)

    def take_news(self, stop: bool) -> list[tuple[Any, ...]]:
        """What happened since the last time; ``stop`` ends handing out shards."""
        self.stop |= stop
        news, self.news = self.news, []
        return news


class _RemotePlan:
    """A worker's way to the plan."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def next(self, worker: str) -> tuple[ShardWork | None, ShardWork | None]:
        import ray

        found: tuple[ShardWork | None, ShardWork | None] = ray.get(self.plan.next.remote(worker))
        return found

    def commit(self, done: Done) -> None:
        import ray

        ray.get(self.plan.commit.remote(done))

    def tell(self, *event: Any) -> None:
        self.plan.tell.remote(*event)


def _work(job: Job, plan: Any, name: str) -> None:
    """A worker process: check that this machine sees the run's folder, then work."""
    out = job.out
    if not (out / MANIFEST).is_file() or Manifest.read(out).created != job.manifest.created:
        raise InputError(
            f"{platform.node()} does not see the run's folder {out}: choose one on storage that "
            "all machines share"
        )
    model = job.sea.forward_func
    if job.manifest.settings.device == "cuda" and isinstance(model, nn.Module):
        model.to("cuda")  # the one that Ray gave to this process
    work(job, _RemotePlan(plan), name)


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
