"""A model, inputs and maps to score."""

import pytest
import torch
from torch import nn

from tests.helpers.samples import build


def small_model(seed=0, channels=3, side=12, classes=4):
    return build(
        seed, nn.Conv2d(channels, 5, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(80, classes),
    )  # fmt: skip


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def case():
    """A model, two colour images, their classes and two methods' maps without ties."""
    model, x = small_model(), draw(2, 3, 12, 12)
    maps = {"a": draw(2, 12, 12, seed=1), "b": draw(2, 12, 12, seed=2)}
    return model, x, model(x).argmax(1), maps


class Plain(nn.Module):
    """A model with one weight a position: logits (w.x, 0)."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.as_tensor(weight))

    def forward(self, x):
        score = (x.flatten(1) * self.weight).sum(1)
        return torch.stack([score, torch.zeros_like(score)], 1)
