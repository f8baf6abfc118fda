"""SEA-NN: one sharp attribution map from many that disagree."""

from sea_nn.attribute import Ensemble, ensemble, ensemble_class
from sea_nn.config import SEAConfig
from sea_nn.dsf import DSF, CollapsedDSF
from sea_nn.greedy import Selection, maximize

__all__ = [
    "DSF",
    "CollapsedDSF",
    "Ensemble",
    "SEAConfig",
    "Selection",
    "ensemble",
    "ensemble_class",
    "maximize",
]
