"""``sea bench patches``: should a transformer be asked about its own patches?"""

from __future__ import annotations

import torch

from sea_bench.data.fashion import load_fashion
from sea_bench.experiments.studies import Findings, Study, Tell, interval, table
from sea_bench.vit import load_vit
from sea_nn.config import SEAConfig
from sea_nn.metrics import bootstrap_difference, score_maps
from sea_nn.sea import SEA

BUDGETS = (512, 1024)  # fewer questions are about halves of regions of pixels
GRIDS = {"8 x 8 cells": (8, 8), "7 x 7 patches": (7, 7)}
FILLS = ("blur", "mean", "noise")
METRICS = tuple(f"{name}:{fill}" for name in ("deletion", "insertion") for fill in FILLS)


def study_patches(limit: int, seed: int, tell: Tell) -> Findings:
    """Explain images with both grids, and score the maps."""
    images, labels = load_fashion("test")
    loaded = load_vit()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    order = order[: 2 * limit]
    x = torch.from_numpy(images)[order, None].float() / 255
    with torch.no_grad():
        right = loaded.model(x).argmax(1) == torch.from_numpy(labels)[order]
    x, target = x[right][:limit], torch.from_numpy(labels)[order][right][:limit]
    maps = {}
    for number, budget in enumerate(BUDGETS):
        tell(f"budget {budget}", number, len(BUDGETS))
        for name, grid in GRIDS.items():
            sea = SEA(loaded.model, budget=budget, config=SEAConfig(grid=grid), seed=seed)
            found = sea.explain(x, target, quiet=True).attribution[:, 0]
            maps[f"SEA {budget}, {name}"] = found
    scores = score_maps(loaded.model, x, target, maps, METRICS, bounds=(0.0, 1.0), seed=seed)
    lines = []
    for fill in FILLS:
        rows = []
        for k, name in enumerate(scores.methods):
            row = [name]
            for metric in (f"deletion:{fill}", f"insertion:{fill}"):
                values = scores.values[metric]
                lower = metric.startswith("deletion")
                row += [interval(values[:, k]), _compare(values, k, lower)]
            rows.append(row)
        head = [f"deletion:{fill} ↓", "less 8 x 8", f"insertion:{fill} ↑", "less 8 x 8"]
        lines += [*table(["map by", *head], rows), ""]
    notes = [
        "model: the bench's ViT, 4 x 4 pixels a patch; images that it gets right",
        "`less 8 x 8`: the paired difference from the row above with its 95 % interval; ▲ better, "
        "▼ worse where it lies on one side of 0",
    ]
    return Findings((), notes, ["## Both grids", "", *lines])


def _compare(values: torch.Tensor, k: int, lower: bool) -> str:
    """The difference of patches from cells of the same budget, which stand one row above."""
    if k % 2 == 0 or k == values.shape[1] - 1:
        return "–"
    found = bootstrap_difference(values[:, [k - 1, k]], 0)
    low, high = float(found.low[1]), float(found.high[1])
    text = f"{float(found.mean[1]):+.3f} [{low:+.3f}, {high:+.3f}]"
    return text if low <= 0 <= high else f"{text} {'▲' if (low > 0) != lower else '▼'}"


PATCHES = Study(
    "patches",
    "Questions per patch of a vision transformer",
    "A transformer reads patches. Are its maps better if the questions hide whole patches, and not "
    "cells that cut across them?",
    "fashion",
    64,
    study_patches,
)
