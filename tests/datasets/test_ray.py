"""Ray's workers write the same bytes as one process, and may be killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest

from sea_nn.datasets.storage import list_committed, read_log
from sea_nn.datasets.worker import Done
from tests.datasets.small import hash_results, make_inputs, make_sea
from tests.datasets.test_faults import TIMEOUT, count_begun, said, start, wait_for

pytest.importorskip("ray", reason="workers on many machines need Ray: pip install 'sea-nn[ray]'")
pytest.importorskip(
    "pyarrow", reason="whole data sets need pyarrow: pip install 'sea-nn[datasets]'"
)

from sea_nn import explain_dataset


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    explain_dataset(make_inputs(), make_sea(), out, batch_size=2, shard_size=2, quiet=True)
    return hash_results(out)


def find_workers(out: Path) -> list[int]:
    """The processes that have begun a shard."""
    return [int(p.stem.rpartition("-")[2]) for p in (out / "log").glob("*.jsonl")]


def test_a_killed_worker_is_replaced_and_the_bytes_are_the_same(tmp_path, undisturbed):
    out = tmp_path / "out"
    process = start(out, "--workers", "2", "--slow", "0.02")
    wait_for(out, 2, process)
    os.kill(find_workers(out)[0], signal.SIGKILL)
    process.wait(TIMEOUT)
    text = said(out).read_text()
    assert process.returncode == 0, text
    assert "was lost" in text
    assert hash_results(out) == undisturbed
    assert sum(count - 1 for count in count_begun(out).values()) <= 2  # at work, being written


def test_a_killed_driver_is_followed_by_a_run_in_one_process(tmp_path, undisturbed):
    out = tmp_path / "out"
    process = start(out, "--workers", "2", "--slow", "0.02")
    wait_for(out, 2, process)
    process.kill()
    process.wait(TIMEOUT)
    time.sleep(1)
    assert len(list_committed(out)) < 12
    explain_dataset(make_inputs(), make_sea(), out, batch_size=2, shard_size=2, quiet=True)
    assert hash_results(out) == undisturbed
    committed = [e["shard"] for e in read_log(out) if e["event"] == "commit"]
    assert len(committed) - len(set(committed)) <= 2  # the shards that the workers had open


def test_a_model_on_a_gpu_travels_on_the_cpu_and_the_caller_keeps_its_own(tmp_path):
    import ray

    from sea_nn.datasets.cluster import _pack
    from sea_nn.datasets.manifest import Manifest
    from sea_nn.datasets.shard import Job
    from sea_nn.datasets.sources import open_source

    explain_dataset(make_inputs(2), make_sea(), tmp_path, batch_size=2, shard_size=2, quiet=True)
    manifest = Manifest.read(tmp_path)
    settings = dataclasses.replace(manifest.settings, device="cuda")
    sea = make_sea()
    job = Job(
        dataclasses.replace(manifest, settings=settings), open_source(make_inputs(2)), sea, tmp_path
    )
    sent = _pack(ray, job).sea.forward_func
    assert sent is not sea.forward_func
    assert all(p.device.type == "cpu" for p in sent.parameters())


def test_progress_has_a_line_for_each_worker():
    from sea_nn.datasets.progress import Progress

    progress = Progress(10, quiet=True)
    for worker, count in (("a:1", 2), ("b:2", 3)):
        progress.join(worker, "here")
        progress.tick(worker, count)
    first, second = progress.describe_workers()
    assert first.startswith("worker a:1 on here: 2 inputs")
    assert second.startswith("worker b:2 on here: 3 inputs")
    progress.commit(Done(0, "b:2", 2, 1, 40, 100, {}))
    assert progress.describe().startswith("2 of 10 inputs, 40 evaluations, 1 failed")
    progress.leave("a:1")
    assert progress.describe_workers() == []
