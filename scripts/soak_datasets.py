"""Break runs over data sets at random points and check that nothing is lost or done twice.

    python scripts/soak_datasets.py --points 20 --write docs/results/datasets_faults.md

Every fault strikes a run of a small network at a random moment (or a random write); the same
command is then started again until it ends. The files must equal, byte for byte, those of a run
that nothing disturbed. Needs Ray; the full disk needs the right to mount a tmpfs.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import sea_nn.datasets.run  # noqa: E402
from sea_nn.datasets.storage import list_committed, read_log  # noqa: E402
from tests.datasets import small  # noqa: E402
from tests.datasets.small import hash_results  # noqa: E402

FORK = multiprocessing.get_context("fork")
assert sea_nn.datasets.run  # imported here once, for all processes

PORT = 6399
COUNT = 40  # inputs, two to a shard
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_AUTH_MODE": "disabled",  # of the cluster on this machine that is started here
}
TIMEOUT = 300


@dataclass
class Tally:
    """What came of one kind of fault."""

    name: str
    equal: int = 0
    struck: int = 0
    points: int = 0
    runs: int = 0
    again: list[int] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""

    def row(self) -> str:
        most = max(self.again, default=0)
        mean = sum(self.again) / len(self.again) if self.again else 0
        kept = f"{min(self.kept, default=0):.0%} to {max(self.kept, default=0):.0%}"
        return (
            f"| {self.name} | {self.points} | {self.struck} | {kept} | {self.equal} of "
            f"{self.runs} | {mean:.1f} | {most} | {self.note} |"
        )


def start(out: Path, *options: str) -> BaseProcess:
    """Run the data set in a process of its own; forked, as this one never computes anything."""
    process = FORK.Process(target=_run, args=(out, ["--count", str(COUNT), *options]))
    process.start()
    return process


def _run(out: Path, options: list[str]) -> None:
    said = os.open(out.with_name("said.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["small", str(out), *options]
    small.main()


def wait(process: BaseProcess) -> int:
    """Wait for a process; return its exit code."""
    process.join(TIMEOUT)
    if process.exitcode is None:
        process.kill()
        raise RuntimeError(f"no end after {TIMEOUT} s")
    return process.exitcode


def finish(out: Path, *options: str) -> None:
    """Start the same command again until it ends well."""
    for _ in range(5):
        if wait(start(out, *options)) == 0:
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


PER_SHARD = 0.25  # seconds, about: --slow and two inputs to a shard
SLOW = ("--slow", "0.005")


def count_again(out: Path) -> int:
    """Shards that were begun more often than once."""
    begun = [e["shard"] for e in read_log(out) if e.get("event") == "begin"]
    return len(begun) - len(set(begun))


def strike(
    name: str,
    points: int,
    folder: Path,
    wanted: dict[str, str],
    act: Callable[[Path, random.Random], int],
    note: str = "",
    strikes: int = 1,
) -> Tally:
    """Do one kind of fault at so many random points, ``strikes`` of them in each run."""
    tally, chance, begun = Tally(name, note=note), random.Random(name), time.monotonic()
    for point in range(points // strikes):
        out = folder / name.replace(" ", "_") / str(point) / "out"
        out.parent.mkdir(parents=True)
        tally.points += strikes
        tally.runs += 1
        tally.struck += act(out, chance)
        tally.kept.append(len(list_committed(out)) / (COUNT // 2))
        finish(out)
        tally.equal += hash_results(out) == wanted and not list(out.rglob(".sea-*"))
        tally.again.append(count_again(out))
        print(f"{name} {tally.points}/{points}: {tally.row()}", flush=True)
    tally.seconds = time.monotonic() - begun
    return tally


def end(process: BaseProcess, number: int) -> None:
    """Send a signal and wait."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
    wait(process)


STRIKES = 4  # faults in one run on Ray, whose start takes most of the time


def choose_points(chance: random.Random, count: int) -> list[float]:
    """Random moments of a run, in order, in shards."""
    return sorted(chance.uniform(1, COUNT // 2 - 2) for _ in range(count))


def signal_driver(number: int) -> Callable[[Path, random.Random], int]:
    def act(out: Path, chance: random.Random) -> int:
        process = start(out, *SLOW)
        struck = wait_until(out, chance.uniform(0, COUNT // 2 - 1), process)
        end(process, number)
        return struck

    return act


def on_cluster(out: Path, workers: int = 2) -> BaseProcess:
    return start(out, "--workers", str(workers), "--address", f"127.0.0.1:{PORT}", *SLOW)


def kill_driver(out: Path, chance: random.Random) -> int:
    struck = 0
    for point in choose_points(chance, STRIKES):
        process = on_cluster(out)
        struck += wait_until(out, point, process)
        end(process, signal.SIGKILL)
        time.sleep(2)  # Ray ends the workers of a driver that is gone
    return struck


def kill_worker(out: Path, chance: random.Random) -> int:
    process, struck = on_cluster(out), 0
    for point in choose_points(chance, STRIKES):
        struck += wait_until(out, point, process)
        logs = [int(p.stem.rpartition("-")[2]) for p in (out / "log").glob("*.jsonl")]
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice([w for w in logs if Path(f"/proc/{w}").exists()]), signal.SIGKILL)
    wait(process)
    return struck


def kill_node(out: Path, chance: random.Random) -> int:
    process, struck = None, 0
    for point in choose_points(chance, STRIKES):
        node = start_ray("--address", f"127.0.0.1:{PORT}", "--num-cpus", "1")
        time.sleep(8)
        process = process or on_cluster(out, 3)
        struck += wait_until(out, point, process)
        for pid in (*find_children(node.pid), node.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait(TIMEOUT)
    assert process is not None
    wait(process)
    return struck


def fill_disk(out: Path, chance: random.Random) -> int:
    """Run on a tmpfs that is too small, then make it larger."""
    place = out.parent
    room = chance.randrange(60, 400)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}k", "none", place], check=True)
    process = start(out)
    struck = wait(process) != 0
    subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
    return struck


def lose_power(out: Path, chance: random.Random) -> int:
    """End a process inside a random write; what was not synced is lost or cut short."""
    step = chance.randrange(6, 6 + 6 * (COUNT // 2))
    process = FORK.Process(target=run_victim, args=(out, step))
    process.start()
    return wait(process) == 99


def run_victim(out: Path, step: int) -> None:
    """Count syncs and renames; at one of them, lose what is not on the disk, and end."""
    real_sync, real_replace = os.fsync, Path.replace
    chance, seen = random.Random(step), 0
    last: list[tuple[Path, Path]] = []

    def lose(path: Path | None) -> None:
        if path is not None and path.exists():
            content = path.read_bytes()
            path.write_bytes(content[: chance.randrange(len(content) + 1)])
        os._exit(99)

    def sync(place: int) -> None:
        nonlocal seen
        seen += 1
        if seen == step:
            path = Path(os.readlink(f"/proc/self/fd/{place}"))
            if path.is_dir() and last and chance.random() < 0.5:  # the rename was not on the disk
                draft, target = last[-1]
                real_replace(target, draft)
            lose(path if path.is_file() else None)
        real_sync(place)

    def replace(self: Path, target: Path) -> Path:
        nonlocal seen
        seen += 1
        if seen == step:
            lose(None)
        last.append((self, Path(target)))
        return real_replace(self, target)

    os.fsync, Path.replace = sync, replace  # type: ignore[method-assign,assignment]
    _run(out, ["--count", str(COUNT)])


def find_children(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
    found, queue = [], [pid]
    while queue:
        parent = queue.pop()
        children = [child for child, p in parents.items() if p == parent]
        found += children
        queue += children
    return found


def start_ray(*options: str) -> subprocess.Popen[bytes]:
    ray = str(Path(sys.executable).with_name("ray"))
    shared = ("--block", "--disable-usage-stats", "--object-store-memory", "100000000")
    return subprocess.Popen(
        [ray, "start", *shared, *options],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextlib.contextmanager
def head_node() -> Iterator[None]:
    head = start_ray("--head", "--port", str(PORT), "--num-cpus", "2", "--include-dashboard=false")
    try:
        time.sleep(12)
        yield
    finally:
        for pid in (*find_children(head.pid), head.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        head.wait(TIMEOUT)


HEAD = """# Faults of runs over data sets

Written by `python scripts/soak_datasets.py --points {points}`. A small network explains {count}
inputs in {shards} shards, batches of 2, on {cores} cores. Each fault strikes at a random moment of
the run (power loss: at a random sync or rename), and the same command is then started again in one
process. **Equal**: every Parquet and safetensors file is, byte for byte, that of a run that nothing
disturbed, and no draft is left. **Done again**: shards that were begun twice. A process has up to
two open shards, one being explained and one being written. Ray: 2 workers on a head node, four
faults one after another in each run; for the lost node a second node process on this machine with a
third worker, all of whose processes are killed, and another such node after it.

| fault | points | struck in time | shards there | runs equal | done again a run, mean | most | |
|---|---:|---:|---|---:|---:|---:|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    folder = Path(tempfile.mkdtemp(prefix="sea-soak-"))
    reference = folder / "undisturbed" / "out"
    reference.parent.mkdir()
    finish(reference)
    wanted = hash_results(reference)
    faults: dict[str, tuple[Callable[[Path, random.Random], int], str, bool]] = {
        "kill -9 of the process": (signal_driver(signal.SIGKILL), "", False),
        "SIGTERM": (signal_driver(signal.SIGTERM), "finishes the open shard", False),
        "power loss in a write": (lose_power, "what was not synced is cut or gone", False),
        "full disk": (fill_disk, "tmpfs of 60 to 400 kB", False),
        "kill -9 of a Ray worker": (kill_worker, "the run itself goes on", True),
        "kill -9 of the Ray driver": (kill_driver, "", True),
        "kill -9 of a Ray node": (kill_node, "the run itself goes on", True),
    }
    rows = []
    for on_ray in (False, True):
        with head_node() if on_ray else contextlib.nullcontext():
            for name, (act, note, needs_ray) in faults.items():
                if needs_ray == on_ray and given.only in name:
                    strikes = STRIKES if on_ray else 1
                    found = strike(name, given.points, folder, wanted, act, note, strikes)
                    rows.append(found.row())
    text = HEAD.format(
        points=given.points, count=COUNT, shards=COUNT // 2, cores=os.cpu_count(),
        rows="\n".join(rows),
    )  # fmt: skip
    print(text)
    if given.write is not None:
        given.write.write_text(text)
    for place in folder.glob("full_disk/*"):
        subprocess.run(["umount", place], check=False)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
