"""How much does the second of two copies add after the first? The model, f, and maps.

For sets A and B, the cells of the two copies, a function's answer is

    (v(A and B) - v(better one)) / (v(better one) - v(none))

in log-odds; a map, which adds up, can only say how much it gives to the copy with less of it for
each unit that the other has. Where the better copy alone raises the log-odds by less than 1, there
is nothing to repeat, and the input does not count.
"""

import math

import torch
from torch import Tensor

from sea_bench.experiments.asking import fill_all, make_score, to_log_odds
from sea_bench.experiments.experiment import quantity, score_rows
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Batch
from sea_nn.features import Features
from sea_nn.metrics import Metric, Scores, random_map
from sea_nn.metrics.scoring import RANDOM

COVERED = 0.25  # a cell belongs to a copy that covers this part of it
LEAST_RISE = 1.0
MODEL = "the model"
COPIED = {
    "second_over_first": "What the second copy adds, in units of what the first adds; median.",
    "off_by": "How far that is from what the model itself says; median.",
}


def measure_copies(explainer: Explainer, batch: Batch) -> Scores:
    """Ask the model, every learned function and every map about the two copies."""
    x, target = batch.x, batch.target
    features = Features.of(x).on_grid((8, 8), x.device)
    copies = _find_copies(explainer, batch, features)  # [N, 2, n]
    sets = torch.cat([copies, copies.any(1, keepdim=True), torch.zeros_like(copies[:, :1])], 1)
    positions = features.expand(sets)
    fills = fill_all(x, features, "blur")
    score = make_score(explainer.inputs.loaded.model, x, target, features, fills)
    truth = _compare(to_log_odds(score(sets)))
    rows = {MODEL: truth}
    for one in explainer.experiment.maps:
        if one.how == "budget":
            found = explainer.spend(one.budget, x, target).predict(positions)
            rows[f"f of {one.label}"] = _compare(to_log_odds(found))
    maps = explainer.explain(x, target)
    shape = (len(x), *x.shape[2:])
    maps[RANDOM] = random_map(shape, explainer.seed, batch.number, x.device)
    for label, map_ in maps.items():
        mass = (features.sum(map_.to(x.device).double())[:, None] * copies).sum(2)
        rows[label] = mass.amin(1) / mass.amax(1).clamp(min=1e-300)
    values = {
        label: {
            "second_over_first": share.clamp(-1, 2).where(~truth.isnan(), torch.nan),
            "off_by": (share.clamp(-1, 2) - truth.clamp(-1, 2)).abs(),
        }
        for label, share in rows.items()
    }
    return score_rows(values, [describe_copies(name) for name in explainer.experiment.metrics])


def describe_copies(name: str) -> Metric:
    """The metric of this name."""
    return quantity(name, "lower", COPIED[name], (0.0, math.inf), "median")


def _compare(answers: Tensor) -> Tensor:
    """What the second adds over what the first does: log-odds of A, B, both and none, [N]."""
    first, both, none = answers[:, :2].amax(1), answers[:, 2], answers[:, 3]
    rise = first - none
    return torch.where(rise >= LEAST_RISE, (both - first) / rise.clamp(min=1e-9), torch.nan)


def _find_copies(explainer: Explainer, batch: Batch, features: Features) -> Tensor:
    """The cells of the two copies, bool [N, 2, n]; at least one each."""
    inputs = explainer.inputs
    found = []
    for item in inputs.items[batch.number : batch.number + len(batch)]:
        views = [item.view(inputs.loaded.preprocess, kind).mask for kind in ("first", "second")]
        masks = torch.stack([view for view in views if view is not None]).to(batch.x.device)
        part = features.sum(masks) / features.count().to(masks)
        found.append(part >= part.amax(1, keepdim=True).clamp(max=COVERED))
    return torch.stack(found)
