"""Heatmaps in, one map out.

``ensemble`` learns a submodular function from the heatmaps of each input and attributes by its
marginal gains; ``aggregate`` has the means, ranks and optimal weights it is compared with.
``scale`` and ``to_heatmap`` make heatmaps of raw attributions; ``agreement``, ``disagreement`` and
``spearman`` compare maps, ``sharpen`` makes two equally sharp before they are compared.
"""

from sea_nn.ensembling.aggregators import aggregate
from sea_nn.ensembling.agreement import (
    agreement,
    disagreement,
    mean_agreement,
    multiples_of_mean,
    rank,
    sharpen,
    spearman,
)
from sea_nn.ensembling.algorithm1 import attribute
from sea_nn.ensembling.ensemble import Ensemble, ensemble, ensemble_class
from sea_nn.ensembling.heatmaps import reduce_channels, scale, to_heatmap

__all__ = [
    "Ensemble",
    "aggregate",
    "agreement",
    "attribute",
    "disagreement",
    "ensemble",
    "ensemble_class",
    "mean_agreement",
    "multiples_of_mean",
    "rank",
    "reduce_channels",
    "scale",
    "sharpen",
    "spearman",
    "to_heatmap",
]
