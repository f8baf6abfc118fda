"""The paper: heatmaps in, one learned function and its map out.

``DSF`` and its collapsed form are functions of sets of features; ``maximize`` takes the best
features greedily; ``fit`` learns f from heatmaps and sets; ``Constraints`` are axioms that it
keeps; ``lipschitz`` says how fast it can change. ``ensemble`` learns such a function from the
heatmaps of each input and attributes by its marginal gains; ``aggregate`` has the means, ranks and
optimal weights it is compared with. ``scale`` and ``to_heatmap`` make heatmaps of raw
attributions; ``agreement``, ``disagreement`` and ``spearman`` compare maps.
"""

from sea_nn.paper.aggregators import aggregate
from sea_nn.paper.agreement import (
    agreement,
    disagreement,
    mean_agreement,
    multiples_of_mean,
    rank,
    sharpen,
    spearman,
)
from sea_nn.paper.algorithm1 import attribute
from sea_nn.paper.constraints import Constraints
from sea_nn.paper.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.paper.ensemble import Ensemble, ensemble, ensemble_class
from sea_nn.paper.fit import History, fit
from sea_nn.paper.greedy import maximize
from sea_nn.paper.greedy_search import Selection
from sea_nn.paper.heatmaps import reduce_channels, scale, to_heatmap
from sea_nn.paper.lipschitz import estimate_lipschitz, lipschitz
from sea_nn.paper.objective import TrainingData
from sea_nn.paper.ties import check_count, key_features, sort_keys, top_features

__all__ = [
    "DSF",
    "CollapsedDSF",
    "Constraints",
    "Ensemble",
    "History",
    "Scorer",
    "Selection",
    "TrainingData",
    "aggregate",
    "agreement",
    "attribute",
    "check_count",
    "disagreement",
    "ensemble",
    "ensemble_class",
    "estimate_lipschitz",
    "fit",
    "key_features",
    "lipschitz",
    "maximize",
    "mean_agreement",
    "multiples_of_mean",
    "rank",
    "reduce_channels",
    "scale",
    "sharpen",
    "sort_keys",
    "spearman",
    "to_heatmap",
    "top_features",
]
