"""Processes killed at any point, Ray's workers too: no byte of the results is another."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from sea_nn import SEA, read_dataset
from sea_nn.datasets.cluster import WorkerLossError, share_out
from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job, Task
from sea_nn.datasets.storage import import_arrow, list_committed, read_log, read_rows
from tests.datasets import small
from tests.datasets.small import Net, hash_results, make_inputs, make_sea, run

TIMEOUT = 180
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.datasets.small", "sea_nn.datasets.run"])  # imported once


def start(out: Path, *options: str) -> BaseProcess:
    """A run in a process of its own."""
    process = SERVER.Process(target=_run, args=(out, options))
    process.start()
    return process


def _run(out: Path, options: tuple[str, ...]) -> None:
    os.dup2(os.open(said(out), os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = ["small", str(out), *options]
    small.main()


def end(process: BaseProcess) -> int | None:
    """Wait for a process; its exit code."""
    process.join(TIMEOUT)
    return process.exitcode


def said(out: Path) -> Path:
    """The file of what a run said."""
    return out.with_name("said.txt")


def wait_for(out: Path, count: int, process: BaseProcess) -> None:
    """Wait until so many shards are committed."""
    until = time.monotonic() + TIMEOUT
    while len(list_committed(out)) < count:
        assert process.is_alive(), said(out).read_text()
        assert time.monotonic() < until
        time.sleep(0.01)


def count_begun(out: Path) -> Counter[int]:
    return Counter(event["shard"] for event in read_log(out) if event["event"] == "begin")


def test_a_killed_run_is_completed_bit_for_bit(tmp_path, undisturbed):
    out = tmp_path / "out"
    process = start(out, "--slow", "0.005")
    wait_for(out, 3, process)
    process.kill()
    end(process)
    done = len(list_committed(out))
    assert 3 <= done < 12
    assert len(read_dataset(out).to_arrow()) == 2 * done  # works on a half-finished run
    run(out)
    assert hash_results(out) == undisturbed
    assert sum(count - 1 for count in count_begun(out).values()) <= 1  # the open shard
    assert not list(out.rglob(".sea-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_open_shard_and_says_how_to_go_on(tmp_path, undisturbed, number):
    out = tmp_path / "out"
    process = start(out, "--slow", "0.005")
    wait_for(out, 2, process)
    os.kill(process.pid, number)
    assert end(process) == (143 if number == signal.SIGTERM else 1)  # 1: KeyboardInterrupt
    assert "start the same command again" in said(out).read_text()
    assert all(count == 1 for count in count_begun(out).values())
    assert len(list_committed(out)) == len(count_begun(out))  # nothing begun was dropped
    run(out)
    assert hash_results(out) == undisturbed
    assert all(count == 1 for count in count_begun(out).values())


def test_torn_writes_do_not_count(tmp_path, undisturbed):
    """Files of every length that power loss may leave under the draft's name, and tensors alone."""
    out = tmp_path / "out"
    run(out)
    for shard in (1, 5, 9):
        rows = out / "rows" / "0000" / f"{shard:07d}.parquet"
        content = rows.read_bytes()
        rows.unlink()
        rows.with_name(f".sea-host.1.{shard:08x}").write_bytes(content[: len(content) // 2])
    (tensors,) = (out / "tensors" / "0000").glob("0000005.*")
    tensors.write_bytes(tensors.read_bytes()[:100])
    assert len(read_dataset(out)) == 18
    assert [run(out).n_fresh, run(out).n_fresh] == [6, 0]
    assert hash_results(out) == undisturbed


def test_a_second_signal_does_not_commit_half_an_answer(tmp_path):
    """A budget that is interrupted gives the map of the answers so far: no result of a run."""

    calls = []  # shared with the copies of the model that a run makes

    class Stopping(Net):
        def forward(self, x):
            calls.append(len(x))
            if len(calls) == 20:
                for _ in range(2):
                    os.kill(os.getpid(), signal.SIGTERM)
            return super().forward(x)

    sea = SEA(Stopping().eval(), budget=64, output="logits")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, make_inputs(4), sea, internal_batch_size=4)
    assert list_committed(tmp_path) == []


def _count_threads(out: Path) -> None:
    import_arrow()
    before = len(os.listdir("/proc/self/task"))
    read_rows(out, 0)
    sys.exit(len(os.listdir("/proc/self/task")) - before)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted on Linux")
def test_reading_rows_leaves_no_thread_that_could_abort_the_program_as_it_ends(tmp_path):
    run(tmp_path, make_inputs(2))
    process = SERVER.Process(target=_count_threads, args=(tmp_path,))
    process.start()
    assert end(process) == 0


needs_ray = pytest.mark.skipif(
    find_spec("ray") is None,  # importing it takes a second
    reason="workers on many machines need Ray: pip install 'sea-nn[ray]'",
)


def find_workers(out: Path) -> list[int]:
    """The processes that have begun a shard."""
    return [int(p.stem.rpartition("-")[2]) for p in (out / "log").glob("*.jsonl")]


@needs_ray
def test_a_lost_worker_and_then_a_lost_driver_change_no_byte(tmp_path, undisturbed):
    """One start of Ray for both faults; each alone, at 20 points: docs/results/reliability.md."""
    out = tmp_path / "out"
    process = start(out, "--workers", "2", "--slow", "0.05")
    wait_for(out, 1, process)
    os.kill(find_workers(out)[0], signal.SIGKILL)
    while "was lost" not in said(out).read_text():
        assert process.is_alive(), said(out).read_text()
        time.sleep(0.02)
    process.kill()
    end(process)
    assert len(list_committed(out)) < 12
    run(out)
    assert hash_results(out) == undisturbed
    assert sum(count - 1 for count in count_begun(out).values()) <= 1 + 2  # the open ones


@needs_ray
def test_what_a_lost_worker_had_comes_first_and_a_deadly_shard_is_given_up():
    exceptions = type("", (), {"RayTaskError": RuntimeError, "RayError": OSError})
    started, most = [], []

    class Cluster:
        """One that loses whoever takes shard 1, and does any other at once."""

        def __init__(self):
            self.exceptions = exceptions

        def start(self, task):
            started.append(task.shard)
            return task

        def wait(self, futures, timeout):
            most.append(len(futures))
            return futures[:1], futures[1:]

        def get(self, task):
            if task.shard == 1:
                raise OSError
            return Counter(n_inputs=2)

    ray, progress = Cluster(), Progress(12, quiet=True)
    assert share_out(ray, ray.start, [Task(k, ()) for k in range(6)], progress, 2) == [1]
    assert max(most) == 2
    assert sorted(started) == [0, 1, 1, 1, 2, 3, 4, 5]
    assert started.index(5) > 6  # what was lost did not wait for all others
    assert progress.counts["n_inputs"] == 10
    with pytest.raises(WorkerLossError, match="7 workers were lost"):
        share_out(ray, ray.start, [Task(1, ())] * 9, progress, 1)


def test_a_signal_before_the_first_shard_starts_none():
    said = iter([0])

    class Signalled(Progress):
        signal = property(lambda self: next(said, 2), lambda self, value: None)

    assert share_out(None, None, [Task(1, ())], Signalled(12, quiet=True), 1) == []


@needs_ray
def test_a_model_on_a_gpu_travels_on_the_cpu_and_the_caller_keeps_its_own(tmp_path):
    import ray

    from sea_nn.datasets.cluster import _pack
    from sea_nn.datasets.manifest import Manifest
    from sea_nn.datasets.sources import open_source

    run(tmp_path, make_inputs(2))
    manifest, sea = dataclasses.replace(Manifest.read(tmp_path), device="cuda"), make_sea()
    sent = _pack(ray, Job(manifest, open_source(make_inputs(2)), sea, tmp_path)).sea.forward_func
    assert sent is not sea.forward_func
    assert all(p.device.type == "cpu" for p in sent.parameters())


def test_progress_counts_what_was_explained():
    progress = Progress(10, quiet=True)
    progress.tick(2)
    progress.commit(Counter(n_inputs=2, failed=1, evaluations=20))
    assert progress.describe().startswith("2 of 10 inputs, 20 evaluations, 1 failed, 0:00:")
