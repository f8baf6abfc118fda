"""What maps do when their inputs change: noise that should not matter, objects that mean nothing.

``robustness`` is the share of the most relevant positions that stay under noise [M15];
``input_dependence`` how often a pasted object, which means nothing to a classifier of scenes, gets
less of the map than the scene had there without it [M16].
"""

import torch
from torch import Tensor

from sea_bench.experiments.experiment import quantity, score_rows
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Batch
from sea_nn.errors import InputError
from sea_nn.metrics import Metric, Scores, random_map
from sea_nn.metrics.order import overlap, top_sets
from sea_nn.metrics.scoring import RANDOM
from sea_nn.model.borrowing import full_precision
from sea_nn.model.noise import uniform
from sea_nn.paper.heatmaps import scale

AMPLITUDE = 0.02
"""Of the noise, as a share of the range of pixels."""
TOP = 5000
"""The most relevant positions that are compared: a tenth of 224 x 224, as in the paper."""
CHANGED = {
    "robustness": f"IoU of the top {TOP} positions of the map and of the map of the noisy input.",
    "input_dependence": "How often a pasted object that means nothing to the model gets less than "
    "the scene did.",
}


def describe_changes(name: str) -> Metric:
    """The metric of this name."""
    return quantity(name, "higher", CHANGED[name], (0.0, 1.0))


def measure_robustness(explainer: Explainer, batch: Batch) -> Scores:
    """Compare the maps of the inputs with those of the inputs plus noise."""
    x, seed = batch.x, explainer.seed
    low, high = (torch.as_tensor(bound).to(x) for bound in explainer.inputs.bounds)
    noise = uniform("input_noise", x.shape, seed, batch.number, x.device).to(x)
    noisy = x + AMPLITUDE * (high - low).reshape(-1, 1, 1) * (2 * noise - 1)
    before, after = _explain(explainer, batch, x), _explain(explainer, batch, noisy, 1)
    rows = {
        label: compare_tops(maps, after[label], TOP, seed, batch.number)
        for label, maps in before.items()
    }
    return _as_scores("robustness", rows)


def measure_dependence(explainer: Explainer, batch: Batch) -> Scores:
    """Compare the maps' mass on a pasted object with that of the same place without it."""
    if batch.plain is None or batch.masks is None:
        data = explainer.experiment.data
        raise InputError(f"{data} has no pictures without their object, or no masks")
    region = batch.masks >= 0.5
    pasted = _explain(explainer, batch, batch.x)
    plain = _explain(explainer, batch, batch.plain, 1)
    rows = {
        label: compare_mass(scale(maps), scale(plain[label]), region)
        for label, maps in pasted.items()
    }
    return _as_scores("input_dependence", rows)


def compare_tops(before: Tensor, after: Tensor, k: int, seed: int = 0, first: int = 0) -> Tensor:
    """Return the IoU of the k most relevant positions of two maps [N, H, W] each: [N]."""
    one, two = (top_sets(maps.flatten(1)[:, None], k, seed, first) for maps in (before, after))
    return overlap(one, two)[:, 0]


def compare_mass(pasted: Tensor, plain: Tensor, region: Tensor) -> Tensor:
    """Return 1 where maps [N, H, W] have less mass in the region than those without the object.

    The result is [N], nan where the region, bool [N, H, W], is empty.
    """
    less = (pasted * region).flatten(1).sum(1) < (plain * region).flatten(1).sum(1)
    return torch.where(region.flatten(1).any(1), less.double(), torch.nan)


def _explain(explainer: Explainer, batch: Batch, x: Tensor, draw: int = 0) -> dict[str, Tensor]:
    """Return every map of the inputs x by label, and a random one, [N, H, W]."""
    with full_precision(x.device):
        maps = explainer.explain(x, batch.target)
    shape, seed = (len(x), *x.shape[2:]), explainer.seed + draw
    noise = random_map(shape, seed, batch.number, x.device)
    return {**{label: one.to(x.device) for label, one in maps.items()}, RANDOM: noise}


def _as_scores(name: str, rows: dict[str, Tensor]) -> Scores:
    return score_rows({label: {name: row} for label, row in rows.items()}, [describe_changes(name)])
