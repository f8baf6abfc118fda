"""SEA-NN: one sharp attribution map from many that disagree."""

from sea_nn.aggregate import aggregate
from sea_nn.attribute import Ensemble, ensemble, ensemble_class
from sea_nn.config import SEAConfig
from sea_nn.dsf import DSF, CollapsedDSF
from sea_nn.explanation import Check, Explanation
from sea_nn.greedy import Selection, maximize
from sea_nn.sea import SEA, quantus_explain

__all__ = [
    "DSF",
    "SEA",
    "Check",
    "CollapsedDSF",
    "Ensemble",
    "Explanation",
    "SEAConfig",
    "Selection",
    "aggregate",
    "ensemble",
    "ensemble_class",
    "maximize",
    "quantus_explain",
]
