"""What SEA costs beside the bare model on a table: rows of 30 columns, 128 evaluations a row.

CPU time is compared, not wall time, so that a busy machine changes the ratio little.
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.table import Table
from benchmarks.text import spent

N_ROWS, N_COLUMNS, WIDTH = 64, 30, 2048


def run(budget: int = 128) -> list[Table]:
    from sea_nn import SEA

    generator = torch.Generator().manual_seed(0)
    x, background = (torch.randn(n, N_COLUMNS, generator=generator) for n in (N_ROWS, 100))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Linear(N_COLUMNS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
            nn.Linear(WIDTH, 2),
        ).eval()
    sea = SEA(model, budget=budget, output="logits")
    sea.explain(x[:2], background=background, quiet=True)  # makes the model's twin
    count = [0]

    def explain() -> None:
        e = sea.explain(x, background=background, quiet=True)
        count[0] = sum(e.provenance.evaluations.values())

    def bare() -> None:
        with torch.no_grad():
            for part in torch.randn(count[0], N_COLUMNS, generator=generator).split(4096):
                model(part)

    ours = spent(explain, 1)
    own = spent(bare)
    note = (
        f"`SEA(model, budget={budget})` on {N_ROWS} rows of {N_COLUMNS} columns with a background, "
        f"a network of two hidden layers of {WIDTH}, beside as many passes of the bare model in "
        "batches of 4,096. CPU seconds, the least of two for the bare model. What is beyond the "
        "passes is learning 64 functions and the gradients of two members."
    )
    head = ["rows", "evaluations", "SEA", "bare model", "ratio"]
    row = [str(N_ROWS), f"{count[0]:,}", f"{ours:.2f}", f"{own:.2f}", f"{ours / own:.2f}"]
    return [("A table", note, head, [row])]
