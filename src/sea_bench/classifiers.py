"""Classifiers for the data sets of the experiments: trained once on a machine, loaded by name.

Networks are those of ``sea_nn.vision.models.load_model``, with a new last layer, and ``vgg``, a
small plain one trained from scratch. Each is one differentiable module from the preprocessed
picture to logits.

>>> load_classifier("fashion").labels[9]
'Ankle boot'
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor, nn

from sea_bench import data
from sea_bench.data import Item
from sea_bench.training import (
    SmallVGG,
    check_items,
    extract_features,
    find_head,
    fit_head,
    fit_network,
    set_head,
    stack_items,
)
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.extras import import_extra
from sea_nn.vision.folders import find_cache
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel, load_model
from sea_nn.vision.shipped import CLASSES


@dataclass(frozen=True)
class ModelCard:
    """What is known of a trained classifier; stored in its file.

    ``name`` is problem/network; ``trained`` says which weights: "head" (the last layer), "all", or
    "none" (rows were selected); ``pretrained`` is a checksum of the network's own last layer, empty
    for ``vgg``.
    """

    name: str
    classes: tuple[str, ...]
    preprocess: Preprocess
    trained: str
    accuracy: float
    n_test: int
    pretrained: str = ""


@dataclass(frozen=True)
class Problem:
    """What is to be told apart, and how a classifier for it is trained.

    Attributes:
        data: the data set.
        network: the network.
        whole: squash the whole picture into the network's input, rather than cut out the centre.
        views: changed copies of each training picture for a new last layer (see ``augment``).
        per_scene: objects pasted on each scene of the training, which is shown without too.
    """

    data: str
    network: str
    whole: bool = True
    views: int = 1
    per_scene: int = 0


SEED, EPOCHS = 0, 12  # of training
AGAIN = "Delete it, and it is trained again."
_LITE = "efficientnet-lite0"
PROBLEMS = {
    "btd": Problem("btd", _LITE, views=2),
    "cub20": Problem("cub20", _LITE, whole=False),
    "lgg": Problem("lgg", "vgg"),
    "scenes": Problem("objects_on_scenes", _LITE, views=0, per_scene=3),
    "tiny_imagenet": Problem("tiny_imagenet", _LITE),
}
VIT_WEIGHTS = "fashion_vit.safetensors"
VIT_SHAPE = {
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


def load_classifier(name: str, device: str | torch.device = "cpu") -> LoadedModel:
    """Load a classifier in evaluation mode; one of ``PROBLEMS`` is trained where there is none.

    Other names are "fashion", "fashion/vit" and those that ``load_model`` takes (``resnet50``,
    ``torchvision:resnet18``). Trained ones lie in ``$SEA_NN_CACHE``.
    """
    if name == "fashion":
        return replace(load_model("fashion-cnn", device), name=name)
    if name == "fashion/vit":
        return load_vit(device)
    if name not in PROBLEMS:
        return load_model(name, device)
    network, path = PROBLEMS[name].network, _locate(name)
    if not path.is_file():
        train_classifier(name, device)
    card, tensors = read_file(path)
    model, _, checksum = _build(network, len(card.classes))
    if checksum != card.pretrained:
        raise InputError(f"{path} was trained on other weights of {network}. {AGAIN}")
    (model if card.trained == "all" else find_head(model)).load_state_dict(tensors)
    return LoadedModel(model.to(device).eval(), card.preprocess, card.classes, name)


def load_vit(device: str | torch.device = "cpu") -> LoadedModel:
    """A small vision transformer for Fashion-MNIST: images [N, 1, 28, 28] in [0, 1] to logits.

    No pretrained one can be had inside a package, so this was trained once, in ten minutes on a
    GPU: 4 x 4 patches, 49 tokens and a class token, six layers of width 128, .923 of the test
    images right.
    """
    transformers = import_extra("transformers", "this model")
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
        model = transformers.ViTForImageClassification(transformers.ViTConfig(**VIT_SHAPE))
    model.register_forward_hook(lambda module, inputs, output: output.logits)
    with as_file(files("sea_bench") / "assets" / VIT_WEIGHTS) as path:
        model.load_state_dict({name: part.float() for name, part in load_file(path).items()})
    return LoadedModel(
        name="fashion/vit",
        model=model.to(device).eval(),
        preprocess=Preprocess(resize=28, crop=28, mean=(0.0,), std=(1.0,), channels=1),
        labels=CLASSES,
    )


def read_card(name: str) -> ModelCard | None:
    """Return what is known of a classifier that was trained here; None for all others."""
    return read_file(_locate(name))[0] if name in PROBLEMS and _locate(name).is_file() else None


def train_classifier(name: str, device: str | torch.device = "cpu") -> ModelCard:
    """Train a classifier, measure it on the test split, and store it.

    On a pretrained network the last layer is replaced and fitted to the features below it; its
    penalty is chosen by cross-validation within the training pictures. ``vgg`` is trained as a
    whole. For ``tiny_imagenet`` nothing is trained: the network keeps those of its 1000 outputs
    that are Tiny ImageNet's classes. The split is always that of ``data.load``. The global random
    state is left as it was.
    """
    problem, device = PROBLEMS[name], torch.device(device)
    test = data.load(problem.data)
    n_classes, trained = len(test.classes), "all" if problem.network == "vgg" else "head"
    trained = "none" if name == "tiny_imagenet" else trained
    model, preprocess, checksum = _build(problem.network, None if trained == "none" else n_classes)
    if problem.whole:
        preprocess = replace(preprocess, resize=preprocess.shape[1:])
    model = model.to(device)
    if trained == "none":
        _select_rows(model, test.items, n_classes)
    else:
        options = {"per_scene": problem.per_scene} if problem.per_scene else {}
        train = list(data.load(problem.data, None, "train", **options))
        # Once for each scene, however many objects were pasted on it.
        train += {item.group: item.plain for item in train if item.plain}.values()
        with _seeded():
            if trained == "all":
                fit_network(model, *stack_items(train, preprocess, device), EPOCHS, 3e-3, SEED)
            else:
                found = extract_features(model, train, preprocess, problem.views, device, SEED)
                head = fit_head(*found, n_classes, SEED)
                find_head(model).load_state_dict({"weight": head.weight, "bias": head.bias})
    right = check_items(model.eval(), test.items, preprocess, device)
    accuracy, about = float(right.float().mean()), f"{name}/{problem.network}"
    card = ModelCard(about, test.classes, preprocess, trained, accuracy, len(test), checksum)
    kept = model if trained == "all" else find_head(model)
    write_file(_locate(name), card, kept.state_dict())
    return card


def _locate(name: str) -> Path:
    """Where the classifier of a problem is stored."""
    network = "".join(k if k.isalnum() else "-" for k in PROBLEMS[name].network)
    return find_cache() / "classifiers" / f"{name}-{network}.safetensors"


def _build(network: str, n_classes: int | None) -> tuple[nn.Module, Preprocess, str]:
    """Return a network with a last layer for so many classes, its own preprocessing, a checksum.

    With None for the classes, a pretrained network keeps its last layer. The checksum is that of
    its own last layer.
    """
    with _seeded():
        if network == "vgg" and n_classes is not None:
            grey = (0.25,) * 3
            return SmallVGG(n_classes), Preprocess((112, 112), 112, mean=grey, std=grey), ""
        loaded = load_model(network)
        head = find_head(loaded.model)
        own = head.weight.detach().contiguous().numpy().tobytes()
        if n_classes is not None:
            set_head(loaded.model, nn.Linear(head.in_features, n_classes))
    return loaded.model, loaded.preprocess, hashlib.sha256(own).hexdigest()[:16]


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed the global random state for layers that know no other, and restore it afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(SEED)
        yield


def _select_rows(model: nn.Module, items: Sequence[Item], n_classes: int) -> None:
    """Keep of a network's 1000 outputs those of the items' classes, in their order."""
    index = {item.label: item.imagenet for item in items}
    rows = [index[label] for label in range(n_classes)]
    head = find_head(model)
    selected = nn.Linear(head.in_features, n_classes, device=head.weight.device)
    selected.load_state_dict({"weight": head.weight[rows], "bias": head.bias[rows]})
    set_head(model, selected)


def write_file(path: Path, card: ModelCard, tensors: Mapping[str, Tensor]) -> None:
    """Store a classifier's card and weights."""
    stored = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    with write_atomically(path) as file:  # a broken run leaves no broken classifier behind
        file.write(serialize(stored, {"card": json.dumps(asdict(card))}))


def read_file(path: Path) -> tuple[ModelCard, dict[str, Tensor]]:
    """Return a stored classifier's card and weights."""
    try:
        with safe_open(path, "pt") as file:
            fields: dict[str, Any] = json.loads(file.metadata()["card"])
        recipe: dict[str, Any] = {  # JSON has lists only
            key: tuple(value) if isinstance(value, list) else value
            for key, value in fields["preprocess"].items()
        }
        known = {key: fields[key] for key in ModelCard.__dataclass_fields__}
        known |= {"preprocess": Preprocess(**recipe), "classes": tuple(fields["classes"])}
        return ModelCard(**known), load_file(path)
    except (SafetensorError, TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} is not a classifier of this version ({error}). {AGAIN}"
        ) from error
