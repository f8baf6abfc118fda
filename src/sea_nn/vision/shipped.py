"""What is shipped: two photographs, a sample of Fashion-MNIST and a CNN trained on it.

Fashion-MNIST is by Zalando Research (Xiao, Rasul and Vollgraf, 2017; MIT licence).

>>> sample, cnn = load_sample(), load_cnn()
>>> tuple(sample.images.shape), sample.names[int(sample.labels[0])]
((200, 1, 28, 28), 'T-shirt/top')
>>> cnn(sample.images[:2]).shape
torch.Size([2, 10])
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sea_nn.vision.names import ASSETS, CLASSES

__all__ = ["CLASSES", "FashionCNN", "FashionSample", "load_cnn", "load_sample"]


class FashionCNN(nn.Sequential):
    """Three convolutions and two linear layers: images [N, 1, 28, 28] in [0, 1] to logits [N, 10].

    Every activation is its own module, so that rule-based explainers (DeepLIFT, guided
    backpropagation) can hook each one; ``conv3`` is the layer for CAM methods.
    """

    def __init__(self) -> None:
        layers: dict[str, nn.Module] = {}
        for k, (n_in, n_out) in enumerate(pairwise((1, 32, 64, 64)), start=1):
            layers[f"conv{k}"] = nn.Conv2d(n_in, n_out, 3, padding=1)
            layers[f"relu{k}"], layers[f"pool{k}"] = nn.ReLU(), nn.MaxPool2d(2)
        layers["flatten"] = nn.Flatten()
        layers["linear1"], layers["relu4"] = nn.Linear(64 * 3 * 3, 128), nn.ReLU()
        layers["dropout"], layers["linear2"] = nn.Dropout(0.3), nn.Linear(128, len(CLASSES))
        super().__init__(OrderedDict(layers))


@dataclass(frozen=True)
class FashionSample:
    """Test images float32 [N, 1, 28, 28] in [0, 1], their labels [N], and the class names."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...] = CLASSES


def load_sample() -> FashionSample:
    """Return the shipped 200 test images: the first 20 of each class, class after class."""
    tensors = load_file(ASSETS / "fashion_sample.safetensors")
    return FashionSample(
        images=tensors["images"].unsqueeze(1).float() / 255, labels=tensors["labels"].long()
    )


def load_cnn(device: str | torch.device = "cpu") -> FashionCNN:
    """Return the shipped CNN in evaluation mode; ``scripts/make_assets.py`` trained it."""
    with torch.device("meta"):  # draws no random numbers: every tensor comes from the file
        cnn = FashionCNN()
    cnn.load_state_dict(load_file(ASSETS / "fashion_cnn.safetensors"), assign=True)
    return cnn.to(device).eval()
