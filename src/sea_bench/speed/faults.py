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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sea_nn.datasets.run
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_nn.datasets.storage import list_committed, read_log
from sea_nn.errors import MissingExtraError

FORK = multiprocessing.get_context("fork")
assert sea_nn.datasets.run  # imported here once, for all processes

ROOT = Path(__file__).resolve().parents[3]
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
    again: list[int] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    note: str = ""

    def row(self) -> list[str]:
        """Its row of the table."""
        most = max(self.again, default=0)
        mean = sum(self.again) / len(self.again) if self.again else 0
        kept = f"{min(self.kept, default=0):.0%} to {max(self.kept, default=0):.0%}"
        equal = f"{self.equal} of {self.points}"
        return [self.name, str(self.struck), kept, equal, f"{mean:.1f}", str(most), self.note]


Act = Callable[[Path, random.Random], tuple[bool, float]]
"""Runs a data set and breaks it: whether the fault came in time, and the share done by then."""


def start(out: Path, *options: str) -> BaseProcess:
    """Run the data set in a process of its own; forked, as this one never computes anything."""
    process = FORK.Process(target=_run, args=(out, ["--count", str(COUNT), *options]))
    process.start()
    return process


def find_small() -> Any:
    """The small run of the tests, whose results can be compared."""
    try:
        return import_module("tests.datasets.small")
    except ImportError as error:
        raise MissingExtraError(
            "this breaks the small run of tests/datasets: in a checkout, PYTHONPATH=. sea bench "
            "faults"
        ) from error


def _run(out: Path, options: list[str]) -> None:
    said = os.open(out.with_name("said.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["small", str(out), *options]
    find_small().main()


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
    act: Act,
    note: str,
    tell: Callable[[int], None],
) -> Tally:
    """Do one kind of fault at so many random points, each in a run of its own."""
    tally, chance = Tally(name, note=note), random.Random(name)
    for point in range(points):
        tell(point)
        out = folder / name.replace(" ", "_") / str(point) / "out"
        out.parent.mkdir(parents=True)
        tally.points += 1
        struck, done = act(out, chance)
        tally.struck += struck
        tally.kept.append(done)
        finish(out)
        tally.equal += find_small().hash_results(out) == wanted and not list(out.rglob(".sea-*"))
        tally.again.append(count_again(out))
    return tally


def end(process: BaseProcess, number: int) -> None:
    """Send a signal and wait."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
    wait(process)


def count_done(out: Path) -> float:
    """The share of the shards that is there."""
    return len(list_committed(out)) / (COUNT // 2)


def signal_driver(number: int) -> Act:
    """Send a signal to the process at a random moment."""

    def act(out: Path, chance: random.Random) -> tuple[bool, float]:
        process = start(out, *SLOW)
        struck = wait_until(out, chance.uniform(0, COUNT // 2 - 1), process)
        done = count_done(out)
        end(process, number)
        return struck, done

    return act


def on_cluster(out: Path) -> BaseProcess:
    """Start the run on the local cluster, with two workers."""
    return start(out, "--workers", "2", "--address", f"127.0.0.1:{PORT}", "--slow", "0.03")


def kill_worker(out: Path, chance: random.Random) -> tuple[bool, float]:
    """Kill one of the workers of a run on a cluster."""
    process = on_cluster(out)
    struck = wait_until(out, chance.uniform(1, COUNT // 2 - 2), process)
    done = count_done(out)
    kill([chance.choice([w for w in find_workers(out) if Path(f"/proc/{w}").exists()])])
    return wait(process) == 0 and struck, done


def find_workers(out: Path) -> list[int]:
    """The processes that have begun a shard."""
    return [int(p.stem.rpartition("-")[2]) for p in (out / "log").glob("*.jsonl")]


def kill(processes: list[int]) -> None:
    """Kill processes that may be gone already."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


NEEDED = 230  # kB that 19 of the 20 shards take


def fill_disk(out: Path, chance: random.Random) -> tuple[bool, float]:
    """Run on a tmpfs that is too small, then make it larger."""
    place = out.parent
    room = chance.randrange(40, NEEDED)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}k", "none", place])
    process = start(out)
    struck, done = wait(process) != 0, count_done(out)
    subprocess.run(["mount", "-o", "remount,size=64m", place])
    return struck, done


def lose_power(out: Path, chance: random.Random) -> tuple[bool, float]:
    """End a process inside a random write; what was not synced is lost or cut short."""
    step = chance.randrange(6, 6 + 6 * (COUNT // 2))
    process = FORK.Process(target=run_victim, args=(out, step))
    process.start()
    return wait(process) == 99, count_done(out)


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
    """Every process below one, by /proc."""
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
    """Start a node of Ray."""
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
def head_node(cpus: int) -> Iterator[None]:
    """A head node with so many processors."""
    more = ("--num-cpus", str(cpus), "--include-dashboard=false")
    head = start_ray("--head", "--port", str(PORT), *more)
    try:
        time.sleep(12)
        yield
    finally:
        kill([*find_children(head.pid), head.pid])
        head.wait(TIMEOUT)


NOTE = (
    "A small network explains {count} inputs in {shards} shards, batches of 2. Each fault strikes "
    "at a random moment of the run (power loss: at a random sync or rename), and the same command "
    "is then started again in one process. Equal: every Parquet and safetensors file is, byte for "
    "byte, that of a run that nothing disturbed, and no draft is left. Done again: shards that "
    "were begun twice. A process has one open shard. Ray: 2 workers on one node."
)
FAULTS: dict[str, tuple[Act, str, int]] = {  # with the processors of a head node, 0: no Ray
    "kill -9 of the process": (signal_driver(signal.SIGKILL), "", 0),
    "SIGTERM": (signal_driver(signal.SIGTERM), "finishes the open shard", 0),
    "power loss in a write": (lose_power, "what was not synced is cut or gone", 0),
    "full disk": (fill_disk, f"tmpfs of 40 to {NEEDED} kB", 0),
    "kill -9 of a Ray worker": (kill_worker, "the run itself goes on", 2),
}


@experiment(
    "faults", "What happens when a run is disturbed?", "made here", n_inputs=20, quick=2
)
def faults(run: Run) -> Findings:
    """Runs over data sets are broken at random points and started again.

    Is anything lost, or done twice?
    """
    os.environ.update(ENVIRONMENT)
    find_small()
    folder = Path(tempfile.mkdtemp(prefix="sea-soak-"))
    reference = folder / "undisturbed" / "out"
    reference.parent.mkdir()
    finish(reference)
    wanted, rows = find_small().hash_results(reference), []
    try:
        for cpus in (0, 2):
            with head_node(cpus) if cpus else contextlib.nullcontext():
                for name in (one for one in FAULTS if FAULTS[one][2] == cpus):
                    act, note, _ = FAULTS[name]

                    def tell(point: int, name: str = name) -> None:
                        run.tell(name, point, run.count)

                    rows.append(strike(name, run.count, folder, wanted, act, note, tell).row())
    finally:
        for place in folder.glob("full_disk/*"):
            subprocess.run(["umount", place], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    head = ["fault", "struck in time", "done by then", "runs equal", "done again, mean", "most", ""]
    note = NOTE.format(count=COUNT, shards=COUNT // 2)
    return Findings([Table("Faults", note, head, rows)], ["inputs: points a fault"])
