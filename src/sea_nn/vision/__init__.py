"""Pictures and picture classifiers: files in, models by name, what is shipped, where data lies.

``load_image`` and ``Preprocess`` turn a file into a model's input; ``load_model`` finds a
classifier with its preprocessing and class names. Names are imported when they are first used:
what models there are is told without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sea_nn.vision.folders import find_cache, find_data
    from sea_nn.vision.images import Preprocess, load_image
    from sea_nn.vision.models import LoadedModel, load_model

__all__ = [
    "LoadedModel",
    "Preprocess",
    "find_cache",
    "find_data",
    "load_image",
    "load_model",
]

_MODULES = {"find_cache": "folders", "find_data": "folders"}
_MODULES |= {"Preprocess": "images", "load_image": "images"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sea_nn.vision' has no attribute {name!r}")
    return getattr(import_module(f"sea_nn.vision.{_MODULES.get(name, 'models')}"), name)
