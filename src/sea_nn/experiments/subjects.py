"""The inputs of an experiment: a fixed random order of the test set, those classified right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sea_nn import data
from sea_nn.classifiers import TASKS, load_classifier, read_record
from sea_nn.data import ImageSet, Item, fashion
from sea_nn.data.items import View, fill_boxes
from sea_nn.errors import InputError
from sea_nn.experiments.experiment import Experiment
from sea_nn.metrics import pixel_bounds
from sea_nn.models import LoadedModel

SAMPLE = "fashion_sample"
CHUNK = 64
BOX = "box"


@dataclass(frozen=True)
class Batch:
    """Some inputs as tensors on the device.

    Attributes:
        number: of the first one among all subjects.
        x: [N, C, H, W].
        target: the class explained, [N].
        images: uint8 [N, H, W, 3].
        masks: float [N, H, W], where the experiment has masks.
        plain: the inputs without their object, where there are such pictures.
    """

    number: int
    x: Tensor
    target: Tensor
    images: Tensor
    masks: Tensor | None = None
    plain: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Subjects:
    """The inputs chosen, and the classifier they are explained for.

    Attributes:
        loaded: the classifier.
        items: the inputs in the order in which they are numbered.
        targets: the class explained for each.
        labels: the classes' names, for people.
        mask: the kind of mask to read, "box" for the inside of the boxes, or None.
        available: how many inputs of the set could have been chosen; None if not all were tried.
        facts: about set and classifier, a line each.
    """

    loaded: LoadedModel
    items: tuple[Item, ...]
    targets: tuple[int, ...]
    mask: str | None
    available: int | None
    facts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def device(self) -> torch.device:
        """Where the classifier is."""
        return next(self.loaded.model.parameters()).device

    def name_class(self, number: int) -> str:
        """The name of the class explained for an input."""
        return self.loaded.label(self.targets[number])

    def read(self, numbers: Sequence[int]) -> Batch:
        """Read consecutive inputs."""
        preprocess = self.loaded.preprocess
        items = [self.items[number] for number in numbers]
        views = [_view(item, self.loaded, self.mask) for item in items]
        found = [_find_mask(view, self.mask) for view in views]
        masks = [mask for mask in found if mask is not None]
        without = [preprocess(item.plain.read()) for item in items if item.plain is not None]
        return Batch(
            number=numbers[0],
            x=torch.stack([view.tensor for view in views]).to(self.device),
            target=torch.tensor([self.targets[n] for n in numbers], device=self.device),
            images=torch.stack([torch.from_numpy(view.display) for view in views]),
            masks=torch.stack(masks).to(self.device) if len(masks) == len(views) else None,
            plain=torch.stack(without).to(self.device) if len(without) == len(items) else None,
        )

    @property
    def bounds(self) -> Any:
        """The values of black and white after preprocessing."""
        return pixel_bounds(self.loaded.preprocess.mean, self.loaded.preprocess.std)


def choose_subjects(
    experiment: Experiment, count: int, device: str | torch.device = "cpu", seed: int = 0
) -> Subjects:
    """Return the first ``count`` inputs that the experiment may use, in an order set by the seed.

    Raises:
        InputError: data or classifier are missing, with what to do; or no input fits.
    """
    images = load_images(experiment)
    loaded = load_classifier(experiment.classifier, device)
    order = np.random.default_rng(seed).permutation(len(images)).tolist()
    if experiment.tuning:
        order.reverse()
    candidates = [images[index] for index in order]
    if experiment.mask is not None:
        boxed = experiment.mask == BOX
        candidates = [item for item in candidates if (item.boxes if boxed else item.masks)]
    numbers = [images.classes.index(name) for name in experiment.classes]
    if numbers:
        candidates = [item for item in candidates if item.label in numbers]
    labelled = all(item.label is not None for item in candidates)
    check = experiment.correct and labelled
    items: list[Item] = []
    targets: list[int] = []
    n_seen = n_right = 0
    for start in range(0, len(candidates), CHUNK):
        some = candidates[start : start + CHUNK]
        for item, predicted in zip(some, _predict(loaded, some), strict=True):
            right = predicted == _expect(item, loaded, images)
            n_seen, n_right = n_seen + 1, n_right + right
            fits = right or not check
            if fits and experiment.mask is not None:
                mask = _find_mask(_view(item, loaded, experiment.mask), experiment.mask)
                low, high = experiment.mask_share
                fits = mask is not None and low < float((mask > 0).float().mean()) <= high
            if fits and check and item.plain is not None:
                fits = _predict(loaded, [item.plain])[0] == predicted
            if fits and len(items) < count:
                items.append(item)
                targets.append(predicted)
        if len(items) == count:
            break
    if not items:
        raise InputError(
            f"{experiment.name} found no input it could use among {len(candidates)} of "
            f"{experiment.data}; is the classifier {experiment.classifier} trained for this set?"
        )
    facts = _describe(experiment, images, loaded, n_seen, n_right, labelled)
    available = len(items) if len(items) < count else None
    return Subjects(loaded, tuple(items), tuple(targets), experiment.mask, available, facts)


def load_images(experiment: Experiment, split: data.Split = "test") -> ImageSet:
    """Load the experiment's data set."""
    if experiment.data != SAMPLE:
        return data.load(experiment.data, None, split, **experiment.data_options)
    sample = fashion.load_sample()
    pictures = (sample.images[:, 0] * 255).round().to(torch.uint8).numpy()
    items = tuple(
        Item(f"sample-{i}", partial(Image.fromarray, picture), int(label))
        for i, (picture, label) in enumerate(zip(pictures, sample.labels, strict=True))
    )
    return ImageSet(SAMPLE, items, sample.names, "MIT, copyright Zalando SE")


def measure_accuracy(experiment: Experiment, loaded: LoadedModel) -> float:
    """Return the share of all test inputs that the classifier gets right."""
    images = load_images(experiment)
    n_right = 0
    for start in range(0, len(images), CHUNK):
        some = images.items[start : start + CHUNK]
        predicted = _predict(loaded, some)
        n_right += sum(
            p == _expect(i, loaded, images) for i, p in zip(some, predicted, strict=True)
        )
    return n_right / len(images)


def _view(item: Item, loaded: LoadedModel, mask: str | None) -> View:
    return item.view(loaded.preprocess, mask if item.masks and mask != BOX else None)


def _find_mask(view: View, kind: str | None) -> Tensor | None:
    """The mask of this kind as the classifier sees it, float [H, W], if the picture has one."""
    if kind == BOX:
        return fill_boxes(view.boxes, *view.display.shape[:2]).float()
    return None if kind is None else view.mask


@torch.no_grad()
def _predict(loaded: LoadedModel, items: Sequence[Item]) -> list[int]:
    device = next(loaded.model.parameters()).device
    x = torch.stack([loaded.preprocess(item.read()) for item in items]).to(device)
    # On a CPU small chunks stay in the cache.
    size = 64 if x.is_cuda or x[0].numel() < 10_000 else 2
    return [int(k) for part in x.split(size) for k in loaded.model(part).argmax(1)]


def _expect(item: Item, loaded: LoadedModel, images: ImageSet) -> int | None:
    """The right answer: the set's own label, or ImageNet's for a network with those classes."""
    own = len(loaded.labels) == len(images.classes)
    return item.label if own or item.imagenet is None else item.imagenet


def _describe(
    experiment: Experiment,
    images: ImageSet,
    loaded: LoadedModel,
    n_seen: int,
    n_right: int,
    labelled: bool,
) -> tuple[str, ...]:
    if experiment.data == SAMPLE:
        about = "data: the 200 Fashion-MNIST test pictures shipped with the package"
    else:
        info = data.describe(experiment.data)
        about = f"data: {info.title}, test split, {len(images)} pictures ({info.terms})"
    lines = [about, *images.notes]
    task = experiment.classifier.partition("/")[0]
    record = read_record(experiment.classifier) if task in TASKS else None
    said = f"classifier: {experiment.classifier}"
    if record is not None:
        said += f" ({record.name}), right on {record.accuracy:.1%} of {record.n_test} test pictures"
    elif task == "fashion":
        share = measure_accuracy(experiment, loaded)
        said += f", a five-layer CNN, right on {share:.2%} of {len(images)} test pictures"
    elif labelled:
        said += f", right on {n_right / n_seen:.1%} of the {n_seen} pictures tried"
    return (*lines, said)
