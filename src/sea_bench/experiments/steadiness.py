"""How far SEA's map moves when nothing that matters changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.experiment import PAPER_MEMBERS
from sea_bench.experiments.run import Run
from sea_bench.experiments.subjects import Batch
from sea_nn.config import SEAConfig
from sea_nn.ensembling.agreement import agreement
from sea_nn.ensembling.heatmaps import to_heatmap
from sea_nn.members.compute import compute_maps
from sea_nn.pipeline import learn
from sea_nn.questions.answers import Ask
from sea_nn.questions.ask import make_ask

TOP = 50
LABELS = (
    *("float64", "other tie rule", "other device", "other draws", "Agg-Mean, other draws"),
    *("other draws, noise by point", "other draws, noise by point, 4 times as much"),
)
METRICS = ("spearman", f"top_{TOP}")


def compare_maps(run: Run, batch: Batch) -> dict[str, list[list[float]]]:
    """Compare SEA's maps with those made otherwise: by metric and label, a number an input."""
    model, x, target = run.subjects.loaded.model, batch.x, batch.target
    heatmaps = _explain(run, x, run.seed)
    usual = _learn(heatmaps, make_ask(model, x, target))

    def mirrored(sets: Tensor) -> Tensor:
        return make_ask(model, x, target)(sets.flip(-1, -2))

    other = "cpu" if x.is_cuda else "cuda" if torch.cuda.is_available() else "cpu"
    moved, there = copy.deepcopy(model).to(other), x.to(other)
    double, twice = copy.deepcopy(model).double(), x.double()
    fresh = _explain(run, x, run.seed + 1)
    ways: dict[str, Callable[[], Tensor]] = {
        # Members, questions and ensemble, all in double precision.
        "float64": lambda: _learn(
            _explain(run, twice, run.seed, double), make_ask(double, twice, target)
        ),
        # Turned round, the lowest index is the highest, and every tie goes the other way.
        "other tie rule": lambda: _learn(heatmaps.flip(-1, -2), mirrored).flip(-1, -2),
        "other device": lambda: _learn(
            heatmaps.to(other), make_ask(moved, there, target.to(other))
        ).to(x.device),
        "other draws": lambda: _learn(fresh, make_ask(model, x, target)),
    }
    table: dict[str, list[list[float]]] = {name: [] for name in METRICS}
    pairs = [(usual, way()) for way in ways.values()]
    pairs.append((heatmaps.mean(1), fresh.mean(1)))
    # SG with noise of every point's own, rather than every path's.
    for options in ({"per_point": True}, {"per_point": True, "n_samples": 20}):
        again = (_explain(run, x, run.seed + k, smooth_ig=options) for k in (0, 1))
        one, two = (_learn(found, make_ask(model, x, target)) for found in again)
        pairs.append((one, two))
    for one, two in pairs:
        both = torch.stack([one.double(), two.double()], 1)
        table["spearman"].append(agreement(both)[:, 0, 1].tolist())
        table[METRICS[1]].append(overlap(one, two).tolist())
    return table


def overlap(one: Tensor, two: Tensor) -> Tensor:
    """Share of the 50 most relevant positions that two maps have in common, [N]."""
    tops = []
    for values in (one.flatten(1), two.flatten(1)):
        chosen = values.topk(min(TOP, values.shape[1]), dim=1).indices
        tops.append(torch.zeros_like(values, dtype=torch.bool).scatter_(1, chosen, True))
    return (tops[0] & tops[1]).sum(1) / tops[0].sum(1)


def _explain(
    run: Run,
    x: Tensor,
    seed: int,
    model: torch.nn.Module | None = None,
    **options: Mapping[str, Any],
) -> Tensor:
    model = run.subjects.loaded.model if model is None else model
    found = compute_maps(model, x, None, PAPER_MEMBERS, options=options, seed=seed)
    return torch.stack([to_heatmap(raw) for raw in found.maps.values()], 1)


def _learn(heatmaps: Tensor, ask: Ask) -> Tensor:
    return learn(heatmaps, SEAConfig(), ask=ask, keep_scorer=False).attribution
