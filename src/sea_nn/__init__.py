"""SEA-NN: one attribution map from many that disagree.

Names are imported when they are first used: the core needs torch alone, `SEA` needs Captum too, and
`sea --help` needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sea_nn.call import About, Constraints, Running
    from sea_nn.config import SEAConfig
    from sea_nn.datasets import explain_dataset, read_dataset
    from sea_nn.explanation.explanation import Explanation
    from sea_nn.members.run import Check
    from sea_nn.model.adapters import NumpyModel
    from sea_nn.paper.dsf import DSF, Selection, maximize
    from sea_nn.paper.ensemble import Ensemble, aggregate, ensemble, ensemble_class
    from sea_nn.sea import SEA

__all__ = [
    "DSF",
    "SEA",
    "About",
    "Check",
    "Constraints",
    "Ensemble",
    "Explanation",
    "NumpyModel",
    "Running",
    "SEAConfig",
    "Selection",
    "aggregate",
    "ensemble",
    "ensemble_class",
    "explain_dataset",
    "maximize",
    "read_dataset",
]

_HOMES = {
    "call": ("About", "Constraints", "Running"),
    "config": ("SEAConfig",),
    "datasets": ("explain_dataset", "read_dataset"),
    "paper.ensemble": ("Ensemble", "aggregate", "ensemble", "ensemble_class"),
    "explanation.explanation": ("Explanation",),
    "members.run": ("Check",),
    "model.adapters": ("NumpyModel",),
    "sea": ("SEA",),
    "paper.dsf": ("DSF", "Selection", "maximize"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sea_nn' has no attribute {name!r}")
    value = getattr(import_module(f"sea_nn.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
