"""All 70,000 pictures of Fashion-MNIST, explained in one process: time, bytes, memory.

    python -m benchmarks.whole_fashion OUT [--write docs/results/datasets_fashion.md]

The shipped classifier, one thread, three cheap members, no questions, and the keep/remove curve.
Resident memory is sampled every five seconds. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks.table import hardware, to_markdown
from sea_bench.data.fashion import load_fashion
from sea_bench.experiments.tables import wrap
from sea_nn import SEA, SEAConfig, explain_dataset, read_dataset
from sea_nn.datasets.storage import read_log
from sea_nn.vision.models import load_model

BATCH, SHARD = 64, 1024
CHEAP = ("saliency", "input_x_gradient", "grad_cam")
EVERY = 5.0  # seconds between samples of the memory


class Pictures(Dataset[tuple[Tensor, int]]):
    """The training set, then the test set; pixels become floats when they are asked for."""

    def __init__(self) -> None:
        parts = [load_fashion("train"), load_fashion("test")]
        self.images = torch.cat([torch.from_numpy(images) for images, _ in parts])
        self.labels = [int(label) for _, labels in parts for label in labels]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index, None].float() / 255, self.labels[index]


def status(name: str) -> float:
    """A field of this process's status, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise KeyError(name)


def watch(out: Path, ended: threading.Event) -> None:
    """Write time and resident memory down until the run ends."""
    with (out.parent / f"{out.name}.memory.jsonl").open("a") as file:
        while not ended.wait(EVERY):
            file.write(json.dumps({"time": time.time(), "mib": round(status("VmRSS"), 1)}) + "\n")
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    fashion, ended = load_model("fashion-cnn"), threading.Event()
    sampler = threading.Thread(target=watch, args=(given.out, ended), daemon=True)
    sampler.start()
    busy = time.process_time()
    outcome = explain_dataset(
        Pictures(), SEA(fashion.model, CHEAP, SEAConfig(), output="logits"), given.out,
        labels=fashion.labels, model_name="fashion-cnn", batch_size=BATCH, shard_size=SHARD,
    )  # fmt: skip
    ended.set()
    print(outcome)
    print(f"processor seconds {time.process_time() - busy:.0f}, peak {status('VmHWM'):.0f} MiB")
    if given.write is not None:
        given.write.write_text(describe(given.out))


def describe(out: Path) -> str:
    """The page: figures of the whole run, and memory against inputs done."""
    commits = sorted((e for e in read_log(out) if e["event"] == "commit"), key=lambda e: e["time"])
    samples = [json.loads(line) for line in Path(f"{out}.memory.jsonl").read_text().splitlines()]
    rows, done = [], 0
    for k, event in enumerate(commits):
        done += event["n_inputs"]
        if (k + 1) % 10 and k + 1 < len(commits):
            continue
        near = min(samples, key=lambda s: abs(s["time"] - event["time"]))
        minutes = (event["time"] - samples[0]["time"]) / 60
        rows.append([f"{done:,}", f"{minutes:.1f}", f"{near['mib']:.0f}"])
    data = read_dataset(out)
    table = data.to_arrow().to_pydict()
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    explaining = sum(e["seconds"]["explain"] for e in commits)
    whole = (commits[-1]["time"] - samples[0]["time"]) / 60
    facts = [
        ["inputs", f"{len(data):,}"],
        ["failed", str(sum(e is not None for e in table["error"]))],
        ["right", f"{sum(map(bool, table['correct'])) / len(data):.3f}"],
        ["evaluations an input", str(max(table["evaluations"]))],
        ["minutes", f"{whole:.0f}"],
        ["share of the time in explaining", f"{explaining / 60 / whole:.1%}"],
        ["MB written", f"{size / 1e6:.0f}"],
        ["bytes an input", f"{size / len(data):.0f}"],
        ["peak memory, MiB", f"{max(s['mib'] for s in samples):.0f}"],
        ["  of it before the first shard", f"{samples[0]['mib']:.0f}"],
    ]
    head = (
        "# All of Fashion-MNIST\n\nWritten by `python -m benchmarks.whole_fashion OUT --write`.\n"
    )
    note = (
        "The shipped classifier, one thread, members fast without questions, the keep and remove "
        f"curve, batches of {BATCH}, shards of {SHARD:,}, float16 maps. {hardware()}."
    )
    return (
        "\n".join([head, *wrap(note), "", ""])
        + to_markdown("The run", "", ("", ""), facts)
        + "\n"
        + to_markdown("Memory", "", ("inputs", "minutes", "resident, MiB"), rows)
    )


if __name__ == "__main__":
    main()
