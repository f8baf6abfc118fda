"""SEA-NN: one sharp attribution map from many that disagree.

The core (DSF, ensemble, maximize, …) needs torch alone; what needs Captum is imported when asked for.
"""

from typing import TYPE_CHECKING, Any

from sea_nn.aggregate import aggregate
from sea_nn.attribute import Ensemble, ensemble, ensemble_class
from sea_nn.config import SEAConfig
from sea_nn.dsf import DSF, CollapsedDSF
from sea_nn.explanation import Check, Explanation
from sea_nn.greedy import Selection, maximize

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name in ("SEA", "quantus_explain"):
        from sea_nn import sea

        return getattr(sea, name)
    raise AttributeError(f"module 'sea_nn' has no attribute {name!r}")
