"""What learning costs beside the answers it learns from: ``python -m benchmarks learning``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.table import Table
from sea_nn import SEA
from sea_nn.questions import budget
from sea_nn.questions.ask import make_ask_only
from sea_nn.questions.designs import spread_sets
from sea_nn.questions.learn import learn_from_answers
from sea_nn.vision.models import load_model

ANSWERS, CELLS, SIDE = 508, 8, 224
BATCHES = (1, 16, 32, 64)
BUDGETS, WHOLE_BATCHES = (34, 128, 512, 1024), (1, 32)


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
    yield time_explanations(loaded.model, device)


def time_explanations(model: Any, device: str) -> Table:
    """One table: the time of a whole explanation by budget, and what of it is the model's."""
    rows = []
    for count in WHOLE_BATCHES if device == "cuda" else WHOLE_BATCHES[:1]:
        x = torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).to(device)
        for evaluations in BUDGETS:
            members, answers, rest = (v / count for v in _explain(model, x, evaluations))
            total = members + answers + rest
            cells = (f"{1e3 * v:.1f}" for v in (total, members, answers, rest))
            rows.append([f"{evaluations:,}", str(count), *cells, f"{rest / answers:.0%}"])
    note = (
        "Milliseconds an image of `SEA(model, budget=B).explain(x, quiet=True)`, EfficientNet-"
        f"Lite0 at {SIDE} x {SIDE}, after one call to warm up, and its parts: members, the model's "
        "answers, and learning, which is choosing sets, fits, orders and the map."
    )
    parts = ("all", "members", "answers", "learning")
    header = ["budget", "inputs at once", *(f"{part} (ms)" for part in parts)]
    return "An explanation from end to end", note, [*header, "learning / answers"], rows


def _explain(model: Any, x: Tensor, evaluations: int) -> tuple[float, float, float]:
    """Seconds of the members, of the model's answers and of the rest, after a call to warm up."""
    device, spent = x.device.type, [0.0]

    def make_timed(*given: Any, **options: Any) -> Callable[[Tensor], Tensor]:
        ask = make_ask_only(*given, **options)

        def timed(sets: Tensor) -> Tensor:
            _wait(device)
            started = time.perf_counter()
            found = ask(sets)
            _wait(device)
            spent[0] += time.perf_counter() - started
            return found

        return timed

    sea = SEA(model, budget=evaluations, output="logits")
    with patch.object(budget, "make_ask_only", make_timed):
        sea.explain(x, 0, quiet=True)
        spent[0] = 0.0
        started = time.perf_counter()
        e = sea.explain(x, 0, quiet=True)
        _wait(device)
        total = time.perf_counter() - started
    asking = e.provenance.seconds["sea"]
    return total - asking, spent[0], asking - spent[0]


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
