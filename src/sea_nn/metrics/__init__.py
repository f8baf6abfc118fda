"""How good is a map? Public scores of any attribution maps, ours or others' [M13]-[M16].

``score_maps`` scores the maps of several methods on the same inputs, asking the model in full
chunks; each metric is a ``Metric``, a function from a ``MapBatch`` to ``MetricValues`` that knows
its direction and range. ``query_sets`` asks about sets of positions. Nothing below imports this
room.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> x, mine = torch.rand(4, 1, 8, 8), torch.rand(4, 8, 8)
>>> scores = score_maps(model, x, None, {"mine": mine}, metrics=("deletion:mean", "gini"))
>>> scores.metrics["deletion:mean"].direction
'lower'

``describe_metrics()`` lists them all with direction, range and what each measures.
"""

from sea_nn.metrics.catalogue import METRICS, describe_metrics, get_metric
from sea_nn.metrics.map_batch import MapBatch, Metric, MetricValues, ask_sets
from sea_nn.metrics.positions import rank_accuracy, relevance_mass
from sea_nn.metrics.scores import Estimate, Scores, bootstrap_difference, bootstrap_mean
from sea_nn.metrics.scoring import query_sets, score_maps
from sea_nn.model.noise import random_map
from sea_nn.questions.absent import PERTURBATIONS, pixel_bounds

__all__ = [
    "METRICS",
    "PERTURBATIONS",
    "Estimate",
    "MapBatch",
    "Metric",
    "MetricValues",
    "Scores",
    "ask_sets",
    "bootstrap_difference",
    "bootstrap_mean",
    "describe_metrics",
    "get_metric",
    "pixel_bounds",
    "query_sets",
    "random_map",
    "rank_accuracy",
    "relevance_mass",
    "score_maps",
]
