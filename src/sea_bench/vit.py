"""A small vision transformer for Fashion-MNIST, of transformers' own class, with its weights.

No pretrained one can be had inside a package, so this was trained once, in ten minutes on a GPU:
4 x 4 patches, 49 tokens and a class token, six layers of width 128, .923 of the test images right.
"""

from importlib.resources import as_file, files

import torch
from safetensors.torch import load_file

from sea_nn.extras import import_extra
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel, PlainClassifier
from sea_nn.vision.shipped import CLASSES

WEIGHTS = "fashion_vit.safetensors"
SHAPE = {
    "image_size": 28,
    "patch_size": 4,
    "num_channels": 1,
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "layer_norm_eps": 1e-6,
    "num_labels": len(CLASSES),
}


def load_vit(device: str | torch.device = "cpu") -> LoadedModel:
    """The trained network: images [N, 1, 28, 28] in [0, 1] to logits."""
    transformers = import_extra("transformers", "this model")
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
        model = transformers.ViTForImageClassification(transformers.ViTConfig(**SHAPE))
    with as_file(files("sea_bench") / "assets" / WEIGHTS) as path:
        model.load_state_dict({name: part.float() for name, part in load_file(path).items()})
    return LoadedModel(
        name="fashion/vit",
        model=PlainClassifier(model).to(device).eval(),
        preprocess=Preprocess(resize=28, crop=28, mean=(0.0,), std=(1.0,), channels=1),
        labels=CLASSES,
        source="a small ViT trained on Fashion-MNIST (MIT licence): .923 of 10,000 test images",
    )
