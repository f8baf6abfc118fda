"""The metrics as plain loops, one input, map and step at a time: what the fast ones must equal.

Nothing here is imported from sea_nn. Orders are given as lists of positions, so that ties, which
the package breaks at random, are settled by the caller.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor


def score(model, image: Tensor, target: int, kind: str = "probability") -> float:
    """The class's probability or logit for one image, asked alone."""
    with torch.no_grad():
        logits = model(image[None].clone())[0]
    return float(logits.softmax(0)[target] if kind == "probability" else logits[target])


def hide(image: Tensor, fill, hidden) -> Tensor:
    """A copy of the image [C, H, W] with the flat positions in ``hidden`` taken from ``fill``.

    Where what is filled in depends on what is hidden, ``fill`` is a function of the positions.
    """
    if callable(fill):
        return fill(hidden)
    result = image.clone()
    width = image.shape[-1]
    for place in hidden:
        result[:, place // width, place % width] = fill[:, place // width, place % width]
    return result


def order_of(heatmap: Tensor) -> list[int]:
    """Positions by falling value; the map must not have ties."""
    values = heatmap.flatten().tolist()
    if len(set(values)) != len(values):
        raise AssertionError("the reference needs a map without ties")
    return sorted(range(len(values)), key=lambda place: -values[place])


def curve(model, image, target, fill, order, steps, insert=False, kind="probability"):
    """The class score after 0, 1, ..., steps steps along an order of positions."""
    n, points = len(order), []
    for step in range(steps + 1):
        first = order[: step * n // steps]
        hidden = set(range(n)) - set(first) if insert else set(first)
        points.append(score(model, hide(image, fill, hidden), target, kind))
    return points


def windows(heatmap: Tensor, size: int, count: int, edge: bool) -> list[tuple[int, int]]:
    """Upper left corners of the greedy windows, as many as fit."""
    height, width = heatmap.shape
    short = 0 if edge else 1
    corners = [
        (float(heatmap[r : r + size, c : c + size].double().mean()), r, c)
        for r in range(height - size + 1 - short)
        for c in range(width - size + 1 - short)
    ]
    taken: list[tuple[int, int]] = []
    for _, r, c in sorted(corners, reverse=True):
        if len(taken) < count and all(abs(r - a) >= size or abs(c - b) >= size for a, b in taken):
            taken.append((r, c))
    return taken


def window_curve(model, image, target, fill, heatmap, size, count, edge, kind):
    """The score of the intact image and after each window that fits."""
    width = image.shape[-1]
    points, hidden = [score(model, image, target, kind)], set()
    for r, c in windows(heatmap, size, count, edge):
        hidden |= {i * width + j for i in range(r, r + size) for j in range(c, c + size)}
        points.append(score(model, hide(image, fill, hidden), target, kind))
    return points


def trapezoid(points, dx=1.0):
    return dx * sum((a + b) / 2 for a, b in pairwise(points))


def simpson(points):
    """Composite Simpson; an even number of points is averaged over both ways to leave one out."""

    def odd(y):
        return sum((y[i] + 4 * y[i + 1] + y[i + 2]) / 3 for i in range(0, len(y) - 2, 2))

    if len(points) % 2:
        return odd(points)
    at_end = odd(points[:-1]) + (points[-2] + points[-1]) / 2
    at_start = odd(points[1:]) + (points[0] + points[1]) / 2
    return (at_end + at_start) / 2


def blur(image: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of [H, W], cut off and renormalised at the borders."""
    height, width = image.shape
    result = torch.zeros_like(image, dtype=torch.float64)
    for r in range(height):
        for c in range(width):
            total = weight = 0.0
            for i in range(height):
                for j in range(width):
                    w = math.exp(-((r - i) ** 2 + (c - j) ** 2) / (2 * sigma**2))
                    total, weight = total + w * float(image[i, j]), weight + w
            result[r, c] = total / weight
    return result


def inpaint(image: Tensor, hidden: Tensor) -> Tensor:
    """Solve the neighbours' system of one channel [H, W] densely, in float64."""
    height, width = image.shape
    n = height * width
    a = torch.eye(n, dtype=torch.float64)
    b = image.flatten().to(torch.float64).clone()
    for r in range(height):
        for c in range(width):
            if not hidden[r, c]:
                continue
            weights = {}
            for i in (-1, 0, 1):
                for j in (-1, 0, 1):
                    if (i or j) and 0 <= r + i < height and 0 <= c + j < width:
                        weights[(r + i) * width + c + j] = 1 / 6 if not (i and j) else 1 / 12
            row = r * width + c
            b[row] = 0
            for place, weight in weights.items():
                a[row, place] -= weight / sum(weights.values())
    return torch.linalg.solve(a, b).view(height, width)


def gini(values) -> float:
    """Mean absolute difference of all pairs, over twice the mean."""
    n = len(values)
    total = sum(abs(a - b) for a in values for b in values)
    return total / (2 * n * sum(values))


def jaccard(a: set, b: set) -> float:
    return len(a & b) / len(a | b)


def mass(values, inside: set) -> float:
    """The share of the values' sum at the positions ``inside``."""
    return sum(values[place] for place in inside) / sum(values)
