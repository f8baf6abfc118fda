"""How members' heatmaps become one map: SEA, aggregators, maps of a whole class."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from sea_bench.experiments.comparison import Comparison, Map
from sea_nn.members.run import MemberMaps
from sea_nn.metrics import random_map
from sea_nn.paper.ensemble import Ensemble, aggregate, ensemble, ensemble_class
from sea_nn.paper.heatmaps import scale, to_heatmap

CLASS_MAPS = ("class_sea", "class_mean", "other_class_sea")
ClassMaps = Mapping[str, Mapping[int, Tensor]]
"""By label of a class-level map, the maps [H, W] by class."""


def merge(
    one: Map,
    heatmaps: Tensor,
    weights: Tensor,
    keep_scorer: bool = False,
) -> Ensemble:
    """Make one map of the members' heatmaps [N, m, H, W] in the way ``one`` says.

    ``weights`` say how much each heatmap counts in SEA, [N, m].
    """
    if one.how in ("sea", "sea_step", "sea_random"):
        return ensemble(heatmaps, one.config, weights=weights, keep_scorer=keep_scorer, quiet=True)
    with warnings.catch_warnings():
        # A member that is constant on an input does not count there, as in SEA.
        warnings.filterwarnings("ignore", message=".*is constant, prefers no feature")
        return aggregate(heatmaps, one.how)


def learn_class_maps(
    experiment: Comparison, by_class: Mapping[int, MemberMaps]
) -> dict[str, dict[int, Tensor]]:
    """Return the class-level maps that the experiment has, by label and class [M9].

    ``by_class`` has, for each class, the members' maps of its training inputs.
    """
    classes = list(by_class)
    result: dict[str, dict[int, Tensor]] = {}
    for one in experiment.maps:
        learned = {}
        for place, number in enumerate(classes):
            if one.how == "other_class_sea":
                number = classes[(place + 1) % len(classes)]
            if one.how in CLASS_MAPS:
                raw = [by_class[number].maps[name] for name in one.members]
                stacked = torch.stack([to_heatmap(values) for values in raw], 1)
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
