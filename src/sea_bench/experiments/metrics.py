"""The metrics of comparisons: the library's, some of the bench's own, and what is measured."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.experiment import quantity
from sea_nn.metrics import Metric, get_metric
from sea_nn.metrics.map_batch import MapBatch, MetricValues
from sea_nn.metrics.positions import count_top, top_sets
from sea_nn.paper.agreement import sharpen

GAIN = "gain"
FILLS = ("blur", "mean", "noise")
TOP = 5000
"""The most relevant positions that robustness compares: a tenth of 224 x 224, as in the paper."""
SMALL_STEPS = 64
_WISHES = {
    "half": "that keep the class at p >= .5 alone",
    "most": "that keep at least .9 of the class's p alone",
    "break": "without which another class is predicted",
}
_SHARE, _SPAN = (0.0, 1.0), (0.0, math.inf)
QUANTITIES: dict[str, tuple[Any, ...]] = {
    GAIN: ("higher", "Insertion less deletion, summed over hiding by blur, the mean and noise."),
    "evaluations": ("lower", "Model evaluations an input, members and questions together.", _SPAN),
    "seconds": ("lower", "Seconds an input in a block with others, members included.", _SPAN),
    "seconds_single": ("lower", "Seconds for one input alone; the best of three tries.", _SPAN),
    "seconds_batched": ("lower", "Seconds for one input in a block with others.", _SPAN),
    "lipschitz": ("lower", "The exact Lipschitz constant of the function on [0, 1]^n.", _SPAN),
    "lipschitz_sampled": ("lower", "The largest slope between random pairs of points.", _SPAN),
    "lipschitz_relative": ("lower", "The exact constant over f(1) - f(0), the range.", _SPAN),
    "sampled_relative": ("lower", "The largest slope found over f(1) - f(0).", _SPAN),
    "robustness": ("higher", f"IoU of the top {TOP} positions with and without noise.", _SHARE),
    "input_dependence": (
        "higher",
        "How often a pasted object that means nothing to the model gets less than the scene did.",
        _SHARE,
    ),
    "second_over_first": (
        "lower",
        "What the second copy adds, in units of what the first adds; median.",
        _SPAN,
        "median",
    ),
    "off_by": ("lower", "How far that is from what the model says; median.", _SPAN, "median"),
    "r2": ("higher", "R² of probabilities of unseen sets; median.", (-math.inf, 1.0), "median"),
    "error": ("lower", "Mean distance of the probability said from the model's.", _SHARE),
}
"""What is not computed from maps, by name, up to "@" where a number of answers follows: which
direction is better, what it measures, its bounds, and the middle that pages give."""


def find_metric(name: str) -> Metric:
    """Return a metric by name: those of ``sea_nn.metrics``, the bench's own, and what it measures.

    >>> find_metric("spacing@5").direction, find_metric("seconds_single").direction
    ('higher', 'lower')
    """
    head, _, number = name.partition("@")
    if head in QUANTITIES:
        return quantity(name, *QUANTITIES[head])
    if head == "spacing" and number:
        return spacing(int(number))
    head, _, rest = name.partition(":")
    if head == "mass_equal_sharpness":
        return replace(mass_equal_sharpness(rest or "SEA"), name=name)
    if head.startswith("smallest_"):
        return smallest(head.removeprefix("smallest_"), rest)
    return get_metric(name)


def compute_gain(values: Mapping[str, Tensor]) -> Tensor | None:
    """The gain by input and method, [N, m], from the columns it is made of; None without them."""
    if any(f"{what}:{fill}" not in values for what in ("insertion", "deletion") for fill in FILLS):
        return None
    parts = [values[f"insertion:{fill}"] - values[f"deletion:{fill}"] for fill in FILLS]
    return sum(parts[1:], parts[0])


def spacing(k: int) -> Metric:
    """Mean distance of the k most relevant positions from each other, in pixels."""

    def compute(batch: MapBatch) -> MetricValues:
        chosen = top_sets(batch.maps.flatten(2), k, batch.seed, batch.first)
        count, columns = count_top(k, batch.n), batch.maps.shape[-1]
        place = chosen.nonzero()[:, -1].view(*chosen.shape[:2], count)
        points = torch.stack([place // columns, place % columns], -1).to(torch.float32)
        apart = torch.cdist(points, points).sum((-1, -2))
        return MetricValues(apart / max(count * (count - 1), 1))

    said = f"How far apart the {k} most relevant pixels lie, in pixels."
    return Metric(f"spacing@{k}", "higher", _SPAN, said, frozenset({"image"}), compute)


def mass_equal_sharpness(like: str) -> Metric:
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
    return replace(mass, measures=measures, compute=compute)


def smallest(wish: str, perturbation: str) -> Metric:
    """The smallest share of positions, the map's first, that does what is wished for.

    Args:
        wish: "half" for p(class | only these are left) of at least a half, "most" for at least 0.9
            of the whole input's, "break" for another class predicted once they are hidden.
        perturbation: how positions are hidden.
    """

    def compute(batch: MapBatch) -> MetricValues:
        answers = batch.trace_pixels(perturbation, SMALL_STEPS, insert=wish != "break")
        if wish == "break":
            done = ~answers.predicted
        else:
            done = answers.score >= (0.5 if wish == "half" else 0.9 * answers.score[..., -1:])
        step = torch.arange(SMALL_STEPS + 1, device=done.device)
        return MetricValues(torch.where(done, step, SMALL_STEPS).amin(-1) / SMALL_STEPS)

    name, needs = f"smallest_{wish}:{perturbation}", frozenset({"model"})
    said = f"The smallest share of positions {_WISHES[wish]}, in steps of 1/{SMALL_STEPS}."
    return Metric(name, "lower", _SHARE, said, needs, compute)
