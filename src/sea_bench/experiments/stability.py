"""How far SEA's map moves when nothing that matters changes."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.experiment import PAPER_MEMBERS
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Batch
from sea_nn.config import SEAConfig
from sea_nn.ensembling.agreement import spearman
from sea_nn.members.checks import vote
from sea_nn.metrics import overlap_top
from sea_nn.pipeline import explain, learn
from sea_nn.questions.ask import make_ask

TOP = 50
LABELS = (
    *("float64", "other tie rule", "other device", "other draws", "Agg-Mean, other draws"),
    *("other draws, noise by point", "other draws, noise by point, 4 times as much"),
)
METRICS = ("spearman", f"top_{TOP}")


def compare_maps(explainer: Explainer, batch: Batch) -> dict[str, list[list[float]]]:
    """Compare SEA's maps with those made otherwise: by metric and label, a number an input."""
    model, x, target, seed = explainer.inputs.loaded.model, batch.x, batch.target, explainer.seed
    settings: dict[str, Any] = {"methods": PAPER_MEMBERS, "config": SEAConfig(rounds=1)}
    run = partial(explain, model, x, target, **settings)
    usual, fresh = run(seed=seed), run(seed=seed + 1)
    double = explain(copy.deepcopy(model).double(), x.double(), target, seed=seed, **settings)
    heatmaps, weights, config = usual.heatmaps, vote(usual.members), usual.config
    other = "cpu" if x.is_cuda else "cuda" if torch.cuda.is_available() else "cpu"
    moved = learn(
        heatmaps.to(other),
        config,
        weights=weights.to(other),
        ask=make_ask(copy.deepcopy(model).to(other), x.to(other), target.to(other)),
    )
    # Turned round, the lowest index is the highest, and every tie goes the other way.
    ask = make_ask(model, x, target)
    turned = learn(
        heatmaps.flip(-1, -2), config, weights=weights, ask=lambda sets: ask(sets.flip(-1, -2))
    )
    own = usual.learned.attribution
    pairs = [
        (own, double.learned.attribution),
        (own, turned.attribution.flip(-1, -2)),
        (own, moved.attribution.to(x.device)),
        (own, fresh.learned.attribution),
        (heatmaps.mean(1), fresh.heatmaps.mean(1)),
    ]
    # SG with noise of every point's own, rather than every path's.
    for options in ({"per_point": True}, {"per_point": True, "n_samples": 20}):
        both = (run(seed=seed + k, options={"smooth_ig": options}) for k in (0, 1))
        one, two = (found.learned.attribution for found in both)
        pairs.append((one, two))
    table: dict[str, list[list[float]]] = {name: [] for name in METRICS}
    for one, two in pairs:
        table["spearman"].append(
            spearman(one.double().flatten(1), two.double().flatten(1)).tolist()
        )
        table[METRICS[1]].append(overlap(one, two).tolist())
    return table


def overlap(one: Tensor, two: Tensor) -> Tensor:
    """Share of the 50 most relevant positions that two maps have in common, [N]."""
    iou = overlap_top(one.unsqueeze(1), two.unsqueeze(1), min(TOP, one[0].numel())).squeeze(1)
    return 2 * iou / (1 + iou)  # both sets have one size
