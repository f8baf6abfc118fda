"""What learning costs beside the answers it learns from: ``python -m benchmarks learning``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.table import Table
from sea_nn.questions.ask import make_ask_only
from sea_nn.questions.designs import spread_sets
from sea_nn.questions.learn import learn_from_answers
from sea_nn.vision.models import load_model

ANSWERS, CELLS, SIDE = 508, 8, 224
BATCHES = (1, 16, 64)


def run(repeats: int = 3) -> Iterator[Table]:
    """One table: inputs at once, seconds for the answers, for learning, and their ratio."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = load_model("efficientnet-lite0", device)
    rows = []
    for count in BATCHES if device == "cuda" else BATCHES[:1]:
        x = torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).to(device)
        model = time_best(lambda x=x: _answer(loaded.model, x), device, 1 if device == "cpu" else 3)
        learned = time_best(lambda x=x: _learn(x), device, repeats)
        rows.append([str(count), f"{model:.3f}", f"{learned:.3f}", f"{learned / model:.1%}"])
    for count in () if device == "cuda" else BATCHES[1:2]:
        x = torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
        learned = time_best(lambda x=x: _learn(x), device, repeats)
        rows.append([str(count), "", f"{learned:.3f}", f"{learned / count / model:.1%}"])
    note = (
        f"{ANSWERS} answers about {CELLS} x {CELLS} cells of {SIDE} x {SIDE} pixels, EfficientNet-"
        "Lite0; all rounds, fits and orders of `learn_from_answers`, answers for nothing. On a CPU "
        "the seconds are those of its cores, and the model is timed for one input."
    )
    header = ["inputs at once", "the model's answers (s)", "learning (s)", "learning / answers"]
    yield "Learning from answers", note, header, rows


def time_best(work: Callable[[], Any], device: str, repeats: int) -> float:
    """The shortest of some runs after one to warm up: seconds, on a CPU those of its cores."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    if device == "cuda":
        work()
    times = []
    for _ in range(repeats):
        _wait(device)
        start = clock()
        work()
        _wait(device)
        times.append(clock() - start)
    return min(times)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _answer(model: Any, x: Tensor) -> None:
    """Ask the model about as many sets as learning uses, in as many calls as a budget of 512."""
    ask = make_ask_only(model, x, 0, output="logits")
    generator = torch.Generator().manual_seed(0)
    cells = torch.arange(SIDE) * CELLS // SIDE
    cells = (cells[:, None] * CELLS + cells).to(x.device)
    for part in spread_sets(ANSWERS, CELLS**2, generator).to(x.device).split(ANSWERS // 10):
        ask(part[:, cells].expand(len(x), -1, -1, -1))


def _learn(x: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    worth = torch.rand(len(x), CELLS**2, generator=generator).pow(4)
    worth = (worth / worth.sum(1, keepdim=True)).to(x)
    heat = torch.rand(len(x), SIDE, SIDE, generator=generator).to(x)
    whole = torch.full((len(x),), 0.95, device=x.device)

    def ask_only(sets: Tensor) -> Tensor:
        cells = sets[..., :: SIDE // CELLS, :: SIDE // CELLS].flatten(2)
        share = (cells.to(worth) @ worth[:, :, None])[:, :, 0]
        return (9 * share.sqrt() - 6).sigmoid()

    learn_from_answers(ask_only, whole, heat, ANSWERS)
