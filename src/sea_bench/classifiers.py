"""Classifiers for the data sets of the experiments: train them once, load them by name.

A name is a problem, such as ``cub20``, or a problem and a network, such as ``cub20/resnet50`` or
``btd/torchvision:vgg11``. ``btd/vgg@5`` stands for five classifiers, each trained on four fifths
of all pictures and tested on the fifth that it has not seen; ``btd/vgg@2of5`` is the second.
Networks are those of ``sea_nn.vision.models.load_model``, with a new last layer, and ``vgg``, a
small plain one trained from scratch. Each is one differentiable module from the preprocessed
picture to logits.

    python -m sea_bench.classifiers btd cub20        # train and store in $SEA_NN_CACHE
    load_classifier("cub20")                      # then, anywhere

>>> load_classifier("fashion").label(9)
'Ankle boot'
"""

import argparse
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sea_bench import data
from sea_bench.classifier_files import ModelCard, read_file, write_file
from sea_bench.data import ImageSet, Item, Split
from sea_bench.data.cross_validation import Part, hold_out, read_parts
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
from sea_nn.vision.folders import find_cache
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel, load_model


@dataclass(frozen=True)
class Problem:
    """What is to be told apart, and how a classifier for it is trained by default.

    Attributes:
        data: the data set.
        network: the default network.
        options: of the data set's loader, for training pictures.
        whole: squash the whole picture into the network's input, rather than cut out the centre.
        views: changed copies of each training picture for a new last layer (see ``augment``).
        epochs: of training ``vgg``.
        start: the problem whose trained ``vgg`` this problem's starts from.
        plain: train on pictures without their object too.
        parts: whether all of the set can be dealt into parts, in groups of pictures that are alike.
    """

    data: str
    network: str
    options: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True
    views: int = 1
    epochs: int = 12
    start: str = ""
    plain: bool = False
    parts: bool = False


_LITE = "efficientnet-lite0"
PROBLEMS = {
    "btd": Problem("btd", _LITE, views=2, epochs=30, start="lgg", parts=True),
    "cub20": Problem("cub20", _LITE, whole=False),
    "lgg": Problem("lgg", "vgg", parts=True),
    "scenes": Problem(
        "objects_on_scenes", _LITE, {"label": "scene", "per_scene": 3}, views=0, plain=True
    ),
    "objects": Problem("objects_on_scenes", _LITE, {"label": "object", "per_scene": 3}, views=0),
    "tiny_imagenet": Problem("tiny_imagenet", _LITE),
}


def classifier_names() -> tuple[str, ...]:
    """Return the problems; ``/NETWORK`` after one asks for another network than its default.

    >>> classifier_names()
    ('fashion', 'btd', 'cub20', 'lgg', 'scenes', 'objects', 'tiny_imagenet')
    """
    return ("fashion", *PROBLEMS)


def list_parts(name: str) -> tuple[str, ...]:
    """Return the names of the classifiers that a name stands for.

    >>> list_parts("lgg@2"), list_parts("cub20")
    (('lgg@1of2', 'lgg@2of2'), ('cub20',))
    """
    base, parts = read_parts(name)
    return tuple(f"{base}@{part}" for part in parts) or (name,)


def load_classifier(
    name: str, device: str | torch.device = "cpu", folder: str | Path | None = None
) -> LoadedModel:
    """Load a trained classifier in evaluation mode.

    The name is a problem, problem/network, one part of either, or any that ``load_model`` takes
    (``resnet50``, ``torchvision:resnet18``), which is passed on. Trained classifiers lie in
    ``folder``, by default ``$SEA_NN_CACHE`` or ~/.cache/sea_nn.

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
    problem, network, part = _parse(name)
    path = _locate(problem, network, part, folder)
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
    return read_parts(name)[0].partition("/")[0] in PROBLEMS


def read_card(name: str, folder: str | Path | None = None) -> ModelCard | None:
    """Return what is known of a trained classifier, or None if it has not been trained here."""
    path = _locate(*_parse(name), folder)
    return read_file(path)[0] if path.is_file() else None


def train_classifier(
    name: str,
    device: str | torch.device = "cpu",
    folder: str | Path | None = None,
    data_folder: str | Path | None = None,
    seed: int = 0,
) -> ModelCard:
    """Train a classifier, measure it on the test split, and store it.

    On a pretrained network the last layer is replaced and fitted to the features below it; its
    penalty is chosen by cross-validation within the training pictures. ``vgg`` is trained as a
    whole. For ``tiny_imagenet`` nothing is trained: the network keeps those of its 1000 outputs
    that are Tiny ImageNet's classes. ``seed`` decides everything random in training; the split is
    always that of ``data.load``. The global random state is left as it was.
    """
    start = time.perf_counter()
    problem_name, network, part = _parse(name)
    problem, device = PROBLEMS[problem_name], torch.device(device)
    # One picture of each test scene, however many training has.
    options = {key: 1 if key == "per_scene" else value for key, value in problem.options.items()}
    test = load_split(problem.data, part, "test", data_folder, **options)
    n_classes = len(test.classes)
    details: dict[str, float] = {}
    train: list[Item] = []
    if problem_name == "tiny_imagenet":
        model, preprocess, checksum = _build(network, None)
        _select_rows(model, test.items, n_classes)
        trained = "none"
    else:
        model, preprocess, checksum = _build(network, n_classes, seed)
        train = _gather(problem, part, data_folder)
        trained = "all" if network == "vgg" else "head"
    if problem.whole:
        preprocess = replace(preprocess, resize=preprocess.shape[1:])
    model = model.to(device)
    with _seeded(seed):
        if network == "vgg":
            if problem.start:
                model.load_state_dict(_fetch_start(problem.start, folder, device, seed))
            inputs, labels = stack_items(train, preprocess, device)
            fit_network(
                model, inputs, labels, problem.epochs, 1e-3 if problem.start else 3e-3, seed
            )
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
    if problem.plain:
        plain = [item.plain for item in test if item.plain is not None]
        right_plain = check_items(model, plain, preprocess, device)
        details["accuracy without objects"] = float(right_plain.float().mean())
    card = ModelCard(
        name=f"{problem_name}/{network}" + (f"@{part}" if part else ""),
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
    write_file(_locate(problem_name, network, part, folder), card, kept.state_dict())
    return card


def load_split(
    name: str, part: Part | None, split: Split, folder: str | Path | None = None, **options: Any
) -> ImageSet:
    """Load the training or test pictures of a data set, in its own split or that of a part."""
    if part is None:
        return data.load(name, folder, split, **options)
    return hold_out(data.load(name, folder, "all", **options), part).split(split)


def find_part(name: str) -> Part | None:
    """Return the part that a classifier is tested on, or None if it has the set's own test split.

    >>> find_part("lgg@2of5")
    Part(number=2, count=5)
    """
    parts = read_parts(name)[1]
    if len(parts) > 1:
        raise InputError(
            f"{name} stands for {len(parts)} classifiers: {', '.join(list_parts(name))}. Name one."
        )
    return parts[0] if parts else None


def _parse(name: str) -> tuple[str, str, Part | None]:
    problem, _, network = read_parts(name)[0].partition("/")
    if problem not in PROBLEMS:
        raise InputError(
            f"There is no problem {problem!r} to train for. Choose from: {', '.join(PROBLEMS)}."
        )
    part = find_part(name)
    if part is not None and not PROBLEMS[problem].parts:
        able = ", ".join(key for key, one in PROBLEMS.items() if one.parts)
        raise InputError(f"{problem} has no parts, only its own split; with parts: {able}.")
    return problem, network or PROBLEMS[problem].network, part


def _locate(problem: str, network: str, part: Part | None, folder: str | Path | None) -> Path:
    place = find_cache() if folder is None else Path(folder).expanduser()
    safe = "".join(letter if letter.isalnum() else "-" for letter in network)
    end = "" if part is None else f"-{part}"
    return place / "classifiers" / f"{problem}-{safe}{end}.safetensors"


def _gather(problem: Problem, part: Part | None, folder: str | Path | None) -> list[Item]:
    items = list(load_split(problem.data, part, "train", folder, **problem.options))
    if problem.plain:  # once for each scene, however many objects were pasted on it
        items += {item.plain.path: item.plain for item in items if item.plain}.values()
    return items


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


def _fetch_start(
    problem: str, folder: str | Path | None, device: torch.device, seed: int
) -> dict[str, Tensor]:
    """Return another problem's trained weights; train them first if need be."""
    path = _locate(problem, "vgg", None, folder)
    if not path.is_file():
        train_classifier(f"{problem}/vgg", device, folder, seed=seed)
    return read_file(path)[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the named classifiers, or all of them, and print what they reach."""
    parser = argparse.ArgumentParser(
        prog="python -m sea_bench.classifiers",
        description="Train classifiers for the experiments and store them.",
        epilog="Example: python -m sea_bench.classifiers btd cub20/resnet50 lgg@5",
    )
    problems = ", ".join(PROBLEMS)
    parser.add_argument("names", nargs="*", help=f"PROBLEM[/NETWORK][@PARTS]; problems: {problems}")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    for name in (one for given_name in given.names or PROBLEMS for one in list_parts(given_name)):
        card = train_classifier(name, given.device, seed=given.seed)
        details = ", ".join(f"{key} {value:.3g}" for key, value in card.details.items())
        print(
            f"{card.name}: {card.accuracy:.1%} of {card.n_test} test pictures; trained on "
            f"{card.n_train}, seed {card.seed}, {card.seconds:.0f} s ({details})",
            flush=True,
        )


if __name__ == "__main__":
    main()
