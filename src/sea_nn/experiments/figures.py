"""The figures of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.experiments.run import Run
from sea_nn.experiments.subjects import Subjects
from sea_nn.metrics import Scores
from sea_nn.metrics.order import top_sets
from sea_nn.panels import (
    FAINT,
    INK,
    SERIES,
    SIZE,
    Plot,
    add_axes,
    add_heat_bar,
    blend,
    heat,
    measure,
    paint,
    panel_grid,
    style_axes,
)

PICTURES = ("strip", "overlay")
SMALL = ("fashion", "fashion_sample")
TOP = (1, 5, 7, 10)
N_STRIPS = 6
RANDOM = "random"
Draw = Callable[[Run, Scores], Plot]


def draw_figures(run: Run, scores: Scores, folder: Path) -> tuple[Path, ...]:
    """Draw the experiment's figures into a folder and return their files."""
    paths = []
    for kind in run.experiment.figures:
        # Photographs take a tenth of the room as JPEG.
        ending = "jpg" if kind in PICTURES and run.experiment.data not in SMALL else "png"
        path = folder / f"{run.experiment.name}_{kind}.{ending}"
        _FIGURES[kind](run, scores).write(path)
        paths.append(path)
    return tuple(paths)


def draw_dots(run: Run, scores: Scores) -> Plot:
    """Each metric's means with their intervals, a panel a metric; the band is SEA's interval."""
    names, methods, against = list(scores.metrics), list(scores.methods), run.experiment.against
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    band = max(measure(method) for method in methods) + 0.15
    room, gap = 9.0 - band - 0.15, 0.22
    width, height = min(2.6, (room - gap * (columns - 1)) / columns), 0.185 * len(methods)
    head, foot = 0.36, 0.34
    total = rows * (head + height + foot)
    figure = Plot(figsize=(band + 0.15 + columns * (width + gap), total), dpi=200)
    for place, name in enumerate(names):
        r, c = divmod(place, columns)
        bottom = total - (r + 1) * (head + height + foot) + foot
        axes = add_axes(figure, band + c * (width + gap), bottom, width, height)
        estimate, metric = scores.estimate(name), scores.metrics[name]
        if against in methods:
            own = methods.index(against)
            axes.axvspan(
                float(estimate.low[own]),
                float(estimate.high[own]),
                color=SERIES[0],
                alpha=0.12,
                lw=0,
            )
        for k, method in enumerate(methods):
            mean, low, high = (float(e[k]) for e in (estimate.mean, estimate.low, estimate.high))
            first, noise = method == against, method == RANDOM
            colour = (
                SERIES[0] if first else FAINT if noise else SERIES[1] if "SEA" in method else INK
            )
            axes.plot([low, high], [k, k], color=colour, lw=1.3, solid_capstyle="butt")
            axes.plot(mean, k, "o" if not noise else "x", color=colour, ms=3.6)
        spread = estimate.mean[estimate.mean > 0]
        if name.startswith(("seconds", "lipschitz", "sampled")) and len(spread):
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.set_yticks(range(len(methods)), methods if c == 0 else [""] * len(methods))
        axes.set_title(f"{name} {metric.arrow}", fontsize=SIZE, color=INK, loc="left", pad=4)
        axes.grid(axis="x", color="#e4e4ea", lw=0.5)
        axes.set_axisbelow(True)
        axes.locator_params(axis="x", nbins=4) if axes.get_xscale() == "linear" else None
        style_axes(axes)
        axes.tick_params(axis="y", length=0, labelsize=SIZE)
    return figure


def draw_curves(run: Run, scores: Scores) -> Plot:
    """The mean curves behind the metrics, for the methods of the paper's table 1 and random."""
    names = [name for name in scores.metrics if name in scores.curves]
    wanted = (run.experiment.against, "SEA (paper)", "VG", "IG", "SG", "Agg-Mean", RANDOM)
    shown = [method for method in wanted if method in scores.methods]
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    width, height, left, gap, head, foot = 1.78, 1.35, 0.42, 0.42, 0.3, 0.42
    if len(names) == 1:
        width, height = 5.6, 2.6
    legend = 0.3
    total = rows * (head + height + foot) + legend
    wide = max(left + columns * (width + gap), 6.4)
    figure = Plot(figsize=(wide, total), dpi=200)
    handles: list[Any] = []
    for place, name in enumerate(names):
        r, c = divmod(place, columns)
        bottom = total - (r + 1) * (head + height + foot) + foot
        axes = add_axes(figure, left + c * (width + gap), bottom, width, height)
        curve = scores.curves[name]
        mean = curve.values.double().nanmean(0)
        handles = []
        for method in shown:
            style = "--" if method == RANDOM else "-"
            colour = FAINT if method == RANDOM else SERIES[shown.index(method) % len(SERIES)]
            values = mean[scores.methods.index(method)].numpy()
            (line,) = axes.plot(
                curve.axis.numpy(),
                values,
                style,
                color=colour,
                lw=1.9 if method == run.experiment.against else 1.1,
            )
            handles.append(line)
        steps = float(curve.axis.max()) > 1.5
        about = "share of positions" if name.startswith("jaccard") else "share of pixels"
        axes.set_xlabel("step" if steps else about, labelpad=1)
        axes.set_title(f"{name} {scores.metrics[name].arrow}", fontsize=SIZE, loc="left", pad=4)
        style_axes(axes)
    figure.legend(
        handles,
        shown,
        loc="lower center",
        ncols=len(shown),
        fontsize=SIZE,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.2,
    )
    return figure


def draw_strip(run: Run, scores: Scores, over: bool = False) -> Plot:
    """Inputs of different classes with every map side by side; ``over`` lays maps on the input."""
    chosen = _choose_varied(run.subjects, N_STRIPS if not over else 4)
    images, maps, labels = _explain(run, chosen)
    titles = [one.label for one in run.experiment.maps][:8]
    height, width = images.shape[1:3]
    figure, axes = panel_grid(["input", *titles], labels, height / width, footer=0.66)
    for r, image in enumerate(images):
        axes[r, 0].imshow(image, interpolation="nearest")
        for c, title in enumerate(titles):
            position = heat(maps[title][r], 0)
            panel = blend(image, position) if over else paint(position)
            axes[r, c + 1].imshow(panel, interpolation="nearest")
    add_heat_bar(figure)
    return figure


def draw_overlay(run: Run, scores: Scores) -> Plot:
    """The strip with maps laid over grey copies of the inputs."""
    return draw_strip(run, scores, over=True)


def draw_class_maps(run: Run, scores: Scores) -> Plot:
    """A row a class: SEA's map, the mean's map, and SEA's laid over three test inputs."""
    sea = next(one.label for one in run.experiment.maps if one.how == "class_sea")
    mean = next((one.label for one in run.experiment.maps if one.how == "class_mean"), sea)
    learned = run.class_maps
    classes = list(learned[sea])
    examples = 3
    titles = ["SEA", "Agg-Mean", *(f"test input {k + 1}" for k in range(examples))]
    labels = [run.subjects.loaded.label(k) for k in classes]
    figure, axes = panel_grid(titles, labels, footer=0.66, widest=1.5)
    for r, number in enumerate(classes):
        position = heat(learned[sea][number], 0)
        axes[r, 0].imshow(paint(position), interpolation="nearest")
        axes[r, 1].imshow(paint(heat(learned[mean][number], 0)), interpolation="nearest")
        own = [i for i, target in enumerate(run.subjects.targets) if target == number][:examples]
        for c in range(examples):
            if c < len(own):
                image = run.subjects.read([own[c]]).images[0].numpy()
                axes[r, c + 2].imshow(blend(image, position), interpolation="nearest")
    add_heat_bar(figure)
    return figure


def draw_top_k(run: Run, scores: Scores) -> Plot:
    """The top 1, 5, 7 and 10 pixels of each map, for one input of each class, side by side."""
    chosen = _choose_varied(run.subjects, len(run.experiment.classes) or 2)
    images, maps, labels = _explain(run, chosen)
    methods = [one.label for one in run.experiment.maps]
    titles = [f"{label}, top {k}" for label in labels for k in TOP]
    figure, axes = panel_grid(titles, methods, widest=1.1)
    for r, method in enumerate(methods):
        for i, image in enumerate(images):
            grey = np.repeat(image.mean(-1, keepdims=True), 3, -1) / 255
            for c, k in enumerate(TOP):
                flat = maps[method][i].flatten()[None, None]
                mask = top_sets(flat, k, run.seed, int(chosen[i]))[0, 0]
                lit = mask.view(image.shape[:2]).cpu().numpy()[..., None]
                panel = np.where(lit, np.array([1.0, 0.69, 0.0]), 0.45 * grey)
                axes[r, i * len(TOP) + c].imshow(panel, interpolation="nearest")
    return figure


def draw_cells(run: Run, scores: Scores) -> Plot:
    """The leading metric for every pair of weights, ours and the paper's, as two squares."""
    name = run.experiment.metrics[0]
    mean, paper = scores.mean(name), run.experiment.paper.get(name, {})
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


def _choose_varied(subjects: Subjects, count: int) -> list[int]:
    """The first input of each class, then the next ones, up to ``count``."""
    seen: dict[int, int] = {}
    ranked = []
    for number, target in enumerate(subjects.targets):
        seen[target] = seen.get(target, 0) + 1
        ranked.append((seen[target], number))
    return [number for _, number in sorted(ranked)[:count]]


def _explain(
    run: Run, chosen: list[int]
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], dict[str, Tensor], list[str]]:
    """Pictures [N, H, W, 3], maps by label [N, H, W], and class names of some inputs."""
    batches = [run.subjects.read([number]) for number in chosen]
    x, target = (torch.cat([b.x for b in batches]), torch.cat([b.target for b in batches]))
    whose = torch.tensor([run.subjects.asked[number] for number in chosen])
    maps: dict[str, Tensor] = {}
    for model, subjects in enumerate(run.subjects.split()):
        rows = (whose == model).nonzero().flatten().to(x.device)
        found = replace(run, subjects=subjects).explain(x[rows], target[rows]) if len(rows) else {}
        for label, some in found.items():
            maps.setdefault(label, some.new_empty(len(x), *some.shape[1:]))[rows] = some
    images = torch.cat([batch.images for batch in batches]).numpy()
    return images, maps, [run.subjects.name_class(number) for number in chosen]


def draw_cost(run: Run, scores: Scores) -> Plot:
    """Each metric's means against the model evaluations that a map costs, ensembles joined."""
    names = list(scores.metrics)
    columns = 2
    rows = -(-len(names) // columns)
    width, height, left, gap, head, foot = 3.7, 2.1, 0.5, 0.62, 0.32, 0.46
    total = rows * (head + height + foot)
    figure = Plot(figsize=(left + columns * (width + gap) - 0.3, total), dpi=200)
    shape = (3, 224, 224)
    costs = {one.label: run.experiment.count_evaluations(one, shape) for one in run.experiment.maps}
    kinds = (("SEA", SERIES[0], 6), ("Agg-Mean", SERIES[1], -10))
    for place, name in enumerate(names):
        r, c = divmod(place, columns)
        bottom = total - (r + 1) * (head + height + foot) + foot
        axes = add_axes(figure, left + c * (width + gap), bottom, width, height)
        estimate = scores.estimate(name)
        means = {label: float(estimate.mean[scores.methods.index(label)]) for label in costs}
        for label, cost in costs.items():
            k = scores.methods.index(label)
            colour, shift = next(
                ((colour, shift) for kind, colour, shift in kinds if label.startswith(kind)),
                (FAINT, -2),
            )
            low, high = float(estimate.low[k]), float(estimate.high[k])
            axes.plot([cost, cost], [low, high], color=colour, lw=0.7, alpha=0.4)
            axes.plot(cost, means[label], "o", color=colour, ms=3.6)
            said = label.partition(", ")[2] or label
            right = label == max(costs, key=lambda name: costs[name])
            axes.annotate(
                said,
                (cost, means[label]),
                (-4 if right else 4, shift),
                textcoords="offset points",
                fontsize=SIZE - 1.5,
                color=colour if colour != FAINT else INK,
                ha="right" if right else "left",
            )
        for kind, colour, _ in kinds:
            line = sorted((costs[k], means[k]) for k in costs if k.startswith(f"{kind}, "))
            x, y = zip(*line, strict=True)
            axes.plot(x, y, "-", color=colour, lw=1.2, zorder=1, label=kind)
        if not place:
            axes.legend(loc="lower left", frameon=False, fontsize=SIZE - 1)
        axes.set_xscale("log")
        axes.set_xlabel("model evaluations an input", labelpad=1)
        axes.set_title(f"{name} {scores.metrics[name].arrow}", fontsize=SIZE, loc="left", pad=4)
        style_axes(axes)
    return figure


_FIGURES: dict[str, Draw] = {
    "cost": draw_cost,
    "dots": draw_dots,
    "curves": draw_curves,
    "strip": draw_strip,
    "overlay": draw_overlay,
    "class_maps": draw_class_maps,
    "top_k": draw_top_k,
    "cells": draw_cells,
}
