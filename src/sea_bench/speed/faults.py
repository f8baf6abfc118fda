"""``sea bench faults``: break runs over data sets at random points; is anything lost or done twice?

Every fault strikes a run of a small network at a random moment (or a random write); the same
command is then started again until it ends. The files must equal, byte for byte, those of a run
that nothing disturbed. Needs a checkout (its tests have the small run) and Ray; the full disk needs
the right to mount a tmpfs.
"""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

import sea_nn.datasets.run
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.speed.timing import find_in_tests
from sea_nn.datasets.storage import list_committed, read_log

FORK = multiprocessing.get_context("fork")
assert sea_nn.datasets.run  # imported here once, for all processes

ROOT = Path(__file__).resolve().parents[3]
COUNT = 40  # inputs, two to a shard
SHARDS = COUNT // 2
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}
TIMEOUT = 300
PER_SHARD = 0.25  # seconds, about: --slow and two inputs to a shard
NEEDED = 230  # kB that 19 of the 20 shards take
Act = Callable[[Path, random.Random], tuple[bool, float]]
"""Runs a data set and breaks it: whether the fault came in time, and the share done by then."""


def start(out: Path, *options: str) -> BaseProcess:
    """Run the data set in a process of its own; forked, as this one never computes anything."""
    process = FORK.Process(target=_run, args=(out, *options))
    process.start()
    return process


def _run(out: Path, *options: str) -> None:
    said = os.open(out.with_name("said.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["small", str(out), "--count", str(COUNT), *options]
    find_in_tests("datasets.small").main()


def wait(process: BaseProcess) -> int | None:
    """Wait for a process; return its exit code, None where it did not end."""
    process.join(TIMEOUT)
    process.kill()
    return process.exitcode


def finish(out: Path) -> None:
    """Start the same command again until it ends well."""
    for _ in range(5):
        if wait(start(out)) == 0:
            return
    raise RuntimeError(f"{out} could not be finished: {out.with_name('said.txt').read_text()}")


def wait_until(out: Path, shards: float, process: BaseProcess) -> bool:
    """Wait for so many shards, a fraction of one included; False if the run ended before."""
    until = time.monotonic() + TIMEOUT
    while len(list_committed(out)) < int(shards):
        if not process.is_alive() or time.monotonic() > until:
            return False
        time.sleep(0.002)
    time.sleep((shards % 1) * PER_SHARD)
    return process.is_alive()


def count_done(out: Path) -> float:
    """The share of the shards that is there."""
    return len(list_committed(out)) / SHARDS


def send_signal(
    number: int, out: Path, chance: random.Random, workers: bool = False
) -> tuple[bool, float]:
    """Send a signal at a random moment: to the process, or to one of its two Ray workers.

    Workers are processes that have begun a shard.
    """
    options = ("--workers", "2", "--slow", "0.03") if workers else ("--slow", "0.005")
    process = start(out, *options)
    struck = wait_until(out, chance.uniform(workers, SHARDS - 1 - workers), process)
    done, logs = count_done(out), (out / "log").glob("*.jsonl")
    begun = [int(path.stem.rpartition("-")[2]) for path in logs] if workers else [process.pid]
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice([k for k in begun if k and Path(f"/proc/{k}").exists()]), number)
    ended = wait(process)
    return struck and (ended == 0 or not workers), done


def fill_disk(out: Path, chance: random.Random) -> tuple[bool, float]:
    """Run on a tmpfs that is too small, then make it larger."""
    place = out.parent
    room = chance.randrange(40, NEEDED)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}k", "none", place])
    struck, done = wait(start(out)) != 0, count_done(out)
    subprocess.run(["mount", "-o", "remount,size=64m", place])
    return struck, done


def lose_power(out: Path, chance: random.Random) -> tuple[bool, float]:
    """End a process inside a random write; what was not synced is lost or cut short."""
    process = FORK.Process(target=run_victim, args=(out, chance.randrange(6, 6 + 6 * SHARDS)))
    process.start()
    return wait(process) == 99, count_done(out)


def run_victim(out: Path, step: int) -> None:
    """Count syncs and renames; at one of them, lose what is not on the disk, and end."""
    real_sync, real_replace = os.fsync, Path.replace
    chance, steps, last = random.Random(step), count(1), list[tuple[Path, Path]]()

    def lose(path: Path | None) -> None:
        if path is not None and path.exists():
            content = path.read_bytes()
            path.write_bytes(content[: chance.randrange(len(content) + 1)])
        os._exit(99)

    def sync(place: int) -> None:
        if next(steps) == step:
            path = Path(os.readlink(f"/proc/self/fd/{place}"))
            if path.is_dir() and last and chance.random() < 0.5:  # the rename was not on the disk
                draft, target = last[-1]
                real_replace(target, draft)
            lose(path if path.is_file() else None)
        real_sync(place)

    def replace(self: Path, target: Path) -> Path:
        if next(steps) == step:
            lose(None)
        last.append((self, Path(target)))
        return real_replace(self, target)

    os.fsync, Path.replace = sync, replace  # type: ignore[method-assign,assignment]
    _run(out)


kill_worker = partial(send_signal, signal.SIGKILL, workers=True)
NOTE = (
    f"A small network explains {COUNT} inputs in {SHARDS} shards, batches of 2. Each fault strikes "
    "at a random moment of the run (power loss: at a random sync or rename), and the same command "
    "is then started again in one process. Equal: every Parquet and safetensors file is, byte for "
    "byte, that of a run that nothing disturbed, and no draft is left. Done again: shards that "
    "were begun twice. A process has one open shard. Ray: 2 workers on one node."
)
FAULTS: dict[str, tuple[Act, str]] = {
    "kill -9 of the process": (partial(send_signal, signal.SIGKILL), ""),
    "SIGTERM": (partial(send_signal, signal.SIGTERM), "finishes the open shard"),
    "power loss in a write": (lose_power, "what was not synced is cut or gone"),
    "full disk": (fill_disk, f"tmpfs of 40 to {NEEDED} kB"),
    "kill -9 of a Ray worker": (kill_worker, "the run itself goes on"),
}


def strike(name: str, folder: Path, wanted: dict[str, str], run: Run) -> list[str]:
    """Do one kind of fault at many random points, each in a run of its own: a row of the table."""
    act, note = FAULTS[name]
    chance, small, found = random.Random(name), find_in_tests("datasets.small"), []
    for point in range(run.count):
        run.tell(name, point, run.count)
        out = folder / name.replace(" ", "_") / str(point) / "out"
        out.parent.mkdir(parents=True)
        in_time, done = act(out, chance)
        finish(out)
        same = small.hash_results(out) == wanted and not list(out.rglob(".sea-*"))
        shards = [event["shard"] for event in read_log(out) if event.get("event") == "begin"]
        found.append((in_time, done, same, len(shards) - len(set(shards))))
    struck, shares, equal, again = zip(*found, strict=True)
    kept, all_same = f"{min(shares):.0%} to {max(shares):.0%}", f"{sum(equal)} of {run.count}"
    begun = [f"{sum(again) / run.count:.1f}", str(max(again))]
    return [name, str(sum(struck)), kept, all_same, *begun, note]


@experiment("faults", "What happens when a run is disturbed?", "made here", n_inputs=20, quick=2)
def faults(run: Run) -> Findings:
    """Runs over data sets are broken at random points and started again.

    Is anything lost, or done twice?
    """
    os.environ.update(ENVIRONMENT)
    small, folder = find_in_tests("datasets.small"), Path(tempfile.mkdtemp(prefix="sea-soak-"))
    try:
        reference = folder / "undisturbed" / "out"
        reference.parent.mkdir()
        finish(reference)
        wanted = small.hash_results(reference)
        rows = [strike(name, folder, wanted, run) for name in FAULTS]
    finally:
        for place in folder.glob("full_disk/*"):
            subprocess.run(["umount", place], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    head = ["fault", "struck in time", "done by then", "runs equal", "done again, mean", "most", ""]
    return Findings([Table("Faults", NOTE, head, rows)], ["inputs: points a fault"])
