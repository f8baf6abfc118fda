"""How far the default's map moves when nothing that matters changes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Batch
from sea_nn.metrics import overlap_top, random_map
from sea_nn.paper.agreement import spearman
from sea_nn.questions import search
from sea_nn.sea import SEA

SHARE = 0.01
LABELS = (
    *("float64", "TF32 off", "other device", "one at a time", "another seed", "other sets"),
    "random map",
)
METRICS = ("spearman", "top_1%")


def compare_with_default(explainer: Explainer, batch: Batch) -> dict[str, list[list[float]]]:
    """Compare the default's maps with those made otherwise: by metric and label, a number each."""
    model, x, target, seed = explainer.inputs.loaded.model, batch.x, batch.target, explainer.seed

    def run(model: torch.nn.Module, x: Tensor, target: Tensor, seed: int = seed) -> Tensor:
        found = SEA(model, seed=seed).explain(x, target, quiet=True)
        return found.attribution[:, 0].to(batch.x.device, torch.float64)

    own = run(model, x, target)
    other = "cpu" if x.is_cuda else "cuda" if torch.cuda.is_available() else "cpu"
    with _without_tf32():
        exact = run(model, x, target)
    with patch.object(search, "DESIGN", 1):
        drawn = run(model, x, target)
    made = {
        "float64": run(copy.deepcopy(model).double(), x.double(), target),
        "TF32 off": exact,
        "one at a time": torch.cat([run(model, x[[i]], target[[i]]) for i in range(len(x))]),
        "another seed": run(model, x, target, seed + 1),
        "other sets": drawn,
        "random map": random_map(tuple(own.shape), seed, batch.number, own.device).to(own),
    }
    made["other device"] = run(copy.deepcopy(model).to(other), x.to(other), target.to(other))
    table: dict[str, list[list[float]]] = {name: [] for name in METRICS}
    for label in LABELS:
        table["spearman"].append(spearman(own.flatten(1), made[label].flatten(1)).tolist())
        table["top_1%"].append(overlap(own, made[label]).tolist())
    return table


def overlap(one: Tensor, two: Tensor) -> Tensor:
    """Share of the top 1 % of the positions that two maps have in common, [N]."""
    iou = overlap_top(one.unsqueeze(1), two.unsqueeze(1), SHARE).squeeze(1)
    return 2 * iou / (1 + iou)  # both sets have one size


@contextmanager
def _without_tf32() -> Iterator[None]:
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, products.allow_tf32
    convolutions.allow_tf32 = products.allow_tf32 = False
    try:
        yield
    finally:
        convolutions.allow_tf32, products.allow_tf32 = before
