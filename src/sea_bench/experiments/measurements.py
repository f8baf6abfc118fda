"""What a comparison measures: scores of maps, their time, how steep the paper's function is."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sea_bench.experiments.changes import (
    CHANGED,
    describe_changes,
    measure_dependence,
    measure_robustness,
)
from sea_bench.experiments.comparison import Comparison, Map
from sea_bench.experiments.copies import COPIED, describe_copies, measure_copies
from sea_bench.experiments.experiment import quantity, score_rows
from sea_bench.experiments.explainer import WISHES, Explainer
from sea_bench.experiments.gain import GAIN, MEASURES, compute_gain
from sea_bench.experiments.inputs import Batch
from sea_bench.experiments.maps import draw_heatmaps
from sea_bench.experiments.predictions import PREDICTED, describe_prediction, measure_predictions
from sea_bench.experiments.region_searches import COSTS
from sea_nn.errors import InputError
from sea_nn.members.registry import get
from sea_nn.members.run import to_heatmaps
from sea_nn.metrics import Metric, Scores, get_metric, random_map, score_maps
from sea_nn.metrics.map_batch import MapBatch, MetricValues
from sea_nn.metrics.order import count_top, top_sets
from sea_nn.metrics.scoring import RANDOM
from sea_nn.model.borrowing import full_precision
from sea_nn.paper.agreement import sharpen
from sea_nn.paper.dsf import estimate_lipschitz, lipschitz

REPEATS = 3


def spacing(k: int) -> Metric:
    """Mean distance of the k most relevant positions from each other, in pixels."""

    def compute(batch: MapBatch) -> MetricValues:
        chosen = top_sets(batch.maps.flatten(2), k, batch.seed, batch.first)
        count, columns = count_top(k, batch.n), batch.maps.shape[-1]
        place = chosen.nonzero()[:, -1].view(*chosen.shape[:2], count)
        points = torch.stack([place // columns, place % columns], -1).to(torch.float32)
        apart = torch.cdist(points, points).sum((-1, -2))
        return MetricValues(apart / max(count * (count - 1), 1))

    return Metric(
        f"spacing@{k}",
        "higher",
        (0.0, math.inf),
        f"How far apart the {k} most relevant pixels lie, in pixels.",
        frozenset({"image"}),
        compute,
    )


def mass_equal_sharpness(like: str = "SEA") -> Metric:
    """Share of a map's mass on the object, all maps being as sharp as ``like``'s.

    Each map is only asked for its order: its positions get the values of ``like``'s map, the first
    the largest, and so on. What is left of a difference in mass is then in the order, not in how
    steeply a map falls.
    """
    mass = get_metric("relevance_mass")

    def compute(batch: MapBatch) -> MetricValues:
        flat = batch.maps.flatten(2)
        painted = sharpen(flat, flat[:, [batch.methods.index(like)]]).view(batch.maps.shape)
        return mass.compute(replace(batch, maps=painted))

    measures = f"The same share after each map's order was painted with the values of {like}'s map."
    return replace(mass, name="mass_equal_sharpness", measures=measures, compute=compute)


def smallest(wish: str, perturbation: str) -> Metric:
    """The smallest share of positions, the map's first, that does what is wished for.

    Args:
        wish: "half" for p(class | only these are left) of at least a half, "most" for at least 0.9
            of the whole input's, "break" for another class predicted once they are hidden.
        perturbation: how positions are hidden.
    """

    def compute(batch: MapBatch) -> MetricValues:
        last = SMALL_STEPS
        answers = batch.trace_pixels(perturbation, last, insert=wish != "break")
        if wish == "break":
            done = ~answers.predicted
        else:
            done = answers.score >= (0.5 if wish == "half" else 0.9 * answers.score[..., -1:])
        step = torch.arange(last + 1, device=done.device)
        return MetricValues(torch.where(done, step, last).amin(-1) / last)

    return Metric(
        f"smallest_{wish}:{perturbation}",
        "lower",
        (0.0, 1.0),
        f"The smallest share of positions {_WISHES[wish]}, in steps of 1/{SMALL_STEPS}.",
        frozenset({"model"}),
        compute,
    )


SMALL_STEPS = 64
_WISHES = {
    "half": "that keep the class at p >= .5 alone",
    "most": "that keep at least .9 of the class's p alone",
    "break": "without which another class is predicted",
}


def find_metric(name: str) -> Metric:
    """Return a metric by name: those of ``sea_nn.metrics``, the bench's own, and what it measures.

    >>> find_metric("spacing@5").direction, find_metric("seconds_single").direction
    ('higher', 'lower')
    """
    head, at, k = name.partition("@")
    if head == "spacing" and at:
        return spacing(int(k))
    head, _, rest = name.partition(":")
    if head == "mass_equal_sharpness":
        return replace(mass_equal_sharpness(rest) if rest else mass_equal_sharpness(), name=name)
    if head.startswith("smallest_"):
        return smallest(head.removeprefix("smallest_"), rest)
    if name in CHANGED:
        return describe_changes(name)
    if name in COPIED:
        return describe_copies(name)
    if name.partition("@")[0] in PREDICTED:
        return describe_prediction(name)
    if name == GAIN:
        return quantity(name, "higher", MEASURES)
    if name in _QUANTITIES:
        return quantity(name, "lower", _QUANTITIES[name], (0.0, math.inf))
    return get_metric(name)


_QUANTITIES = {
    "evaluations": "Model evaluations an input, at most, members and questions together.",
    "seconds": "Seconds an input in a block with others, members included.",
    "seconds_single": "Seconds for one input, computed alone; the best of three tries.",
    "seconds_batched": "Seconds for one input, computed in a block with others.",
    "lipschitz": "The exact Lipschitz constant of the learned function on [0, 1]^n.",
    "lipschitz_sampled": "The largest slope found between random pairs of points.",
    "lipschitz_relative": "The exact constant over the function's range, f(1) - f(0).",
    "sampled_relative": "The largest slope found over the function's range, f(1) - f(0).",
}


def measure_scores(explainer: Explainer, batch: Batch) -> Scores:
    """Score every map of the experiment on some inputs, without TF32: as a CPU does."""
    with full_precision(batch.x.device):
        return _score(explainer, batch)


def _score(explainer: Explainer, batch: Batch) -> Scores:
    experiment, inputs = explainer.experiment, explainer.inputs

    metrics = [find_metric(name) for name in experiment.metrics if name not in (*_QUANTITIES, GAIN)]
    maps, seconds = explainer.explain_timed(batch.x, batch.target)
    graded = any(metric.name.startswith("jaccard") for metric in metrics)
    masks = batch.masks if batch.masks is None or graded else batch.masks >= 0.5
    scores = score_maps(
        inputs.loaded.model,
        batch.x,
        batch.target,
        maps,
        metrics,
        masks=masks,
        bounds=inputs.bounds,
        seed=explainer.seed,
        first=batch.number,
        allow_zero=True,
    )
    if len(metrics) == len(experiment.metrics):
        return scores
    price = {m.label: count_evaluations(experiment, m, batch.x.shape[1:]) for m in experiment.maps}
    known: dict[str, Mapping[str, float]] = {"evaluations": price, "seconds": seconds}
    values = dict(scores.values)
    gain = compute_gain(values)
    for name in experiment.metrics:
        if name == GAIN and gain is not None:
            values[GAIN] = gain
        elif name not in values:
            row = torch.tensor([float(known[name].get(label, 0)) for label in scores.methods])
            values[name] = row.double().expand(len(batch), -1)
    order = {name: find_metric(name) for name in experiment.metrics}
    return replace(scores, metrics=order, values=values)


def count_evaluations(experiment: Comparison, one: Map, shape: tuple[int, ...]) -> int:
    """Return the model evaluations that a map of one input of this shape costs."""
    members = sum(
        COSTS[name] if name in COSTS else get(name).cost(experiment.options.get(name), shape)
        for name in one.members
    )
    return members + one.budget


def measure_time(explainer: Explainer, batch: Batch) -> Scores:
    """Time every map, for one input alone and in the block."""
    table: dict[str, list[list[float]]] = {name: [] for name in explainer.experiment.metrics}
    for one in [*explainer.experiment.maps, Map(RANDOM, "member", ())]:
        # The first call pays for what later ones find ready (threads, kernels).
        _time(one, explainer, batch, slice(0, 1))
        single = [
            min(_time(one, explainer, batch, slice(i, i + 1)) for _ in range(REPEATS))
            for i in range(len(batch))
        ]
        whole = _time(one, explainer, batch, slice(None)) / len(batch)
        table["seconds_single"].append(single)
        table["seconds_batched"].append([whole] * len(batch))
    return _as_scores(explainer.experiment, table)


def _time(one: Map, explainer: Explainer, batch: Batch, rows: slice) -> float:
    x, target = batch.x[rows], batch.target[rows]
    found = explainer.compute_members(x, target, one.members) if one.how == "sea_step" else None
    _wait(x)
    started = time.perf_counter()
    if one.how in WISHES:
        explainer.spend(one.budget, x, target)
    elif not one.members:
        random_map((len(x), *x.shape[2:]), explainer.seed, batch.number, x.device)
    else:
        found = found or explainer.compute_members(x, target, one.members)
        if one.how == "member":
            to_heatmaps(found)
        else:
            explainer.merge(one, found)
    _wait(x)
    return time.perf_counter() - started


def _wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def measure_lipschitz(explainer: Explainer, batch: Batch) -> Scores:
    """Learn the function of each input and find how steep it is, exactly and by sampling [M11]."""
    experiment, x, target = explainer.experiment, batch.x, batch.target
    found = explainer.compute_members(x, target)
    table: dict[str, list[list[float]]] = {name: [] for name in experiment.metrics}
    for one in experiment.maps:
        noise = None
        if one.how == "sea_random":
            shape, m = tuple(x.shape[2:]), len(one.members)
            noise = draw_heatmaps(len(batch), shape, m, explainer.seed, batch.number).to(x.device)
        scorer = explainer.merge(one, found, heatmaps=noise, keep_scorer=True).scorer
        if scorer is None:
            raise InputError(f"{one.label} learns no function, so it has no Lipschitz constant")
        with torch.no_grad():
            device = next(scorer.parameters()).device
            ends = [torch.full((len(batch), scorer.n), v, device=device) for v in (0.0, 1.0)]
            low, high = (scorer(end.double()) for end in ends)
        exact = lipschitz(scorer)
        sampled = estimate_lipschitz(scorer, experiment.pairs, explainer.seed)
        constants = {
            "lipschitz": exact,
            "lipschitz_sampled": sampled,
            "lipschitz_relative": exact / (high - low),
            "sampled_relative": sampled / (high - low),
        }
        for name in experiment.metrics:
            table[name].append(constants[name].detach().double().tolist())
    return _as_scores(experiment, table, random=False)


def _as_scores(
    experiment: Comparison, table: Mapping[str, list[list[float]]], random: bool = True
) -> Scores:
    methods = tuple(one.label for one in experiment.maps) + ((RANDOM,) if random else ())
    rows = {
        method: {name: torch.tensor(found[k]) for name, found in table.items()}
        for k, method in enumerate(methods)
    }
    return score_rows(rows, [find_metric(name) for name in table])


KINDS: dict[str, Callable[[Explainer, Batch], Scores]] = {
    "predictions": measure_predictions,
    "copies": measure_copies,
    "robustness": measure_robustness,
    "dependence": measure_dependence,
    "scores": measure_scores,
    "time": measure_time,
    "lipschitz": measure_lipschitz,
}
