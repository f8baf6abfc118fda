"""The inputs of an experiment: a fixed random order of the test set, those classified right.

With the classifiers of a cross-validation (``btd/vgg@5``) every picture of the set is a test input
of one of them, the one that has not seen it. Inputs are then numbered in blocks of one classifier,
in turns, so that the first few inputs of a trial are also the first of the whole.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sea_bench import data
from sea_bench.classifiers import (
    find_part,
    is_trained,
    list_parts,
    load_classifier,
    load_split,
    read_card,
    train_classifier,
)
from sea_bench.data import ImageSet, Item
from sea_bench.data.items import View, fill_boxes
from sea_bench.experiments.comparison import Comparison
from sea_bench.training import check_items
from sea_nn.errors import InputError
from sea_nn.metrics import pixel_bounds
from sea_nn.vision import shipped
from sea_nn.vision.models import LoadedModel

SAMPLE = "fashion_sample"
CHUNK = 64
BOX = "box"


@dataclass(frozen=True)
class Batch:
    """Some inputs as tensors on the device; ``number`` is the first one's among all inputs."""

    number: int
    x: Tensor  # [N, C, H, W]
    target: Tensor  # the class explained, [N]
    images: Tensor  # uint8 [N, H, W, 3]
    masks: Tensor | None = None  # float [N, H, W], where the experiment has masks
    plain: Tensor | None = None  # the inputs without their object, where there are such pictures

    def __len__(self) -> int:
        return len(self.x)

    def list_content(self, row: int) -> list[Tensor]:
        """The tensors that one input's result depends on."""
        more = (part[row] for part in (self.masks, self.plain) if part is not None)
        return [self.x[row], self.target[row], *more]


@dataclass(frozen=True)
class Inputs:
    """The inputs chosen, and the classifiers they are explained for.

    Attributes:
        models: the classifier, or one for each part; they differ in their weights alone.
        items: the inputs in the order in which they are numbered.
        targets: the class explained for each.
        asked: which of the classifiers each is explained for.
        mask: the kind of mask to read, "box" for the inside of the boxes, or None.
        available: how many inputs of the set could have been chosen; None if not all were tried.
        facts: about set and classifier, a line each.
    """

    models: tuple[LoadedModel, ...]
    items: tuple[Item, ...]
    targets: tuple[int, ...]
    asked: tuple[int, ...]
    mask: str | None
    available: int | None
    facts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def loaded(self) -> LoadedModel:
        """The classifier, where there is only one."""
        if len(self.models) > 1:
            raise InputError(f"these inputs have {len(self.models)} classifiers; split them first")
        return self.models[0]

    def split(self) -> "tuple[Inputs, ...]":
        """The same inputs under the same numbers, once with each of the classifiers alone."""
        return tuple(replace(self, models=(one,), asked=(0,) * len(self)) for one in self.models)

    def cut(self, size: int) -> Iterator[range]:
        """Yield the numbers of up to ``size`` inputs that follow each other and share a model."""
        start = 0
        for end in range(1, len(self) + 1):
            last = end == len(self) or self.asked[end] != self.asked[start]
            if last or end - start == size:
                yield range(start, end)
                start = end

    @property
    def device(self) -> torch.device:
        """Where the classifiers are."""
        return next(self.models[0].model.parameters()).device

    def name_class(self, number: int) -> str:
        """The name of the class explained for an input."""
        return self.models[0].label(self.targets[number])

    def read(self, numbers: Sequence[int]) -> Batch:
        """Read consecutive inputs."""
        preprocess = self.models[0].preprocess
        items = [self.items[number] for number in numbers]
        views = [_view(item, self.models[0], self.mask) for item in items]
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
        preprocess = self.models[0].preprocess
        return pixel_bounds(preprocess.mean, preprocess.std)


def choose_inputs(
    experiment: Comparison,
    count: int,
    device: str | torch.device = "cpu",
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> Inputs:
    """Return the first ``count`` inputs that the experiment may use, in an order set by the seed.

    There may be fewer. A classifier that has not been trained on this machine is trained first, on
    the device. Of several parts, only those are used that these inputs come from.

    Raises:
        InputError: the data are missing, with what to do; or no input fits.
    """
    parts, names = list[Inputs](), list_parts(experiment.classifier)
    for name in names:
        parts.append(_choose(replace(experiment, classifier=name), count, device, seed, tell))
        if sum(min(len(part), experiment.blocks) for part in parts) >= count:
            break  # the first turn has enough
    if not any(len(part) for part in parts):
        raise InputError(
            f"{experiment.name} found no input it could use in {experiment.data}; is the "
            f"classifier {experiment.classifier} trained for this set?"
        )
    return parts[0] if len(names) == 1 else _join(experiment, parts, count)


def _join(experiment: Comparison, parts: Sequence[Inputs], count: int) -> Inputs:
    """Take inputs of each part in turns, a block at a time, up to ``count``."""
    size = experiment.blocks
    turns = range(0, max(map(len, parts)), size)
    order = [
        (number, row)
        for start in turns
        for number, part in enumerate(parts)
        for row in range(start, min(start + size, len(part)))
    ][:count]
    return Inputs(
        models=tuple(part.loaded for part in parts),
        items=tuple(parts[number].items[row] for number, row in order),
        targets=tuple(parts[number].targets[row] for number, row in order),
        asked=tuple(number for number, _ in order),
        mask=experiment.mask,
        available=len(order) if len(order) < count else None,
        facts=_describe_parts(experiment, parts),
    )


def _choose(
    experiment: Comparison,
    count: int,
    device: str | torch.device,
    seed: int,
    tell: Callable[[str], None],
) -> Inputs:
    """Choose inputs for one classifier; there may be none."""
    images = load_images(experiment)
    if is_trained(experiment.classifier) and read_card(experiment.classifier) is None:
        tell(f"training {experiment.classifier}")
        train_classifier(experiment.classifier, device)
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
    facts = _describe(experiment, images, loaded, n_seen, n_right, labelled)
    available = len(items) if len(items) < count else None
    asked = (0,) * len(items)
    return Inputs((loaded,), tuple(items), tuple(targets), asked, experiment.mask, available, facts)


def load_images(experiment: Comparison, split: data.Split = "test") -> ImageSet:
    """Load the experiment's data set, split as its classifier's training was."""
    if experiment.data != SAMPLE:
        part = find_part(experiment.classifier)
        return load_split(experiment.data, part, split, **experiment.data_options)
    sample = shipped.load_sample()
    pictures = (sample.images[:, 0] * 255).round().to(torch.uint8).numpy()
    items = tuple(
        Item(f"sample-{i}", partial(Image.fromarray, picture), int(label))
        for i, (picture, label) in enumerate(zip(pictures, sample.labels, strict=True))
    )
    return ImageSet(SAMPLE, items, sample.names, "MIT, copyright Zalando SE")


def measure_accuracy(experiment: Comparison, loaded: LoadedModel) -> float:
    """Return the share of all test inputs that the classifier gets right."""
    items, device = load_images(experiment).items, next(loaded.model.parameters()).device
    return float(check_items(loaded.model, items, loaded.preprocess, device).double().mean())


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
    experiment: Comparison,
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
    card = read_card(experiment.classifier) if is_trained(experiment.classifier) else None
    said = f"classifier: {experiment.classifier}"
    if card is not None:
        said += f" ({card.name}), right on {card.accuracy:.1%} of {card.n_test} test pictures"
    elif experiment.classifier == "fashion":
        share = measure_accuracy(experiment, loaded)
        said += f", a five-layer CNN, right on {share:.2%} of {len(images)} test pictures"
    elif labelled and n_seen:
        said += f", right on {n_right / n_seen:.1%} of the {n_seen} pictures tried"
    return (*lines, said)


def _describe_parts(experiment: Comparison, parts: Sequence[Inputs]) -> tuple[str, ...]:
    names = list_parts(experiment.classifier)
    cards = [card for name in names[: len(parts)] if (card := read_card(name))]
    sizes, shares = [r.n_test for r in cards], [r.accuracy for r in cards]
    info, (_, *notes, _) = data.describe(experiment.data), parts[0].facts
    few = "" if len(parts) == len(names) else f", {len(parts)} of them used"
    return (
        f"data: {info.title}, {sum(sizes)} pictures in {len(names)} parts{few} ({info.terms})",
        *notes,
        "each picture is explained for the classifier trained on the other parts; pictures known "
        "to belong together (of one patient, or copies) are in one part",
        f"classifiers: {cards[0].name.partition('@')[0]}, right on "
        f"{', '.join(f'{share:.1%}' for share in shares)} of the part they were not trained on, "
        f"{sum(shares) / len(shares):.1%} in the mean",
    )
