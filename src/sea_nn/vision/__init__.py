"""Pictures and picture classifiers: files in, models by name, what is shipped, where data lies.

``load_image`` and ``Preprocess`` turn a file into a model's input; ``load_model`` finds a
classifier with its preprocessing and class names.
"""

from sea_nn.vision.folders import find_cache, find_data
from sea_nn.vision.images import Preprocess, load_image
from sea_nn.vision.models import LoadedModel, load_model, model_names

__all__ = [
    "LoadedModel",
    "Preprocess",
    "find_cache",
    "find_data",
    "load_image",
    "load_model",
    "model_names",
]
