"""Fitting networks to few pictures: a new last layer on fixed features, or every weight.

>>> features = torch.eye(2).repeat(10, 1)
>>> labels = torch.tensor([0, 1]).repeat(10)
>>> head = fit_head(features, labels, groups=[str(i) for i in range(20)], n_classes=2)
>>> (features @ head.weight.T + head.bias).argmax(1).equal(labels)
True
"""

import math
import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample

from sea_bench.data import Item
from sea_nn.errors import InputError
from sea_nn.vision.images import Preprocess

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_PARTS = 5
_CHUNK = 8


class Head(NamedTuple):
    """A linear layer's weight [classes, features] and bias [classes], and the penalty it had."""

    weight: Tensor
    bias: Tensor
    penalty: float


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
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.dropout, self.head = nn.Dropout(0.3), nn.Linear(n_in, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.dropout(self.flatten(self.pool(self.features(images)))))
        return logits


def name_head(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return the last linear layer, which gives the logits, and its name."""
    found = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.Linear)]
    if not found:
        raise InputError("This network has no linear layer, so it cannot get new classes.")
    return found[-1]


def find_head(model: nn.Module) -> nn.Linear:
    """Return the last linear layer, which gives the logits."""
    return name_head(model)[1]


def set_head(model: nn.Module, layer: nn.Module, name: str | None = None) -> None:
    """Put a layer in the place of the last linear one, or of the one of this name."""
    parent, _, leaf = (name or name_head(model)[0]).rpartition(".")
    setattr(model.get_submodule(parent), leaf, layer)


def augment(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Return changed copies of model inputs [N, C, H, W], each in its own way.

    Mirrored or not, turned by up to 14 degrees, scaled by up to 15 %, shifted by up to 5 %, and
    made brighter or darker. Random numbers are drawn on the CPU, so a seed means the same on
    every device.
    """
    n = len(inputs)

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator)

    mirror = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0)
    angle, size = draw(-0.25, 0.25), draw(0.85, 1.15)
    along, across = size * angle.cos(), size * angle.sin()
    rows = [mirror * along, -across, draw(-0.1, 0.1), mirror * across, along, draw(-0.1, 0.1)]
    transform = torch.stack(rows, 1).view(n, 2, 3).to(inputs)
    grid = affine_grid(transform, list(inputs.shape), align_corners=False)
    moved = grid_sample(inputs, grid, padding_mode="border", align_corners=False)
    contrast, brightness = draw(0.8, 1.2).to(inputs), draw(-0.2, 0.2).to(inputs)
    return moved * contrast.view(-1, 1, 1, 1) + brightness.view(-1, 1, 1, 1)


def fit_head(
    features: Tensor, labels: Tensor, groups: Sequence[str], n_classes: int, seed: int = 0
) -> Head:
    """Fit a linear classifier to features [N, d]: multinomial regression with a squared penalty.

    The penalty is the one of ``PENALTIES`` that classifies held-out groups best in
    cross-validation; of equals, the strongest. Features of one group (copies of a picture,
    slices of a patient) are held out together.
    """
    x = features.double()
    mean, scale = x.mean(0), x.std(0, correction=0).clamp_min(1e-6)
    x = (x - mean) / scale
    parts = deal_parts(groups, labels, seed).to(x.device)
    labels = labels.to(x.device)
    right = dict.fromkeys(PENALTIES, 0)
    for part in range(_PARTS):
        held = parts == part
        if not held.any() or held.all():
            continue
        for penalty in PENALTIES:
            weight, bias = _regress(x[~held], labels[~held], n_classes, penalty)
            predicted = (x[held] @ weight.T + bias).argmax(1)
            right[penalty] += int((predicted == labels[held]).sum())
    best = max(PENALTIES, key=lambda penalty: (right[penalty], penalty))
    weight, bias = _regress(x, labels, n_classes, best)
    weight = weight / scale  # so that the layer takes the features as they are
    return Head(weight.float(), (bias - weight @ mean).float(), best)


def deal_parts(groups: Sequence[str], labels: Tensor, seed: int = 0) -> Tensor:
    """Return a part, from 0, for each item [N]: groups stay whole, labels are spread over parts.

    Groups are dealt out in random order, label after label; a group has its first item's label.
    """
    first: dict[str, int] = {}
    for group, label in zip(groups, labels.tolist(), strict=True):
        first.setdefault(group, label)
    names = sorted(first)
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    order.sort(key=first.__getitem__)
    part = {group: number % _PARTS for number, group in enumerate(order)}
    return torch.tensor([part[group] for group in groups])


def _regress(x: Tensor, labels: Tensor, n_classes: int, penalty: float) -> tuple[Tensor, Tensor]:
    weight = x.new_zeros(n_classes, x.shape[1], requires_grad=True)
    bias = x.new_zeros(n_classes, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def compute_loss() -> Tensor:
        solver.zero_grad()
        loss = cross_entropy(x @ weight.T + bias, labels)
        loss = loss + 0.5 * penalty * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(compute_loss)
    return weight.detach(), bias.detach()


def fit_network(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    epochs: int,
    rate: float,
    seed: int = 0,
    batch: int = 32,
) -> None:
    """Train every weight of ``model`` on augmented inputs [N, C, H, W]; leaves it in eval mode.

    AdamW on a one-cycle schedule that peaks at ``rate``; classes weigh the same however many
    pictures they have. Dropout draws from the global state: seed it around this call.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = labels.to(inputs.device)
    counts = torch.bincount(labels).clamp_min(1)
    weights = (len(labels) / (len(counts) * counts)).to(inputs)
    solver = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.02)
    steps = max(2, epochs * math.ceil(len(inputs) / batch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(solver, rate, steps, pct_start=0.2)
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(len(inputs), generator=generator).split(batch):
            if len(part) == 1:  # batch normalisation cannot learn from one picture
                continue
            chosen = part.to(inputs.device)
            said = model(augment(inputs[chosen], generator))
            loss = cross_entropy(said, labels[chosen], weight=weights, label_smoothing=0.05)
            solver.zero_grad()
            loss.backward()
            solver.step()
            schedule.step()
    model.eval()


def stack_items(
    items: Sequence[Item], preprocess: Preprocess, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the items' inputs [N, C, H, W] and labels [N]."""
    inputs = torch.stack([preprocess(item.read()) for item in items]).to(device)
    return inputs, torch.tensor([item.label for item in items], device=device)


def _chunk(
    items: Sequence[Item], preprocess: Preprocess, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Sequence[Item]]]:
    for start in range(0, len(items), _CHUNK):
        some = items[start : start + _CHUNK]
        yield *stack_items(some, preprocess, device), some


@torch.no_grad()
def extract_features(
    model: nn.Module,
    items: Sequence[Item],
    preprocess: Preprocess,
    views: int,
    device: torch.device,
    seed: int = 0,
) -> tuple[Tensor, Tensor, list[str]]:
    """Return what the last layer gets for each picture and for ``views`` changed copies of it.

    Features [M, d], labels [M] and groups, M being (1 + views) times the number of items.
    """
    generator = torch.Generator().manual_seed(seed)
    name, head = name_head(model)
    features, labels, groups = [], [], list[str]()
    set_head(model, nn.Identity())
    try:
        for inputs, targets, some in _chunk(items, preprocess, device):
            for view in range(views + 1):
                features.append(model(augment(inputs, generator) if view else inputs))
                labels.append(targets)
                groups += [item.group or item.name for item in some]
    finally:
        set_head(model, head, name)
    return torch.cat(features), torch.cat(labels), groups


@torch.no_grad()
def check_items(
    model: nn.Module, items: Sequence[Item], preprocess: Preprocess, device: torch.device
) -> Tensor:
    """Return for each item whether the model classifies it right, bool [N] on the CPU."""
    chunks = _chunk(items, preprocess, device)
    return torch.cat([(model(x).argmax(1) == labels).cpu() for x, labels, _ in chunks])


def describe_machine(device: torch.device) -> str:
    """Return the device in words: the GPU's name, or the processor and its threads in use."""
    if device.type == "cuda":
        return f"GPU {torch.cuda.get_device_name(device)}"
    about, threads = Path("/proc/cpuinfo"), torch.get_num_threads()  # of Linux
    found = re.search("^model name\\s*: (.*)", about.read_text(), re.M) if about.exists() else None
    name = found[1].strip() if found else platform.processor() or platform.machine()
    used = f"{threads} thread{'' if threads == 1 else 's'} used"
    return f"CPU {name}, {os.cpu_count()} cores, {used}"
