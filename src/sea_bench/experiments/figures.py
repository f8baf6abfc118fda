"""The figures of a result."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Inputs
from sea_nn.metrics import Scores
from sea_nn.metrics.order import top_sets
from sea_nn.metrics.sensitivity import RANDOM
from sea_nn.show.panels import (
    FAINT,
    INK,
    SERIES,
    SIZE,
    Plot,
    add_axes,
    add_heat_bar,
    blend,
    heat,
    paint,
    panel_grid,
    style_axes,
)

TOP = (1, 5, 7, 10)
Draw = Callable[[Explainer, Scores], Plot]


def draw_figures(explainer: Explainer, scores: Scores, folder: Path) -> tuple[Path, ...]:
    """Draw the experiment's figures into a folder and return their files."""
    paths = []
    for kind in explainer.experiment.figures:
        path = folder / f"{explainer.experiment.name}_{kind}.png"
        _FIGURES[kind](explainer, scores).write(path)
        paths.append(path)
    return tuple(paths)


def _lay_out(
    count: int,
    columns: int,
    width: float,
    height: float,
    left: float,
    gap: float,
    head: float,
    foot: float,
    spare: float,
    legend: float = 0.0,
) -> tuple[Plot, list[Axes]]:
    """A figure of panels in columns; lengths in inches, ``head`` and ``foot`` of each panel."""
    tall = head + height + foot
    total = -(-count // columns) * tall + legend
    figure = Plot(figsize=(left + columns * (width + gap) + spare, total), dpi=200)
    places = (divmod(place, columns) for place in range(count))
    return figure, [
        add_axes(figure, left + c * (width + gap), total - (r + 1) * tall + foot, width, height)
        for r, c in places
    ]


def draw_curves(explainer: Explainer, scores: Scores) -> Plot:
    """The mean curves behind the metrics: SEA, the methods of the paper's table 1 and random."""
    names = [name for name in scores.metrics if name in scores.curves]
    own = (explainer.experiment.against, "SEA (paper)")
    wanted = dict.fromkeys((*own, "VG", "IG", "SG", "Agg-Mean", RANDOM))
    shown = [method for method in wanted if method in scores.methods]
    width, height = (5.6, 2.6) if len(names) == 1 else (1.78, 1.35)
    columns, left, gap = min(4, len(names)), 0.42, 0.42
    spare = max(0.0, 6.4 - left - columns * (width + gap))
    figure, panels = _lay_out(
        len(names), columns, width, height, left, gap, 0.3, 0.42, spare, legend=0.3
    )
    handles: list[Any] = []
    for name, axes in zip(names, panels, strict=True):
        curve = scores.curves[name]
        mean = curve.values.double().nanmean(0)
        handles = []
        for method in shown:
            style = "--" if method == RANDOM else "-"
            colour = FAINT if method == RANDOM else SERIES[shown.index(method) % len(SERIES)]
            values = mean[scores.methods.index(method)].numpy()
            wide = 1.9 if method == explainer.experiment.against else 1.1
            handles += axes.plot(curve.axis.numpy(), values, style, color=colour, lw=wide)
        steps = float(curve.axis.max()) > 1.5
        about = "share of positions" if name.startswith("jaccard") else "share of pixels"
        axes.set_xlabel("step" if steps else about, labelpad=1)
        axes.set_title(f"{name} {scores.metrics[name].arrow}", fontsize=SIZE, loc="left", pad=4)
        style_axes(axes)
    look: dict[str, Any] = {"fontsize": SIZE, "frameon": False, "handlelength": 1.4}
    figure.legend(handles, shown, loc="lower center", ncols=len(shown), columnspacing=1.2, **look)
    return figure


def draw_class_maps(explainer: Explainer, scores: Scores) -> Plot:
    """A row a class: SEA's map, the mean's map, and SEA's laid over three test inputs."""
    sea = next(one.label for one in explainer.experiment.maps if one.how == "class_sea")
    mean = next((one.label for one in explainer.experiment.maps if one.how == "class_mean"), sea)
    learned = explainer.class_maps
    classes = list(learned[sea])
    examples = 3
    titles = ["SEA", "Agg-Mean", *(f"test input {k + 1}" for k in range(examples))]
    labels = [explainer.inputs.loaded.label(k) for k in classes]
    figure, axes = panel_grid(titles, labels, footer=0.66, widest=1.5)
    for r, number in enumerate(classes):
        position = heat(learned[sea][number], 0)
        axes[r, 0].imshow(paint(position), interpolation="nearest")
        axes[r, 1].imshow(paint(heat(learned[mean][number], 0)), interpolation="nearest")
        own = (i for i, target in enumerate(explainer.inputs.targets) if target == number)
        for c, i in zip(range(examples), own, strict=False):
            image = explainer.inputs.read([i]).images[0].numpy()
            axes[r, c + 2].imshow(blend(image, position), interpolation="nearest")
    add_heat_bar(figure)
    return figure


def draw_top_k(explainer: Explainer, scores: Scores) -> Plot:
    """The top 1, 5, 7 and 10 pixels of each map, for one input of each class, side by side."""
    chosen = _choose_varied(explainer.inputs, len(explainer.experiment.classes) or 2)
    images, maps, labels = _explain(explainer, chosen)
    methods = [one.label for one in explainer.experiment.maps]
    titles = [f"{label}, top {k}" for label in labels for k in TOP]
    figure, axes = panel_grid(titles, methods, widest=1.1)
    for r, method in enumerate(methods):
        for i, image in enumerate(images):
            grey = np.repeat(image.mean(-1, keepdims=True), 3, -1) / 255
            for c, k in enumerate(TOP):
                flat = maps[method][i].flatten()[None, None]
                mask = top_sets(flat, k, explainer.seed, int(chosen[i]))[0, 0]
                lit = mask.view(image.shape[:2]).cpu().numpy()[..., None]
                panel = np.where(lit, np.array([1.0, 0.69, 0.0]), 0.45 * grey)
                axes[r, i * len(TOP) + c].imshow(panel, interpolation="nearest")
    return figure


def draw_cells(explainer: Explainer, scores: Scores) -> Plot:
    """The leading metric for every pair of weights, ours and the paper's, as two squares."""
    name = explainer.experiment.metrics[0]
    mean, paper = scores.mean(name), explainer.experiment.paper.get(name, {})
    cells = [method for method in scores.methods if method.startswith("λ1")]
    side = round(len(cells) ** 0.5)
    pairs = [dict(part.split("=") for part in cell.split(", ")) for cell in cells]
    ticks = list(dict.fromkeys(pair["λ1"] for pair in pairs))
    figure = Plot(figsize=(6.2, 3.0), dpi=200)
    tables = (
        (f"here: {name}", [mean[cell] for cell in cells]),
        ("the paper", [paper.get(cell, float("nan")) for cell in cells]),
    )
    for place, (title, values) in enumerate(tables):
        axes = add_axes(figure, 0.6 + place * 2.9, 0.55, 2.1, 2.1)
        table = np.array(values).reshape(side, side)
        axes.imshow(table, cmap="Blues_r")
        low, high = np.nanmin(table), np.nanmax(table)
        for (r, c), value in np.ndenumerate(table):
            dark = value < low + 0.45 * (high - low)
            colour = "white" if dark else INK
            axes.text(c, r, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=SIZE)
        axes.set_xticks(range(side), ticks)
        axes.set_yticks(range(side), ticks)
        axes.set_xlabel("λ2 (binarised heatmaps)")
        axes.set_ylabel("λ1 (heatmaps)")
        axes.set_title(title, fontsize=SIZE, loc="left")
        style_axes(axes)
    return figure


def _choose_varied(inputs: Inputs, count: int) -> list[int]:
    """The first input of each class, then the next ones, up to ``count``."""
    seen: dict[int, int] = {}
    ranked = []
    for number, target in enumerate(inputs.targets):
        seen[target] = seen.get(target, 0) + 1
        ranked.append((seen[target], number))
    return [number for _, number in sorted(ranked)[:count]]


def _explain(
    explainer: Explainer, chosen: list[int]
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], dict[str, Tensor], list[str]]:
    """Pictures [N, H, W, 3], maps by label [N, H, W], and class names of some inputs."""
    batches = [explainer.inputs.read([number]) for number in chosen]
    x, target = (torch.cat([b.x for b in batches]), torch.cat([b.target for b in batches]))
    whose = torch.tensor([explainer.inputs.asked[number] for number in chosen])
    maps: dict[str, Tensor] = {}
    for model, inputs in enumerate(explainer.inputs.split()):
        rows = (whose == model).nonzero().flatten().to(x.device)
        found = (
            replace(explainer, inputs=inputs).explain(x[rows], target[rows]) if len(rows) else {}
        )
        for label, some in found.items():
            maps.setdefault(label, some.new_empty(len(x), *some.shape[1:]))[rows] = some
    images = torch.cat([batch.images for batch in batches]).numpy()
    return images, maps, [explainer.inputs.name_class(number) for number in chosen]


_FIGURES: dict[str, Draw] = {
    "curves": draw_curves,
    "class_maps": draw_class_maps,
    "top_k": draw_top_k,
    "cells": draw_cells,
}
