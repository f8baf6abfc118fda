"""All maps of an experiment for some inputs: members computed once, then what is made of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sea_nn.aggregators import aggregate
from sea_nn.attribute import Ensemble, ensemble, ensemble_class
from sea_nn.experiments.experiment import Experiment, Map
from sea_nn.explainers import compute_maps
from sea_nn.heatmap import reduce_channels, scale
from sea_nn.metrics import random_map

ClassMaps = Mapping[str, Mapping[int, Tensor]]
"""By label of a class-level map, the maps [H, W] by class."""
Progress = Callable[[str, int, int], None]


def compute_heatmaps(
    experiment: Experiment,
    model: Callable[..., Any],
    x: Tensor,
    target: Tensor,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Return the heatmap of every member: absolute, channels summed, in [0, 1], [N, H, W]."""
    found = compute_maps(
        model,
        x,
        target,
        experiment.members,
        options={k: v for k, v in experiment.options.items() if k in experiment.members},
        seed=seed,
        progress=progress,
    )
    return {name: scale(reduce_channels(raw.float())) for name, raw in found.maps.items()}


def combine(
    experiment: Experiment,
    heatmaps: Mapping[str, Tensor],
    target: Tensor,
    class_maps: ClassMaps | None = None,
) -> dict[str, Tensor]:
    """Return every map of the experiment by label, [N, H, W], from its members' heatmaps."""
    return {one.label: _combine(one, heatmaps, target, class_maps or {}) for one in experiment.maps}


def _combine(
    one: Map, heatmaps: Mapping[str, Tensor], target: Tensor, class_maps: ClassMaps
) -> Tensor:
    if one.how == "member":
        return heatmaps[one.members[0]]
    if one.how in ("class_sea", "class_mean", "other_class_sea"):
        return torch.stack([class_maps[one.label][int(k)] for k in target])
    return merge(one, torch.stack([heatmaps[name] for name in one.members], 1)).attribution


def merge(one: Map, stacked: Tensor, keep_scorer: bool = False) -> Ensemble:
    """Make one map of the members' heatmaps [N, m, H, W] in the way ``one`` says."""
    with warnings.catch_warnings():
        # A member may be blind to an input; that it has no vote there is what we want.
        warnings.filterwarnings("ignore", message=".*is constant, prefers no feature")
        if one.how in ("sea", "sea_step", "sea_random"):
            return ensemble(stacked, one.config, keep_scorer=keep_scorer)
        return aggregate(stacked, one.how)


def learn_class_maps(
    experiment: Experiment, by_class: Mapping[int, Mapping[str, Tensor]]
) -> dict[str, dict[int, Tensor]]:
    """Return the class-level maps by label and class [M9].

    Args:
        experiment: its maps say which are wanted.
        by_class: for each class, the heatmaps of its training inputs by member.
    """
    classes = list(by_class)
    result: dict[str, dict[int, Tensor]] = {}
    for one in experiment.maps:
        learned = {}
        for place, number in enumerate(classes):
            if one.how == "other_class_sea":
                number = classes[(place + 1) % len(classes)]
            if one.how in ("class_sea", "other_class_sea", "class_mean"):
                stacked = torch.stack([by_class[number][name] for name in one.members], 1)
                if one.how == "class_mean":
                    whole = scale(stacked.mean((0, 1)).unsqueeze(0))[0]
                else:
                    whole = ensemble_class(stacked, one.config).attribution[0]
                learned[classes[place]] = whole
        if learned:
            result[one.label] = learned
    return result


def draw_heatmaps(count: int, shape: tuple[int, ...], m: int, seed: int, first: int) -> Tensor:
    """Return m heatmaps of noise for each input, [N, m, *shape]."""
    draws = [random_map((count, *shape), seed + 1 + k, first) for k in range(m)]
    return torch.stack(draws, 1)
