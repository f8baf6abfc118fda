"""Classifiers for the data sets of the experiments: train them once, load them by name.

A name is a problem, such as ``cub20``, or a problem and a network, such as ``cub20/resnet50`` or
``btd/torchvision:vgg11``. Networks are those of ``sea_nn.vision.models.load_model``, with a new
last layer, and ``vgg``, a small plain one trained from scratch. Each is one differentiable module
from the preprocessed picture to logits.

    python -m sea_bench.classifiers btd cub20        # train and store in $SEA_NN_CACHE
    load_classifier("cub20")                      # then, anywhere

>>> load_classifier("fashion").label(9)
'Ankle boot'
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
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
from sea_bench.vit import load_vit
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.vision.folders import find_cache
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel, load_model


@dataclass(frozen=True)
class ModelCard:
    """What is known of a trained classifier; stored in its file.

    ``name`` is problem/network; ``trained`` says which weights: "head" (the last layer), "all", or
    "none" (rows were selected); ``pretrained`` is a checksum of the network's own last layer, empty
    for ``vgg``; ``details`` has more figures, such as recalls.
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


@dataclass(frozen=True)
class Problem:
    """What is to be told apart, and how a classifier for it is trained by default.

    Attributes:
        data: the data set.
        network: the default network.
        whole: squash the whole picture into the network's input, rather than cut out the centre.
        views: changed copies of each training picture for a new last layer (see ``augment``).
        per_scene: objects pasted on each scene of the training, which is shown without too.
    """

    data: str
    network: str
    whole: bool = True
    views: int = 1
    per_scene: int = 0


EPOCHS = 12  # of training ``vgg``
_LITE = "efficientnet-lite0"
PROBLEMS = {
    "btd": Problem("btd", _LITE, views=2),
    "cub20": Problem("cub20", _LITE, whole=False),
    "lgg": Problem("lgg", "vgg"),
    "scenes": Problem("objects_on_scenes", _LITE, views=0, per_scene=3),
    "tiny_imagenet": Problem("tiny_imagenet", _LITE),
}


def classifier_names() -> tuple[str, ...]:
    """Return the problems; ``/NETWORK`` after one asks for another network than its default.

    >>> classifier_names()
    ('fashion', 'btd', 'cub20', 'lgg', 'scenes', 'tiny_imagenet')
    """
    return ("fashion", *PROBLEMS)


def load_classifier(name: str, device: str | torch.device = "cpu") -> LoadedModel:
    """Load a trained classifier in evaluation mode.

    The name is a problem, problem/network, or any that ``load_model`` takes (``resnet50``,
    ``torchvision:resnet18``), which is passed on. Trained ones lie in ``$SEA_NN_CACHE``.

    Raises:
        InputError: it has not been trained on this machine; the message has the command.
    """
    if name == "fashion":
        return replace(load_model("fashion-cnn", device), name=name)
    if name == "fashion/vit":
        return load_vit(device)
    if not is_trained(name):
        try:
            return load_model(name, device)
        except InputError as error:
            problems = f"{', '.join(classifier_names())}, or PROBLEM/NETWORK."
            raise InputError(f"{error} Trained classifiers: {problems}") from error
    problem, network, path = _locate(name)
    if not path.is_file():
        raise InputError(
            f"The classifier {name} has not been trained on this machine: there is no {path}. "
            f"Train it with: python -m sea_bench.classifiers {name}"
        )
    card, tensors = read_file(path)
    model, _, checksum = _build(network, len(card.classes))
    if checksum != card.pretrained:
        raise InputError(
            f"{path} was trained on another version of {network} than the one installed. "
            f"Train it again with: python -m sea_bench.classifiers {name}"
        )
    try:
        if card.trained == "all":
            model.load_state_dict(tensors)
        else:
            find_head(model).load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit {network}: {error}") from error
    source = (
        f"{network} for {PROBLEMS[problem].data} (trained: {card.trained}): "
        f"{card.accuracy:.1%} of {card.n_test} test pictures "
        f"(seed {card.seed}); data: {data.describe(PROBLEMS[problem].data).terms}"
    )
    model = model.to(device).eval()
    return LoadedModel(model, card.preprocess, card.classes, name, source)


def is_trained(name: str) -> bool:
    """Whether this is a classifier that is trained here, not one that comes trained."""
    return name.partition("/")[0] in PROBLEMS


def read_card(name: str) -> ModelCard | None:
    """Return what is known of a trained classifier, or None if it has not been trained here."""
    path = _locate(name)[2]
    return read_file(path)[0] if path.is_file() else None


def train_classifier(name: str, device: str | torch.device = "cpu", seed: int = 0) -> ModelCard:
    """Train a classifier, measure it on the test split, and store it.

    On a pretrained network the last layer is replaced and fitted to the features below it; its
    penalty is chosen by cross-validation within the training pictures. ``vgg`` is trained as a
    whole. For ``tiny_imagenet`` nothing is trained: the network keeps those of its 1000 outputs
    that are Tiny ImageNet's classes. ``seed`` decides everything random in training; the split is
    always that of ``data.load``. The global random state is left as it was.
    """
    start = time.perf_counter()
    problem_name, network, path = _locate(name)
    problem, device = PROBLEMS[problem_name], torch.device(device)
    test = data.load(problem.data)
    n_classes = len(test.classes)
    details: dict[str, float] = {}
    train: list[Item] = []
    if problem_name == "tiny_imagenet":
        model, preprocess, checksum = _build(network, None)
        _select_rows(model, test.items, n_classes)
        trained = "none"
    else:
        model, preprocess, checksum = _build(network, n_classes, seed)
        options = {"per_scene": problem.per_scene} if problem.per_scene else {}
        train = list(data.load(problem.data, split="train", **options))
        # Once for each scene, however many objects were pasted on it.
        train += {item.group: item.plain for item in train if item.plain}.values()
        trained = "all" if network == "vgg" else "head"
    if problem.whole:
        preprocess = replace(preprocess, resize=preprocess.shape[1:])
    model = model.to(device)
    with _seeded(seed):
        if network == "vgg":
            fit_network(model, *stack_items(train, preprocess, device), EPOCHS, 3e-3, seed)
        elif train:
            found = extract_features(model, train, preprocess, problem.views, device, seed)
            head = fit_head(*found, n_classes, seed)
            find_head(model).load_state_dict({"weight": head.weight, "bias": head.bias})
            details["penalty"] = head.penalty
    model.eval()
    right = check_items(model, test.items, preprocess, device)
    if n_classes <= 6:
        for label, class_name in enumerate(test.classes):
            details[f"recall {class_name}"] = float(right[test.labels == label].float().mean())
    if plain := [item.plain for item in test if item.plain is not None]:
        right_plain = check_items(model, plain, preprocess, device)
        details["accuracy without objects"] = float(right_plain.float().mean())
    card = ModelCard(
        name=f"{problem_name}/{network}",
        classes=test.classes,
        preprocess=preprocess,
        trained=trained,
        accuracy=float(right.float().mean()),
        n_train=len(train),
        n_test=len(test),
        seed=seed,
        seconds=round(time.perf_counter() - start, 1),
        pretrained=checksum,
        details=details,
    )
    kept = model if trained == "all" else find_head(model)
    write_file(path, card, kept.state_dict())
    return card


def _locate(name: str) -> tuple[str, str, Path]:
    """The problem and the network of a name, and where its classifier is stored."""
    problem, _, network = name.partition("/")
    if problem not in PROBLEMS:
        raise InputError(
            f"There is no problem {problem!r} to train for. Choose from: {', '.join(PROBLEMS)}."
        )
    network = network or PROBLEMS[problem].network
    safe = "".join(letter if letter.isalnum() else "-" for letter in network)
    return problem, network, find_cache() / "classifiers" / f"{problem}-{safe}.safetensors"


def _build(network: str, n_classes: int | None, seed: int = 0) -> tuple[nn.Module, Preprocess, str]:
    """Return a network with a last layer for so many classes, its own preprocessing, a checksum.

    With None for the classes, a pretrained network keeps its last layer. The checksum is that of
    its own last layer.
    """
    with _seeded(seed):
        if network == "vgg":
            if n_classes is None:
                raise InputError("vgg is not pretrained; choose a pretrained network for this.")
            grey = (0.25,) * 3
            return SmallVGG(n_classes), Preprocess((112, 112), 112, mean=grey, std=grey), ""
        loaded = load_model(network)
        head = find_head(loaded.model)
        own = head.weight.detach().contiguous().numpy().tobytes()
        if n_classes is not None:
            set_head(loaded.model, nn.Linear(head.in_features, n_classes))
    return loaded.model, loaded.preprocess, hashlib.sha256(own).hexdigest()[:16]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global random state for layers that know no other, and restore it afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _select_rows(model: nn.Module, items: Sequence[Item], n_classes: int) -> None:
    """Keep of a network's 1000 outputs those of the items' classes, in their order."""
    index = {item.label: item.imagenet for item in items}
    rows = [index.get(label) for label in range(n_classes)]
    head = find_head(model)
    if head.out_features != 1000 or None in rows:
        raise InputError("Only a network with the 1000 ImageNet classes can be cut down to these.")
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the named classifiers, or all of them, and print what they reach."""
    parser = argparse.ArgumentParser(
        prog="python -m sea_bench.classifiers",
        description="Train classifiers for the experiments and store them.",
        epilog="Example: python -m sea_bench.classifiers btd cub20/resnet50",
    )
    problems = ", ".join(PROBLEMS)
    parser.add_argument("names", nargs="*", help=f"PROBLEM[/NETWORK]; problems: {problems}")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    for name in given.names or PROBLEMS:
        card = train_classifier(name, given.device, seed=given.seed)
        details = ", ".join(f"{key} {value:.3g}" for key, value in card.details.items())
        print(
            f"{card.name}: {card.accuracy:.1%} of {card.n_test} test pictures; trained on "
            f"{card.n_train}, seed {card.seed}, {card.seconds:.0f} s ({details})",
            flush=True,
        )


if __name__ == "__main__":
    main()
