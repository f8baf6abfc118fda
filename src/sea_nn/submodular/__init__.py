"""The mathematics: deep submodular functions, greedy maximisation, and how f is learned.

``DSF`` and its collapsed form are functions of sets of features; ``maximize`` takes the best
features greedily; ``fit`` learns f from heatmaps and sets; ``Constraints`` are axioms that it
keeps; ``lipschitz`` says how fast it can change. The room needs torch alone and knows nothing of
images.
"""

from sea_nn.submodular.constraints import Constraints
from sea_nn.submodular.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.submodular.fit import History, fit
from sea_nn.submodular.greedy import maximize
from sea_nn.submodular.greedy_search import Selection
from sea_nn.submodular.lipschitz import estimate_lipschitz, lipschitz
from sea_nn.submodular.objective import TrainingData
from sea_nn.submodular.ties import check_count, key_features, sort_keys, top_features

__all__ = [
    "DSF",
    "CollapsedDSF",
    "Constraints",
    "History",
    "Scorer",
    "Selection",
    "TrainingData",
    "check_count",
    "estimate_lipschitz",
    "fit",
    "key_features",
    "lipschitz",
    "maximize",
    "sort_keys",
    "top_features",
]
