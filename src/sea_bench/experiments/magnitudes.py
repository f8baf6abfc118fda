"""Are a map's values the model's? Running sums of maps beside what the model itself says.

Cells are taken in the map's own order, and the model is asked about the first 1, 2, ... of them. A
map that means "what this adds after the better ones" has running sums that follow these answers.
Maps that say nothing of their unit are scaled so that all of a map is what the whole input has more
than an empty one: in log-odds for one column, in probability for another.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Batch
from sea_bench.experiments.predictions import pool_heat
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features
from sea_nn.function.answers_fit import fit_answers
from sea_nn.function.answers_function import (
    AnswersFunction,
    place_units,
    prefixes,
    to_score,
)
from sea_nn.members.cheap import CONVOLUTIONAL
from sea_nn.metrics import Metric, Scores, random_map
from sea_nn.metrics.map_batch import MapBatch, MetricValues
from sea_nn.metrics.sensitivity import RANDOM
from sea_nn.questions.ask import make_ask_only
from sea_nn.questions.learn import to_answers

MONOTONE = "always monotone"
MAGNITUDES: dict[str, tuple[Literal["lower", "higher"], str]] = {
    "off_probability": (
        "lower",
        "How far the running sum of a map's cells is from what the model says of these cells "
        "alone; root mean square over the map's order.",
    ),
    "off_same_order": (
        "lower",
        "The same with the map's values, the largest first, laid along the order of the map that "
        "all are compared with, so that all have the same answers to follow.",
    ),
    "off_log_odds": ("lower", "The first in log-odds."),
    "mass_said": ("higher", "The share of the map's sum that lies on the mask, by cells."),
    "mass_asked": (
        "higher",
        "The same share of what the model itself rises by, asked along the map's order.",
    ),
}


def measure_magnitudes(explainer: Explainer, batch: Batch) -> Scores:
    """Ask the model along the order of every map, and compare its answers with running sums."""
    x, target, masks = batch.x, batch.target, batch.masks
    features = Features.of(x).to_ask_about(device=x.device)
    n, count = features.n, len(x)
    if masks is None:
        raise InputError("magnitudes are measured on images with masks")
    on_mask = features.sum(masks.double()) / features.count().to(masks.device)
    ask_only = make_ask_only(explainer.inputs.loaded.model, x, target)

    def ask(sets: Tensor) -> Tensor:
        return to_answers(ask_only(features.expand(sets)), "log-odds")

    ends = torch.tensor([False, True], device=x.device)[:, None].expand(count, 2, n)
    none, all_ = ask(ends).split(1, 1)
    low, high = (to_score(end, "log-odds") for end in (none, all_))
    # By map its order, the model's answers along it, its steps, and whether these are log-odds.
    rows: dict[str, tuple[Tensor, Tensor, Tensor, bool]] = {}
    for one in explainer.experiment.maps:
        if one.how == "budget":
            e = explainer.spend(one.budget, x, target)
            answers = ask(prefixes(e.order))
            rows[one.label] = e.order, answers, e.gains.double(), True
            if one.label == explainer.experiment.against:
                steps = _fit_monotone(explainer, batch, features, e).gains(e.order)
                rows[f"{one.label}, {MONOTONE}"] = e.order, answers, steps, True
    others = tuple(one for one in explainer.experiment.maps if one.label not in rows)
    rest = replace(explainer, experiment=replace(explainer.experiment, maps=others))
    maps = rest.explain(x, target)
    maps[RANDOM] = random_map((count, *x.shape[2:]), explainer.seed, batch.number, x.device)
    for label, map_ in maps.items():
        mass = features.sum(map_.to(x.device).double())
        order = mass.argsort(dim=1, descending=True, stable=True)
        share = mass.gather(1, order) / mass.sum(1, keepdim=True).clamp(min=1e-300)
        rows[label] = order, ask(prefixes(order)), share, False
    found: dict[str, list[Tensor]] = {name: [] for name in MAGNITUDES}
    common = to_score(rows[explainer.experiment.against][1], "log-odds")
    for order, answers, steps, exact in rows.values():
        said = steps.cumsum(1)[:, :-1]
        level = none + said * (1 if exact else all_ - none)
        chance = to_score(level, "log-odds") if exact else low + said * (high - low)
        found["off_log_odds"].append(_spread(level - answers))
        found["off_probability"].append(_spread(chance - to_score(answers, "log-odds")))
        found["off_same_order"].append(_spread(chance - common))
        curve = torch.cat([none, answers, all_], 1).cummax(1).values
        inside = on_mask.gather(1, order)
        found["mass_said"].append(_share(steps.clamp(min=0), inside))
        found["mass_asked"].append(_share(curve.diff(dim=1), inside))
    metrics = {name: describe_magnitude(name) for name in explainer.experiment.metrics}
    return Scores(tuple(rows), metrics, {k: torch.stack(found[k], 1).cpu() for k in metrics})


def describe_magnitude(name: str) -> Metric:
    """The metric of this name."""
    direction, measures = MAGNITUDES[name]
    bounds = (0.0, math.inf) if name == "off_log_odds" else (0.0, 1.0)
    return Metric(name, direction, bounds, measures, frozenset(), _refuse)


def _fit_monotone(
    explainer: Explainer, batch: Batch, features: Features, e: Explanation
) -> AnswersFunction:
    """The function of the same answers that is not free to have evidence against."""
    if e.asked is None or features.layout is None:
        raise InputError("only maps with a budget, of images, have a function to learn again")
    found = explainer.compute_members(batch.x, batch.target, CONVOLUTIONAL)
    sets, answers = e.asked.sets, e.asked.answers  # the empty set first
    return fit_answers(
        sets[:, 1:],
        answers[:, 1:],
        answers[:, 0],
        to_answers(e.score, "log-odds"),
        heat=pool_heat(found, CONVOLUTIONAL, features),
        places=place_units(features.n, features.layout),
    )


def _spread(error: Tensor) -> Tensor:
    return error.square().mean(1).sqrt()


def _share(steps: Tensor, inside: Tensor) -> Tensor:
    """The part of the steps that lies inside, [N]; nan where there are none."""
    return (steps * inside).sum(1) / steps.sum(1)


def _refuse(batch: MapBatch) -> MetricValues:
    raise InputError("magnitudes are measured by their own experiment, not scored from maps")
