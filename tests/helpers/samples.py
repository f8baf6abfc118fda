"""Small real explanations of seeded networks, and real data sets where they are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor, nn

from sea_nn import SEA, About, SEAConfig
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Provenance
from sea_nn.members.run import Check

PROVENANCE = Provenance(
    config={"solver": "mirror", "grid": (8, 8)},
    versions={"torch": torch.__version__},
    seed=7,
    seconds={"saliency": 0.01, "integrated_gradients": 0.2},
    evaluations={"saliency": 1, "integrated_gradients": 20},
    model="a small network",
    device="cpu",
    created="2026-01-02T03:04:05+00:00",
)
EVIL = '</script><script>alert("x")</script><img src=x onerror=alert(1)> & <!-- "\''
CHECKS = (
    Check("ok", "model", "is in evaluation mode"),
    Check("warn", "occlusion", "windows are <big>", "Take smaller windows."),
)


def build(seed: int, *layers: nn.Module) -> nn.Module:
    """A network with seeded weights; the global generator is left alone."""
    model = nn.Sequential(*layers).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.4)
    return model


def build_pictures() -> nn.Module:
    """A small convolutional network of four classes."""
    first, last = nn.Conv2d(3, 6, 5, padding=2), nn.Linear(96, 4)
    return build(1, first, nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), last)


def draw_images(count: int, height: int, width: int) -> Tensor:
    """Coloured blobs on a slope, uint8 [count, height, width, 3]."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    pictures = []
    for k in range(count):
        centre = (0.3 + 0.4 * (k % 2), 0.35 + 0.1 * k)
        blob = torch.exp(-(((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / 0.02))
        pictures.append(torch.stack([blob, 0.3 + 0.5 * x, 0.6 * y], -1))
    return (torch.stack(pictures) * 255).round().to(torch.uint8)


@cache
def explain_images(
    count: int = 3, height: int = 32, width: int = 32, grid: tuple[int, int] | None = (8, 8)
) -> Explanation:
    """Images seen by a small convolutional network; features are cells of the grid, or pixels."""
    images = draw_images(count, height, width)
    model = build_pictures()
    options = {"occlusion": {"window": 8, "stride": 4}, "integrated_gradients": {"n_steps": 8}}
    methods = ("saliency", "integrated_gradients", "occlusion")
    sea = SEA(model, [(name, options.get(name, {})) for name in methods], SEAConfig(grid=grid))
    found = sea.explain(images.permute(0, 3, 1, 2) / 255, about=About(images=images))
    labels = tuple(f"kind <{k}>" for k in range(count))
    return replace(found, labels=labels, checks=CHECKS, provenance=PROVENANCE)


def _explain_plain(values: Tensor, model: nn.Module, names: tuple[str, ...]) -> Explanation:
    """A table or series: every number is a feature."""
    options = {"integrated_gradients": {"n_steps": 8}}
    methods = ("saliency", "input_x_gradient", "integrated_gradients")
    sea = SEA(model, [(name, options.get(name, {})) for name in methods])
    found = sea.explain(values, about=About(feature_names=names))
    return replace(found, labels=None, checks=(), provenance=PROVENANCE)


@cache
def explain_table(count: int = 2, columns: int = 12) -> Explanation:
    """Rows of a table seen by a small dense network."""
    values = torch.randn(count, columns, generator=torch.Generator().manual_seed(3))
    model = build(2, nn.Linear(columns, 16), nn.Tanh(), nn.Linear(16, 3))
    return _explain_plain(values, model, tuple(f"column {k} in $" for k in range(columns)))


@cache
def explain_series(count: int = 2, channels: int = 2, steps: int = 40) -> Explanation:
    """Series of several channels seen by a small network."""
    noise = torch.randn(count, channels, steps, generator=torch.Generator().manual_seed(4))
    model = build(5, nn.Flatten(), nn.Linear(channels * steps, 16), nn.Tanh(), nn.Linear(16, 3))
    return _explain_plain(noise.cumsum(-1), model, tuple(f"sensor {c}" for c in range(channels)))


@cache
def explain_in_budget(count: int = 2) -> Explanation:
    """Images explained with a budget: a learned function, its curve, gains in log-odds."""
    images = draw_images(count, 32, 32)
    model = build_pictures()
    names = ("a cat", "a dog", "<b>a bird</b>", "a fish")
    sea = SEA(model, ("saliency", "input_x_gradient"), budget=128)
    return sea.explain(images.permute(0, 3, 1, 2) / 255, about=About(images=images), labels=names)


@cache
def explain_volume(count: int = 1) -> Explanation:
    """Volumes explained with a budget."""
    conv = nn.Conv3d(1, 4, 3, padding=1)
    model = build(6, conv, nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(32, 3))
    x = torch.rand(count, 1, 12, 10, 8, generator=torch.Generator().manual_seed(0)) * 3
    return SEA(model, ("saliency",), budget=40).explain(x, target=1)


def explain_line(*weights: float) -> Explanation:
    """A row of ones seen by a linear model with these weights for the class."""
    model = nn.Linear(len(weights), 2)
    model.weight.data = torch.tensor([weights, [0.0] * len(weights)])
    nn.init.zeros_(model.bias)
    return SEA(model, budget=2 * len(weights) + 6).explain(torch.ones(1, len(weights)), 0)
