"""What a comparison measures of its maps, by kind: a value of each metric by map and input.

``robustness`` is the share of the most relevant positions that stay under noise [M15];
``dependence`` how often a pasted object, which means nothing to a classifier of scenes, gets less
of the map than the scene had there without it [M16]; ``copies`` how much the second of two copies
adds after the first; ``lipschitz`` how steep the paper's function is [M11].
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.asking import fill_all, make_score, to_log_odds
from sea_bench.experiments.comparison import Map
from sea_bench.experiments.experiment import Rows, score_rows
from sea_bench.experiments.inputs import Batch
from sea_bench.experiments.maps import WISHES, Explainer, count_evaluations, merge, read_clock
from sea_bench.experiments.metrics import GAIN, QUANTITIES, TOP, compute_gain, find_metric
from sea_bench.experiments.predictions import GRID, measure_predictions
from sea_nn.features import Features, scale
from sea_nn.metrics import Scores, random_map, score_maps
from sea_nn.metrics.positions import overlap, top_sets
from sea_nn.metrics.scoring import RANDOM
from sea_nn.model.noise import uniform
from sea_nn.model.precision import full_precision
from sea_nn.paper.dsf import estimate_lipschitz, lipschitz

REPEATS = 3
AMPLITUDE = 0.02
"""Of the noise, as a share of the range of pixels."""
COVERED = 0.25  # a cell belongs to a copy that covers this part of it
LEAST_RISE = 1.0
MODEL = "the model"


def measure(explainer: Explainer, batch: Batch) -> Scores:
    """Measure what the experiment wants to know of some inputs."""
    rows = KINDS[explainer.experiment.kind](explainer, batch)
    if isinstance(rows, Scores):
        return rows
    return score_rows(rows, [find_metric(name) for name in explainer.experiment.metrics])


def measure_scores(explainer: Explainer, batch: Batch) -> Scores:
    """Score every map of the experiment on some inputs, without TF32: as a CPU does."""
    with full_precision():
        return _score(explainer, batch)


def _score(explainer: Explainer, batch: Batch) -> Scores:
    experiment, inputs = explainer.experiment, explainer.inputs
    metrics = [find_metric(name) for name in experiment.metrics if name not in QUANTITIES]
    maps, seconds = explainer.explain_timed(batch.x, batch.target)
    graded = any(metric.name.startswith("jaccard") for metric in metrics)
    masks = batch.masks if batch.masks is None or graded else batch.masks >= 0.5
    given = (inputs.loaded.model, batch.x, batch.target, maps, metrics)
    draws: dict[str, Any] = {"seed": explainer.seed, "first": batch.number}
    scores = score_maps(*given, masks=masks, bounds=inputs.bounds, allow_zero=True, **draws)
    price = {one.label: count_evaluations(one, batch.x.shape[1:]) for one in experiment.maps}
    known: dict[str, Mapping[str, float]] = {"evaluations": price, "seconds": seconds}
    values = dict(scores.values)
    for name in experiment.metrics:
        if name in known:
            row = torch.tensor([float(known[name].get(label, 0)) for label in scores.methods])
            values[name] = row.double().expand(len(batch), -1)
        elif name == GAIN and (gain := compute_gain(values)) is not None:
            values[GAIN] = gain
    order = {name: find_metric(name) for name in experiment.metrics}
    return replace(scores, metrics=order, values=values)


def measure_time(explainer: Explainer, batch: Batch) -> Rows:
    """Time every map, for one input alone and in the block."""
    rows = {}
    alone = [slice(i, i + 1) for i in range(len(batch))]
    for one in [*explainer.experiment.maps, Map(RANDOM, "member", ())]:
        # The first call pays for what later ones find ready (threads, kernels).
        _time(one, explainer, batch, alone[0])
        tries = [[_time(one, explainer, batch, row) for _ in range(REPEATS)] for row in alone]
        whole = _time(one, explainer, batch, slice(None)) / len(batch)
        rows[one.label] = {
            "seconds_single": torch.tensor(tries).amin(1),
            "seconds_batched": torch.full((len(batch),), whole),
        }
    return rows


def _time(one: Map, explainer: Explainer, batch: Batch, rows: slice) -> float:
    x, target = batch.x[rows], batch.target[rows]
    members = partial(explainer.compute_members, x, target, one.members)
    found = members() if one.how == "sea_step" else None
    started = read_clock(x)
    if one.how in WISHES:
        explainer.spend(one.budget, x, target)
    elif not one.members:
        random_map((len(x), *x.shape[2:]), explainer.seed, batch.number, x.device)
    elif one.how == "member":
        members().to_heatmaps()
    else:
        merge(one, found or members())
    return read_clock(x) - started


def measure_lipschitz(explainer: Explainer, batch: Batch) -> Rows:
    """Learn the function of each input and find how steep it is, exactly and by sampling."""
    experiment, x, rows = explainer.experiment, batch.x, {}
    found = explainer.compute_members(x, batch.target)
    for one in experiment.maps:
        noise = None
        if one.how == "sea_random":
            seeds, shape = range(explainer.seed + 1, explainer.seed + 1 + len(one.members)), x.shape
            draws = [random_map((len(x), *shape[2:]), seed, batch.number) for seed in seeds]
            noise = torch.stack(draws, 1).to(x.device)
        scorer = merge(one, found, heatmaps=noise).scorer
        assert scorer is not None  # it was asked for
        with torch.no_grad():
            some = next(scorer.parameters())
            ends = [some.new_full((len(batch), scorer.n), v).double() for v in (0, 1)]
            low, high = map(scorer, ends)
        exact = lipschitz(scorer).detach()
        sampled = estimate_lipschitz(scorer, experiment.pairs, explainer.seed).detach()
        rows[one.label] = {
            "lipschitz": exact,
            "lipschitz_sampled": sampled,
            "lipschitz_relative": exact / (high - low),
            "sampled_relative": sampled / (high - low),
        }
    return rows


def measure_robustness(explainer: Explainer, batch: Batch) -> Rows:
    """Compare the maps of the inputs with those of the inputs plus noise."""
    x, seed = batch.x, explainer.seed
    low, high = (torch.as_tensor(bound).to(x) for bound in explainer.inputs.bounds)
    noise = uniform("input_noise", x.shape, seed, batch.number, x.device).to(x)
    noisy = x + AMPLITUDE * (high - low).reshape(-1, 1, 1) * (2 * noise - 1)
    before, after = _explain(explainer, batch, x), _explain(explainer, batch, noisy, 1)
    return {
        label: {"robustness": compare_tops(maps, after[label], TOP, seed, batch.number)}
        for label, maps in before.items()
    }


def compare_tops(before: Tensor, after: Tensor, k: int, seed: int = 0, first: int = 0) -> Tensor:
    """Return the IoU of the k most relevant positions of two maps [N, H, W] each: [N]."""
    one, two = (top_sets(maps.flatten(1)[:, None], k, seed, first) for maps in (before, after))
    return overlap(one, two)[:, 0]


def measure_dependence(explainer: Explainer, batch: Batch) -> Rows:
    """Compare the maps' mass on a pasted object with that of the same place without it."""
    assert batch.plain is not None  # its data set has both
    assert batch.masks is not None
    region = batch.masks >= 0.5
    pasted = _explain(explainer, batch, batch.x)
    plain = _explain(explainer, batch, batch.plain, 1)
    return {
        label: {"input_dependence": compare_mass(scale(maps), scale(plain[label]), region)}
        for label, maps in pasted.items()
    }


def compare_mass(pasted: Tensor, plain: Tensor, region: Tensor) -> Tensor:
    """Return 1 where maps [N, H, W] have less mass in the region than those without the object.

    The result is [N], nan where the region, bool [N, H, W], is empty.
    """
    less = (pasted * region).flatten(1).sum(1) < (plain * region).flatten(1).sum(1)
    return torch.where(region.flatten(1).any(1), less.double(), torch.nan)


def _explain(explainer: Explainer, batch: Batch, x: Tensor, draw: int = 0) -> dict[str, Tensor]:
    """Return every map of the inputs x by label, and a random one, [N, H, W]."""
    with full_precision():
        maps = explainer.explain(x, batch.target)
    noise = random_map((len(x), *x.shape[2:]), explainer.seed + draw, batch.number, x.device)
    return {**{label: one.to(x.device) for label, one in maps.items()}, RANDOM: noise}


def measure_copies(explainer: Explainer, batch: Batch) -> Rows:
    """Ask the model, every learned function and every map about the two copies.

    For sets A and B, the cells of the two copies, a function's answer is

        (v(A and B) - v(better one)) / (v(better one) - v(none))

    in log-odds; a map, which adds up, can only say how much it gives to the copy with less of it
    for each unit that the other has. Where the better copy alone raises the log-odds by less than
    1, there is nothing to repeat, and the input does not count.
    """
    x, target = batch.x, batch.target
    features = Features.of(x).on_grid(GRID)
    copies = _find_copies(explainer, batch, features)  # [N, 2, n]
    sets = torch.cat([copies, copies.any(1, keepdim=True), torch.zeros_like(copies[:, :1])], 1)
    fills = fill_all(x, features, "blur")
    score = make_score(explainer.inputs.loaded.model, x, target, features, fills)
    truth = _compare_copies(to_log_odds(score(sets)))
    rows = {MODEL: truth}
    for one in (own for own in explainer.experiment.maps if own.how == "budget"):
        found = explainer.spend(one.budget, x, target).predict(features.expand(sets))
        rows[f"f of {one.label}"] = _compare_copies(to_log_odds(found))
    maps = explainer.explain(x, target)
    maps[RANDOM] = random_map((len(x), *x.shape[2:]), explainer.seed, batch.number, x.device)
    for label, map_ in maps.items():
        mass = (features.sum(map_.to(x.device).double())[:, None] * copies).sum(2)
        rows[label] = mass.amin(1) / mass.amax(1).clamp(min=1e-300)
    return {
        label: {
            "second_over_first": share.clamp(-1, 2).where(~truth.isnan(), torch.nan),
            "off_by": (share.clamp(-1, 2) - truth.clamp(-1, 2)).abs(),
        }
        for label, share in rows.items()
    }


def _compare_copies(answers: Tensor) -> Tensor:
    """What the second adds over what the first does: log-odds of A, B, both and none, [N]."""
    first, both, none = answers[:, :2].amax(1), answers[:, 2], answers[:, 3]
    rise = first - none
    return torch.where(rise >= LEAST_RISE, (both - first) / rise.clamp(min=1e-9), torch.nan)


def _find_copies(explainer: Explainer, batch: Batch, features: Features) -> Tensor:
    """The cells of the two copies, bool [N, 2, n]; at least one each."""
    inputs, found = explainer.inputs, []
    for item in inputs.items[batch.number : batch.number + len(batch)]:
        views = [item.view(inputs.loaded.preprocess, kind).mask for kind in ("first", "second")]
        masks = torch.stack([view for view in views if view is not None]).to(batch.x.device)
        part = features.sum(masks) / features.count().to(masks)
        found.append(part >= part.amax(1, keepdim=True).clamp(max=COVERED))
    return torch.stack(found)


KINDS: dict[str, Callable[[Explainer, Batch], Scores | Rows]] = {
    "predictions": measure_predictions,
    "copies": measure_copies,
    "robustness": measure_robustness,
    "dependence": measure_dependence,
    "scores": measure_scores,
    "time": measure_time,
    "lipschitz": measure_lipschitz,
}
