"""Classifiers for the data sets of the experiments: train them once, load them by name.

A name is a task, such as ``cub20``, or a task and a network, such as ``cub20/resnet50`` or
``btd/torchvision:vgg11``. Networks are those of ``sea_nn.models.load_model``, with a new last
layer, and ``vgg``, a small plain one trained from scratch. Each is one differentiable module from
the preprocessed picture to logits.

    python -m sea_nn.classifiers btd cub20        # train and store in $SEA_NN_CACHE
    load_classifier("cub20")                      # then, anywhere

>>> load_classifier("fashion").label(9)
'Ankle boot'
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import data
from .data import Item
from .errors import InputError
from .heads import augment, fit_head, fit_network
from .images import Preprocess
from .models import LoadedModel, load_model

CACHE_VARIABLE = "SEA_NN_CACHE"
_CHUNK = 32


@dataclass(frozen=True)
class Task:
    """What is to be told apart, and how a classifier for it is trained by default.

    Attributes:
        data: the data set.
        network: the default network.
        options: of the data set's loader, for training pictures.
        whole: squash the whole picture into the network's input, rather than cut out the centre.
        views: changed copies of each training picture for a new last layer (see ``augment``).
        epochs: of training ``vgg``.
        start: the task whose trained ``vgg`` this task's starts from.
        plain: train on pictures without their object too.
    """

    data: str
    network: str
    options: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True
    views: int = 1
    epochs: int = 12
    start: str = ""
    plain: bool = False


_LITE = "efficientnet-lite0"
TASKS = {
    "btd": Task("btd", _LITE, views=4, epochs=30, start="lgg"),
    "cub20": Task("cub20", _LITE, whole=False),
    "lgg": Task("lgg", "vgg"),
    "scenes": Task("objects_on_scenes", _LITE, {"label": "scene"}, views=0, plain=True),
    "objects": Task("objects_on_scenes", _LITE, {"label": "object", "per_scene": 3}, views=0),
    "tiny_imagenet": Task("tiny_imagenet", _LITE),
}


@dataclass(frozen=True)
class Record:
    """What is known of a trained classifier; stored in its file.

    Attributes:
        name: task/network.
        classes: class names in the order of the logits.
        preprocess: how pictures are prepared.
        trained: which weights: "head" (the last layer), "all", or "none" (rows were selected).
        accuracy: share of the test pictures classified right.
        n_train, n_test: numbers of pictures.
        seed: of everything random in training.
        seconds: wall time of training and testing.
        pretrained: checksum of the pretrained network's own last layer; empty for ``vgg``.
        details: more figures, such as the accuracy on scenes without objects.
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


class SmallVGG(nn.Module):
    """A small VGG: 3x3 convolutions, ReLU and pooling, [N, 3, 112, 112] to logits [N, classes].

    Every ReLU is its own module, not in place, as rule-based explainers need.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 3
        for stage in ((16,), (32,), (64, 64), (96, 96), (128,)):
            for width in stage:
                convolution = nn.Conv2d(n_in, width, 3, padding=1, bias=False)
                layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
                n_in = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(n_in, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.dropout(self.flatten(self.pool(self.features(images)))))
        return logits


def classifier_names() -> tuple[str, ...]:
    """Return the tasks; ``/NETWORK`` after one asks for another network than its default.

    >>> classifier_names()
    ('fashion', 'btd', 'cub20', 'lgg', 'scenes', 'objects', 'tiny_imagenet')
    """
    return ("fashion", *TASKS)


def load_classifier(
    name: str, device: str | torch.device = "cpu", folder: str | Path | None = None
) -> LoadedModel:
    """Load a trained classifier in evaluation mode.

    Args:
        name: a task, task/network, or any name that ``load_model`` takes (``resnet50``,
            ``torchvision:resnet18``), which is passed on.
        device: where to put it.
        folder: where trained classifiers lie; by default ``$SEA_NN_CACHE`` or ~/.cache/sea_nn.

    Raises:
        InputError: it has not been trained on this machine; the message has the command.
    """
    if name == "fashion":
        return replace(load_model("fashion-cnn", device), name=name)
    if name.partition("/")[0] not in TASKS:
        return _pass_on(name, device)
    task, network = _parse(name)
    path = _locate(task, network, folder)
    if not path.is_file():
        raise InputError(
            f"The classifier {name} has not been trained on this machine: there is no {path}. "
            f"Train it with: python -m sea_nn.classifiers {name}"
        )
    record, tensors = _read_file(path)
    model, checksum = _build(network, len(record.classes))
    if checksum != record.pretrained:
        raise InputError(
            f"{path} was trained on another version of {network} than the one installed. "
            f"Train it again with: python -m sea_nn.classifiers {name}"
        )
    try:
        if record.trained == "all":
            model.load_state_dict(tensors)
        else:
            _find_head(model).load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit {network}: {error}") from error
    source = (
        f"trained on {TASKS[task].data}: {record.accuracy:.1%} of {record.n_test} test pictures "
        f"(seed {record.seed}); data: {data.describe(TASKS[task].data).terms}"
    )
    model = model.to(device).eval()
    return LoadedModel(model, record.preprocess, record.classes, name, source)


def read_record(name: str, folder: str | Path | None = None) -> Record | None:
    """Return what is known of a trained classifier, or None if it has not been trained here."""
    path = _locate(*_parse(name), folder)
    return _read_file(path)[0] if path.is_file() else None


def train_classifier(
    name: str,
    device: str | torch.device = "cpu",
    folder: str | Path | None = None,
    data_folder: str | Path | None = None,
    seed: int = 0,
    fine_tune: int = 0,
) -> Record:
    """Train a classifier, measure it on the test split, and store it.

    On a pretrained network the last layer is replaced and fitted to the features below it; its
    penalty is chosen by cross-validation within the training pictures. ``vgg`` is trained as a
    whole. For ``tiny_imagenet`` nothing is trained: the network keeps those of its 1000 outputs
    that are Tiny ImageNet's classes.

    Args:
        name: a task or task/network.
        device: where to train.
        folder: where to store it; by default ``$SEA_NN_CACHE`` or ~/.cache/sea_nn.
        data_folder: the data set's folder; by default found under ``$SEA_NN_DATA``.
        seed: of the split, where the data set has none of its own, and of everything random.
        fine_tune: epochs of training the whole pretrained network afterwards; wants a GPU.

    The global random state is left as it was.
    """
    start = time.perf_counter()
    task_name, network = _parse(name)
    task = TASKS[task_name]
    options = dict(task.options)
    if task.data in ("btd", "objects_on_scenes"):
        options["seed"] = seed
    test = data.load(task.data, data_folder, "test", **(options | _once(task)))
    selected = task_name == "tiny_imagenet"
    train = [] if selected else _gather(task, data_folder, options)
    model, checksum = _build(network, 1000 if selected else len(test.classes), seed)
    preprocess = _prepare(network, task)
    device = torch.device(device)
    details: dict[str, float] = {}
    trained = "head"
    with _seeded(seed):
        model = model.to(device)
        if selected:
            _select_rows(model, test.items, len(test.classes))
            trained = "none"
        elif network == "vgg":
            if task.start:
                model.load_state_dict(_fetch_start(task.start, folder, device, seed))
            inputs, labels = _stack(train, preprocess, device)
            rate = 1e-3 if task.start else 3e-3
            fit_network(model, inputs, labels, task.epochs, rate, seed)
            trained = "all"
        else:
            features, labels, groups = _extract(model, train, preprocess, task.views, device, seed)
            weight, bias, penalty = fit_head(features, labels, groups, len(test.classes), seed)
            head = _find_head(model)
            head.load_state_dict({"weight": weight, "bias": bias})
            details["penalty"] = penalty
            if fine_tune:
                inputs, labels = _stack(train, preprocess, device)
                fit_network(model, inputs, labels, fine_tune, 3e-4, seed, freeze_norms=True)
                trained = "all"
    model.eval()
    correct = _check(model, test.items, preprocess, device)
    for label, class_name in enumerate(test.classes if len(test.classes) <= 6 else ()):
        details[f"recall {class_name}"] = float(correct[test.labels == label].float().mean())
    if task.plain:
        plain = [item.plain for item in test if item.plain is not None]
        details["accuracy without objects"] = float(
            _check(model, plain, preprocess, device).float().mean()
        )
    record = Record(
        name=f"{task_name}/{network}",
        classes=test.classes,
        preprocess=preprocess,
        trained=trained,
        accuracy=float(correct.float().mean()),
        n_train=len(train),
        n_test=len(test),
        seed=seed,
        seconds=round(time.perf_counter() - start, 1),
        pretrained=checksum,
        details=details,
    )
    kept = model if trained == "all" else _find_head(model)
    _write_file(_locate(task_name, network, folder), record, kept.state_dict())
    return record


def _parse(name: str) -> tuple[str, str]:
    task, _, network = name.partition("/")
    if task not in TASKS:
        raise InputError(f"There is no task {task!r} to train for. Choose from: {', '.join(TASKS)}.")
    return task, network or TASKS[task].network


def _pass_on(name: str, device: str | torch.device) -> LoadedModel:
    try:
        return load_model(name, device)
    except InputError as error:
        tasks = ", ".join(classifier_names())
        raise InputError(f"{error} Trained classifiers: {tasks}, or TASK/NETWORK.") from error


def _locate(task: str, network: str, folder: str | Path | None) -> Path:
    place = folder or os.environ.get(CACHE_VARIABLE) or "~/.cache/sea_nn"
    safe = "".join(letter if letter.isalnum() else "-" for letter in network)
    return Path(place).expanduser() / "classifiers" / f"{task}-{safe}.safetensors"


def _once(task: Task) -> dict[str, Any]:
    """Return options that make one picture of each test scene, however many training has."""
    return {"per_scene": 1} if "per_scene" in task.options else {}


def _gather(task: Task, folder: str | Path | None, options: Mapping[str, Any]) -> list[Item]:
    items = list(data.load(task.data, folder, "train", **options))
    if task.plain:
        items += [item.plain for item in items if item.plain is not None]
    return items


def _prepare(network: str, task: Task) -> Preprocess:
    if network == "vgg":
        return Preprocess((112, 112), 112, mean=(0.25,) * 3, std=(0.25,) * 3)
    own = load_model(network).preprocess
    return replace(own, resize=own.shape[1:]) if task.whole else own


def _build(network: str, n_classes: int, seed: int = 0) -> tuple[nn.Module, str]:
    """Return a network with a last layer for this many classes, and its own one's checksum."""
    with _seeded(seed):
        if network == "vgg":
            return SmallVGG(n_classes), ""
        model = load_model(network).model
        head = _find_head(model)
        own = head.weight.detach().cpu().contiguous().numpy().tobytes()
        if n_classes != head.out_features:
            _set_head(model, nn.Linear(head.in_features, n_classes))
    return model.eval(), hashlib.sha256(own).hexdigest()[:16]


def _find_head(model: nn.Module) -> nn.Linear:
    return model.get_submodule(_name_head(model))  # type: ignore[return-value]


def _name_head(model: nn.Module) -> str:
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not names:
        raise InputError("This network has no linear layer, so it cannot get new classes.")
    return names[-1]


def _set_head(model: nn.Module, layer: nn.Module, name: str | None = None) -> None:
    parent, _, leaf = (name or _name_head(model)).rpartition(".")
    setattr(model.get_submodule(parent), leaf, layer)
