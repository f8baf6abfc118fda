"""Ray's workers write the same bytes as one process, and may be killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from sea_nn.datasets.cluster import WorkerLossError, share_out
from sea_nn.datasets.progress import Progress
from sea_nn.datasets.shard import Job, Task
from sea_nn.datasets.storage import list_committed
from tests.datasets.small import hash_results, make_inputs, make_sea, run
from tests.datasets.test_faults import count_begun, end, said, start, wait_for

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None,  # importing it takes a second
    reason="workers on many machines need Ray: pip install 'sea-nn[ray]'",
)


def find_workers(out: Path) -> list[int]:
    """The processes that have begun a shard."""
    return [int(p.stem.rpartition("-")[2]) for p in (out / "log").glob("*.jsonl")]


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
