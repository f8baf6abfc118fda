"""The inputs of a comparison: a fixed random order of the test set, those classified right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_bench import data
from sea_bench.classifiers import load_classifier, read_card
from sea_bench.data.fashion import read_sample
from sea_bench.data.items import ImageSet, Item, Split, View, fill_boxes
from sea_bench.experiments.comparison import Comparison
from sea_bench.training import check_items
from sea_nn.errors import InputError
from sea_nn.metrics import pixel_bounds
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
    """The inputs chosen, and the classifier they are explained for.

    Attributes:
        loaded: the classifier.
        items: the inputs in the order in which they are numbered.
        targets: the class explained for each.
        mask: the kind of mask to read, "box" for the inside of the boxes, or None.
        facts: about set and classifier, a line each.
    """

    loaded: LoadedModel
    items: tuple[Item, ...]
    targets: tuple[int, ...]
    mask: str | None = None
    facts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def device(self) -> torch.device:
        """Where the classifier is."""
        return next(self.loaded.model.parameters()).device

    @property
    def bounds(self) -> Any:
        """The values of black and white after preprocessing."""
        return pixel_bounds(self.loaded.preprocess.mean, self.loaded.preprocess.std)

    def read(self, numbers: Sequence[int]) -> Batch:
        """Read consecutive inputs."""
        items = [self.items[number] for number in numbers]
        views = [_view(item, self.loaded, self.mask) for item in items]
        found = [_find_mask(view, self.mask) for view in views]
        masks = [mask for mask in found if mask is not None]
        plain = [self.loaded.preprocess(item.plain.read()) for item in items if item.plain]
        return Batch(
            number=numbers[0],
            x=torch.stack([view.tensor for view in views]).to(self.device),
            target=torch.tensor([self.targets[n] for n in numbers], device=self.device),
            masks=torch.stack(masks).to(self.device) if len(masks) == len(items) else None,
            plain=torch.stack(plain).to(self.device) if len(plain) == len(items) else None,
        )


def choose_inputs(
    experiment: Comparison,
    count: int,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Inputs:
    """Return the first ``count`` inputs that the experiment may use, in an order set by the seed.

    There may be fewer. A classifier that has not been trained on this machine is trained first, on
    the device.

    Raises:
        InputError: the data are missing, with what to do; or no input fits.
    """
    images = load_images(experiment)
    loaded = load_classifier(experiment.classifier, device)
    order = np.random.default_rng(seed).permutation(len(images)).tolist()
    candidates = [images[index] for index in order]
    if experiment.mask is not None:
        boxed = experiment.mask == BOX
        candidates = [item for item in candidates if (item.boxes if boxed else item.masks)]
    numbers = [images.classes.index(name) for name in experiment.classes]
    if numbers:
        candidates = [item for item in candidates if item.label in numbers]
    labelled = all(item.label is not None for item in candidates)
    check = experiment.correct and labelled
    chosen: list[tuple[Item, int]] = []
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
            if fits and len(chosen) < count:
                chosen.append((item, predicted))
        if len(chosen) == count:
            break
    if not chosen:
        raise InputError(
            f"{experiment.name} found no input it could use in {experiment.data}; is the "
            f"classifier {experiment.classifier} trained for this set?"
        )
    tried = f"{n_right / n_seen:.1%} of the {n_seen} pictures tried" if labelled else ""
    facts = _describe(experiment, images, loaded, tried)
    items, targets = zip(*chosen, strict=True)
    return Inputs(loaded, items, targets, experiment.mask, facts)


def load_images(experiment: Comparison, split: Split = "test") -> ImageSet:
    """Load the experiment's data set."""
    if experiment.data == SAMPLE:
        return read_sample()
    return data.load(experiment.data, split=split)


def _view(item: Item, loaded: LoadedModel, mask: str | None) -> View:
    return item.view(loaded.preprocess, mask if item.masks and mask != BOX else None)


def _find_mask(view: View, kind: str | None) -> Tensor | None:
    """The mask of this kind as the classifier sees it, float [H, W], if the picture has one."""
    if kind == BOX:
        return fill_boxes(view.boxes, *view.tensor.shape[1:]).float()
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
    experiment: Comparison, images: ImageSet, loaded: LoadedModel, tried: str
) -> tuple[str, ...]:
    """What set and classifier are, a line each; ``tried`` says how often it was right, if known."""
    about = "data: the 200 Fashion-MNIST test pictures shipped with the package"
    if experiment.data != SAMPLE:
        info = data.describe(experiment.data)
        about = f"data: {info.title}, test split, {len(images)} pictures ({info.terms})"
    said = f"classifier: {experiment.classifier}"
    card = read_card(experiment.classifier)
    if card is not None:
        said += f" ({card.name}), right on {card.accuracy:.1%} of {card.n_test} test pictures"
    elif experiment.classifier == "fashion":
        device = next(loaded.model.parameters()).device
        right = check_items(loaded.model, images.items, loaded.preprocess, device)
        share = float(right.double().mean())
        said += f", a five-layer CNN, right on {share:.2%} of {len(images)} test pictures"
    elif tried:
        said += f", right on {tried}"
    return (about, *images.notes, said)
