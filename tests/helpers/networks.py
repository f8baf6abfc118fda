"""Small networks and inputs for members of every kind, and models asked as SEA asks them."""

from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.features import Features
from sea_nn.model.opening import open_model
from sea_nn.questions.absent import choose_absence


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        *(nn.MaxPool2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(4 * 36, 3)),
    )


def images(n: int = 2, size: int = 12) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def count(model: nn.Module) -> tuple[nn.Module, list[int]]:
    """The model, and how many inputs each of its passes has; also those of copies of it."""
    sizes: list[int] = []

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            return self.model(x)

    return Counting(), sizes


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))


def build_pooled() -> nn.Module:
    """A convolution, pooled to 4 x 4, and a linear layer: one channel to three classes."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(128, 3)).eval()


def draw_bright() -> torch.Tensor:
    """Two images [2, 1, 16, 16] that ``build_pooled`` answers differently."""
    return torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(1)) * 4


def ask_only(
    model: Any,
    x: Tensor,
    target: Any,
    sets: Tensor,
    absent: str | None = None,
    output: str | None = None,
    **given: Any,
) -> Tensor:
    """What the model says with only the sets left, bool [N, R, *shape] -> [N, R]."""
    features = Features.of(x)
    hiding, _ = choose_absence(x, features, absent, **given)
    with open_model(model, x, target, features=features, hiding=hiding, output=output) as probe:
        return probe.ask(sets)
