"""The paper: heatmaps in, one learned function and its map out.

``DSF`` is a function of sets of features; ``maximize`` takes the best features greedily; ``fit``
learns f from heatmaps and sets; ``lipschitz`` says how fast it can change. ``ensemble`` learns such
a function from the heatmaps of each input and attributes by its marginal gains; ``aggregate`` has
the means and ranks it is compared with. ``reduce_channels`` and ``scale`` make heatmaps of raw
attributions; ``agreement``, ``disagreement`` and ``spearman`` compare maps.
"""

from sea_nn.features import scale
from sea_nn.paper.agreement import agreement, disagreement, mean_agreement, rank, sharpen, spearman
from sea_nn.paper.dsf import DSF, Selection, estimate_lipschitz, lipschitz, maximize
from sea_nn.paper.ensemble import Ensemble, aggregate, ensemble, ensemble_class
from sea_nn.paper.fit import fit
from sea_nn.paper.heatmaps import reduce_channels

__all__ = [
    "DSF",
    "Ensemble",
    "Selection",
    "aggregate",
    "agreement",
    "disagreement",
    "ensemble",
    "ensemble_class",
    "estimate_lipschitz",
    "fit",
    "lipschitz",
    "maximize",
    "mean_agreement",
    "rank",
    "reduce_channels",
    "scale",
    "sharpen",
    "spearman",
]
