"""A trained classifier as a file: its weights, and what is known of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.vision.images import Preprocess


@dataclass(frozen=True)
class ModelCard:
    """What is known of a trained classifier; stored in its file.

    ``name`` is problem/network, or problem/network@part; ``trained`` says which weights: "head"
    (the last layer), "all", or "none" (rows were selected); ``pretrained`` is a checksum of the
    network's own last layer, empty for ``vgg``; ``details`` has more figures, such as recalls.
    """

    name: str
    classes: tuple[str, ...]
    preprocess: Preprocess
    trained: str
    accuracy: float
    n_train: int
    n_test: int
    seed: int
    seconds: float
    pretrained: str = ""
    details: Mapping[str, float] = field(default_factory=dict)


def write_file(path: Path, card: ModelCard, tensors: Mapping[str, Tensor]) -> None:
    """Store a classifier's card and weights."""
    stored = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    with write_atomically(path) as file:  # a broken run leaves no broken classifier behind
        file.write(serialize(stored, {"card": json.dumps(asdict(card))}))


def read_file(path: Path) -> tuple[ModelCard, dict[str, Tensor]]:
    """Return a stored classifier's card and weights."""
    try:
        with safe_open(path, "pt") as file:
            fields = json.loads(file.metadata()["card"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        recipe: dict[str, Any] = fields["preprocess"]
        for key, value in recipe.items():  # JSON has lists only
            recipe[key] = tuple(value) if isinstance(value, list) else value
        fields["preprocess"] = Preprocess(**recipe)
        return ModelCard(**{**fields, "classes": tuple(fields["classes"])}), tensors
    except (SafetensorError, TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} is not a classifier of this version ({error}). Delete it and train it again."
        ) from error
