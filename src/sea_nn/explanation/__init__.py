"""What SEA found: an ``Explanation`` with its maps, order, checks and ``Provenance``.

It can be sliced, summed up in text, saved to one file and loaded again; ``assemble`` makes it from
what the pipeline found, ``atomic`` is how files are written everywhere, without PyTorch too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sea_nn.explanation.explanation import Explanation
    from sea_nn.explanation.fields import Provenance

__all__ = ["Explanation", "Provenance"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sea_nn.explanation' has no attribute {name!r}")
    home = "explanation" if name == "Explanation" else "fields"
    return getattr(import_module(f"sea_nn.explanation.{home}"), name)
