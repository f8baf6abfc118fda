"""Which layout, precision and pass size a GPU runs fastest in: forward and backward passes alone.

The choices in ``sea_nn.passes.evaluator``, ``sea_nn.passes.batching`` and ``sea_nn.passes.cuda_graphs`` rest on this table.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.members import clock, efficientnet, resnet
from benchmarks.table import Table
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.cuda_graphs import Recording
from sea_nn.passes.norm_folding import Fold, plan

SIZES = (16, 50, 100, 200, 400)
LAYOUTS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}


def rate(model: nn.Module, size: int, layout: torch.memory_format, half: bool, graph: bool) -> str:
    """Return thousands of points a second, the best of three passes or bursts of passes."""
    x = torch.randn(size, 3, 224, 224, device="cuda").contiguous(memory_format=layout)

    def run() -> Tensor:
        leaf = x.detach().requires_grad_(True)
        with torch.autocast("cuda", torch.float16) if half else nullcontext():
            score = model(leaf)[:, 0].float().sum() * (1024 if half else 1)
        return torch.autograd.grad(score, leaf)[0]

    try:
        run()
        work = Recording(run, x.device).replay if graph else run
    except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
        torch.cuda.empty_cache()
        return type(error).__name__
    best = float("inf")
    for _ in range(3):
        start = clock()
        for _ in range(max(1, 400 // size)):
            work()
        best = min(best, (clock() - start) / max(1, 400 // size))
    return f"{size / best / 1e3:.2f}"


def run() -> list[Table]:
    if not torch.cuda.is_available():
        raise SystemExit("this table is for a CUDA device")
    rows = []
    for name, make in (("EfficientNet-Lite0", efficientnet), ("ResNet-50", resnet)):
        model = make().cuda()
        one = torch.randn(1, 3, 224, 224, device="cuda")
        with borrow(model):
            what = plan(model, partial(model, one))
            for folded, layout, half, tuned, graph in itertools.product(
                (False, True), LAYOUTS, (False, True), (False, True), (False, True)
            ):
                if not folded and (half or tuned or graph or layout == "channels last"):
                    continue  # the plain model once, as it comes
                fold = Fold(what, torch.float16 if half else None) if folded else Fold()
                for weight in (kept["weight"] for kept in fold.parameters.values()):
                    weight.data = weight.data.contiguous(memory_format=LAYOUTS[layout])
                torch.backends.cudnn.benchmark = tuned
                with fold.applied():
                    rates = [rate(model, n, LAYOUTS[layout], half, graph) for n in SIZES]
                said = ("folded" if folded else "plain", "float16" if half else "float32")
                more = ("tuned" if tuned else "", "graph" if graph else "")
                rows.append([name, *said, layout, *more, *rates])
        torch.backends.cudnn.benchmark = False
        del model
        torch.cuda.empty_cache()
    note = (
        "Thousands of forward and backward passes of one input a second, by the number of inputs "
        "in a pass. Tuned is `torch.backends.cudnn.benchmark`."
    )
    header = ["model", "norms", "precision", "layout", "", "", *map(str, SIZES)]
    return [("Passes on a GPU", note, header, rows)]
