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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from . import data
from .data import Item
from .errors import InputError
from .images import Preprocess
from .models import LoadedModel, load_model
from .training import (
    SmallVGG,
    check_items,
    extract_features,
    find_head,
    fit_head,
    fit_network,
    set_head,
    stack_items,
)

CACHE_VARIABLE = "SEA_NN_CACHE"


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
    "btd": Task("btd", _LITE, views=2, epochs=30, start="lgg"),
    "cub20": Task("cub20", _LITE, whole=False),
    "lgg": Task("lgg", "vgg"),
    "scenes": Task(
        "objects_on_scenes", _LITE, {"label": "scene", "per_scene": 3}, views=0, plain=True
    ),
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
    model, _, checksum = _build(network, len(record.classes))
    if checksum != record.pretrained:
        raise InputError(
            f"{path} was trained on another version of {network} than the one installed. "
            f"Train it again with: python -m sea_nn.classifiers {name}"
        )
    try:
        if record.trained == "all":
            model.load_state_dict(tensors)
        else:
            find_head(model).load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit {network}: {error}") from error
    source = (
        f"{network} for {TASKS[task].data} (trained: {record.trained}): "
        f"{record.accuracy:.1%} of {record.n_test} test pictures "
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
        seed: of everything random in training; the split is always that of ``data.load``.
        fine_tune: epochs of training the whole pretrained network afterwards; wants a GPU.

    The global random state is left as it was.
    """
    start = time.perf_counter()
    task_name, network = _parse(name)
    task, device = TASKS[task_name], torch.device(device)
    test = data.load(task.data, data_folder, "test", **{**task.options, **_once(task)})
    n_classes = len(test.classes)
    details: dict[str, float] = {}
    train: list[Item] = []
    if task_name == "tiny_imagenet":
        model, preprocess, checksum = _build(network, None)
        _select_rows(model, test.items, n_classes)
        trained = "none"
    else:
        model, preprocess, checksum = _build(network, n_classes, seed)
        train = _gather(task, data_folder)
        trained = "all" if network == "vgg" or fine_tune else "head"
    if task.whole:
        preprocess = replace(preprocess, resize=preprocess.shape[1:])
    model = model.to(device)
    with _seeded(seed):
        if network == "vgg":
            if task.start:
                model.load_state_dict(_fetch_start(task.start, folder, device, seed))
            inputs, labels = stack_items(train, preprocess, device)
            fit_network(model, inputs, labels, task.epochs, 1e-3 if task.start else 3e-3, seed)
        elif train:
            found = extract_features(model, train, preprocess, task.views, device, seed)
            head = fit_head(*found, n_classes, seed)
            find_head(model).load_state_dict({"weight": head.weight, "bias": head.bias})
            details["penalty"] = head.penalty
            if fine_tune:
                inputs, labels = stack_items(train, preprocess, device)
                fit_network(model, inputs, labels, fine_tune, 3e-4, seed, freeze_norms=True)
    model.eval()
    right = check_items(model, test.items, preprocess, device)
    if n_classes <= 6:
        for label, class_name in enumerate(test.classes):
            details[f"recall {class_name}"] = float(right[test.labels == label].float().mean())
    if task.plain:
        plain = [item.plain for item in test if item.plain is not None]
        right_plain = check_items(model, plain, preprocess, device)
        details["accuracy without objects"] = float(right_plain.float().mean())
    record = Record(
        name=f"{task_name}/{network}",
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
    _write_file(_locate(task_name, network, folder), record, kept.state_dict())
    return record


def _parse(name: str) -> tuple[str, str]:
    task, _, network = name.partition("/")
    if task not in TASKS:
        raise InputError(
            f"There is no task {task!r} to train for. Choose from: {', '.join(TASKS)}."
        )
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


def _gather(task: Task, folder: str | Path | None) -> list[Item]:
    items = list(data.load(task.data, folder, "train", **task.options))
    if task.plain:  # once for each scene, however many objects were pasted on it
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
    task: str, folder: str | Path | None, device: torch.device, seed: int
) -> dict[str, Tensor]:
    """Return another task's trained weights; train them first if need be."""
    path = _locate(task, "vgg", folder)
    if not path.is_file():
        train_classifier(f"{task}/vgg", device, folder, seed=seed)
    return _read_file(path)[1]


def _write_file(path: Path, record: Record, tensors: Mapping[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    unfinished = path.with_suffix(".part")  # a broken run leaves no broken classifier behind
    save_file(stored, unfinished, {"record": json.dumps(asdict(record))})
    unfinished.replace(path)


def _read_file(path: Path) -> tuple[Record, dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            fields = json.loads(file.metadata()["record"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        recipe: dict[str, Any] = fields["preprocess"]
        for key, value in recipe.items():  # JSON has lists only
            recipe[key] = tuple(value) if isinstance(value, list) else value
        fields["preprocess"] = Preprocess(**recipe)
        return Record(**{**fields, "classes": tuple(fields["classes"])}), tensors
    except (SafetensorError, TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} is not a classifier of this version ({error}). Delete it and train it again."
        ) from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the named classifiers, or all of them, and print what they reach."""
    parser = argparse.ArgumentParser(
        prog="python -m sea_nn.classifiers",
        description="Train classifiers for the experiments and store them.",
        epilog="Example: python -m sea_nn.classifiers btd cub20/resnet50",
    )
    tasks = ", ".join(TASKS)
    parser.add_argument("names", nargs="*", help=f"TASK or TASK/NETWORK; tasks: {tasks}")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    tuning = "epochs of training the whole network afterwards; wants a GPU"
    parser.add_argument("--fine-tune", type=int, default=0, metavar="EPOCHS", help=tuning)
    given = parser.parse_args(arguments)
    for name in given.names or TASKS:
        record = train_classifier(name, given.device, seed=given.seed, fine_tune=given.fine_tune)
        details = ", ".join(f"{key} {value:.3g}" for key, value in record.details.items())
        print(
            f"{record.name}: {record.accuracy:.1%} of {record.n_test} test pictures; trained on "
            f"{record.n_train}, seed {record.seed}, {record.seconds:.0f} s ({details})",
            flush=True,
        )


if __name__ == "__main__":
    main()
