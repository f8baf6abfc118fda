"""What each part of the engine gains: the same maps with one part after the other switched off.

On a CPU: norm folding. On a GPU: norm folding, the first
layer apart and CUDA graphs, with Captum by hand beside them; `benchmarks.compiled` adds compiled
passes. Each machine writes its own section of docs/results/engine.md.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.members import PAPER, Captum, cosine, explain, views
from benchmarks.table import Table, hardware, to_markdown
from sea_nn.metrics import score_maps
from sea_nn.model import cuda_graphs, forms
from sea_nn.questions import opening
from sea_nn.vision.models import load_model

FILE = Path(__file__).parents[1] / "docs" / "results" / "engine.md"
SECONDS = 170  # on a GPU, what might end later is left out
Part = list[tuple[Any, str, Any]]

NEVER = 1 << 60
NORMS: Part = [(forms, "fold", lambda evaluator, gradients: None), (opening, "FOLD_FROM", NEVER)]
FIRST: Part = [(cuda_graphs.Kept, "find_first", lambda self, evaluator: None)]
GRAPHS: Part = [
    (cuda_graphs, "_try", lambda record, evaluator: None),
    (cuda_graphs, "FEW", 0),
]


@contextmanager
def without(part: Part) -> Iterator[None]:
    """Switch a part off."""
    with ExitStack() as stack:
        for owner, name, value in part:
            stack.enter_context(patch.object(owner, name, value))
        yield


def best(work: Callable[[], Any], repeats: int = 3, warm: int = 1) -> tuple[float, Any]:
    """Return the least seconds of a call, and what it returned; on a CPU, seconds of its time."""
    gpu = torch.cuda.is_available()
    now = time.perf_counter if gpu else time.process_time  # other programs may run on the CPU
    for _ in range(warm):
        work()
    took = []
    for _ in range(repeats):
        start = now()
        found = work()
        if gpu:
            torch.cuda.synchronize()
        took.append(now() - start)
    return min(took), found


def forget() -> None:
    """Drop what is kept from calls before."""
    from sea_nn.model.borrowing import _IDLE

    _IDLE.clear()
    cuda_graphs.release()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def on_cpu() -> Iterator[Table]:
    loaded = load_model("efficientnet-lite0")
    model, x = loaded.model, views(loaded.preprocess, 1)
    with torch.no_grad():
        target = model(x).argmax(1)
    heat = {"a": torch.rand(1, *x.shape[2:], generator=torch.Generator().manual_seed(0))}
    name = "deletion:blur,steps=128"

    def curve() -> Tensor:
        return score_maps(model, x, target, heat, [name], random=False).values[name]

    def maps() -> Tensor:
        return torch.cat(explain_here(model, x, target))

    rows = []
    for label, work, how, repeats in (
        ("VG, IG and SG", maps, cosine, 1),
        ("a deletion curve of 128 steps", curve, lambda a, b: float((a - b).abs().max()), 3),
    ):
        with without(NORMS):
            plain, expected = best(work, repeats, 0)
        fast, found = best(work, repeats, 0)
        same = how(found, expected)
        rows.append([label, "norm folding", f"{fast:.2f}", f"{plain:.2f}", plain / fast, same])
    yield from _say(rows)


def explain_here(model: nn.Module, x: Tensor, target: Tensor) -> list[Tensor]:
    from sea_nn.members.compute import compute_maps

    return list(compute_maps(model, x, target, PAPER).maps.values())


def _say(rows: list[list[Any]]) -> Iterator[Table]:
    note = (
        "EfficientNet-Lite0, one photograph: seconds of CPU time with the part and without it. The "
        "same is the least cosine of the maps, or the largest difference of the scores. The first "
        "layer apart, CUDA graphs and compiled passes are for GPUs."
    )
    table = [[*row[:4], f"{row[4]:.2f}", f"{row[5]:.7f}"] for row in rows]
    header = ["work", "part", "with, s", "without, s", "gain", "the same"]
    yield "Passes on a CPU", note, header, table


HEADER = [
    *("model", "batch", "Captum", "all parts", "cosine", "norms as they are"),
    *("first layer in place", "no CUDA graphs"),
]
Case = tuple[nn.Module, Tensor, Tensor]


def load_cases(
    sizes: tuple[int, ...] = (1, 8, 32),
    names: tuple[str, ...] = ("efficientnet-lite0", "resnet50"),
) -> dict[tuple[str, int], Case]:
    """Return model, inputs and classes by the model's name and the number of images."""
    cases, device = {}, "cuda" if torch.cuda.is_available() else "cpu"
    for name in names:
        loaded = load_model(name, device)
        every = views(loaded.preprocess, max(sizes)).to(device)
        with torch.no_grad():
            target = loaded.model(every).argmax(1)
        for size in sizes:
            cases[name, size] = loaded.model, every[:size], target[:size]
    return cases


def on_gpu() -> Iterator[Table]:
    warnings.simplefilter("ignore")
    began, rows = time.perf_counter(), []
    for (name, size), case in load_cases().items():
        late = time.perf_counter() - began > SECONDS - 20
        forget()
        cells = ["no time left"] if late else _as_is(*case)
        rows.append([name, str(size), *cells])
        print(f"{time.perf_counter() - began:.0f} s:", " | ".join(rows[-1]), flush=True)
    note = (
        "Images a second of the paper's ensemble (VG, IG, SG), different crops of two photographs, "
        "the best of several calls after untimed ones. The cosine is the least of VG and IG with "
        "Captum's over all inputs; in brackets after a column, the least with the maps of all "
        "parts, all three."
    )
    yield "Passes on a GPU", note, HEADER, rows


def repeat(size: int) -> tuple[int, int]:
    """Return how many calls are timed and how many come before: the third only replays."""
    return (5, 3) if size == 1 else (3, 3) if size == 8 else (2, 1)


def _as_is(model: nn.Module, x: Tensor, target: Tensor) -> list[str]:
    size = len(x)
    Captum(model).explain(x, target)
    theirs, took, _ = Captum(model).explain(x, target)
    row = [f"{size / sum(took):.1f}"]
    found: list[Tensor] | None = None
    for part in ([], NORMS, FIRST, GRAPHS):
        forget()
        with without(part):
            work = partial(explain, model, x, target, PAPER)
            seconds, (maps, _, _) = best(work, *repeat(size))
        row.append(f"{size / seconds:.1f}")
        if found is None:
            found = maps
            row.append(f"{min(cosine(maps[k], theirs[k]) for k in (0, 1)):.5f}")
        else:
            same = min(cosine(a, b) for a, b in zip(maps, found, strict=True))
            row[-1] += f" ({same:.5f})"
    return row


def write(tables: list[Table], section: str) -> None:
    """Put the tables into this machine's section of the page, and leave the other's alone."""
    title = "# What each part of the engine gains: `python -m benchmarks engine`\n"
    text = FILE.read_text() if FILE.exists() else title
    mark = f"\n# On {section}\n"
    head, _, rest = text.partition(mark)
    after = rest.find("\n# ")
    body = "\n".join(to_markdown(*table) for table in tables).replace("\n## ", "\n### ")
    body = body.replace("## ", "### ", 1) if body.startswith("## ") else body
    said = f"{mark}\nHardware and versions: {hardware()}\n\n{body}"
    FILE.write_text(head.rstrip("\n") + "\n" + said + (rest[after:] if after >= 0 else ""))


def run() -> Iterator[Table]:
    gpu = torch.cuda.is_available()
    tables = []
    for table in on_gpu() if gpu else on_cpu():
        tables.append(table)
        yield table
    write(tables, "an H200" if gpu else "two CPU cores")
