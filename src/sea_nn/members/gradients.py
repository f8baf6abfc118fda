"""Members made of input gradients: at the input, along a path, or around it.

All of them are weighted sums of gradients at chosen points, so they share one packed loop,
`Evaluator.parts`, and equal Captum's classes called with the same options and draws. Draws are
each input's own (`sea_nn.model.noise`): what noise leaves in the maps averages out over inputs.
"""

import math
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.features import Features, number_cells
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.noise import draw_normal, draw_uniform

COPIES = 1 << 30
"""Bytes that noisy copies of inputs, and maps of theirs, may take at once."""


def saliency(evaluator: Evaluator) -> Tensor:
    """Return the signed gradient of the class score (VG in the paper)."""
    return evaluator.input_gradients()


def input_x_gradient(evaluator: Evaluator) -> Tensor:
    """Return input times gradient; the gradient is the one `saliency` computed, if it ran."""
    return evaluator.x * evaluator.input_gradients()


def integrated_gradients(evaluator: Evaluator, n_steps: int = 50) -> Tensor:
    """Return the path integral of the gradient from the baseline, by Gauss-Legendre quadrature."""
    return _follow(evaluator, *_quadrature(evaluator, n_steps))


def _follow(evaluator: Evaluator, steps: Tensor, weights: Tensor) -> Tensor:
    """Return the integral along the line from each baseline to its input, by these nodes."""
    base, total = evaluator.baseline(), torch.zeros_like(evaluator.x)
    path = evaluator.x - base
    for part in evaluator.parts(len(steps)):
        far = _column(steps[part.steps], base)
        points = torch.addcmul(base[part.rows], far, path[part.rows])
        part.add(total, evaluator.gradient(points, part.rows), weights)
    return total * path


def smooth_ig(
    evaluator: Evaluator,
    n_samples: int = 5,
    noise: float = 0.15,
    stdev: float | None = None,
    n_steps: int = 50,
    per_point: bool = False,
) -> Tensor:
    """Return the mean of integrated gradients over noisy copies of the input (SG in the paper).

    The mean over noise and the integral over the path can change places, so each point of a path
    may as well have noise of its own: the map converges to the same one at the same price, and
    with `n_steps` times as many draws behind it, other draws change it far less.

    Args:
        evaluator: the inputs and the model.
        n_samples: paths an input.
        noise: standard deviation of the noise as a share of the input's own range, max - min.
        stdev: standard deviation in the input's units; replaces `noise`.
        n_steps: points on each path.
        per_point: draw for every point of a path; else once for a path, as NoiseTunnel does.
    """
    if not per_point:
        return _average_paths(evaluator, _Noisy(evaluator, n_samples, noise, stdev), n_steps)
    steps, weights = _quadrature(evaluator, n_steps)
    base, around = evaluator.baseline(), _Noisy(evaluator, n_samples * n_steps, noise, stdev)
    total = torch.zeros_like(evaluator.x)
    for part in evaluator.parts(n_samples * n_steps):
        path = around.take(part.rows, part.steps) - base[part.rows]
        points = base[part.rows] + _column(steps[part.steps % n_steps], base) * path
        grads = evaluator.gradient(points, part.rows)
        part.add(total, grads * _column(weights[part.steps % n_steps], base) * path)
    return total / n_samples


def _average_paths(evaluator: Evaluator, copies: "_Noisy", n_steps: int) -> Tensor:
    """Return the mean of integrated gradients over noisy copies of every input."""
    nodes, count = _quadrature(evaluator, n_steps), copies.n_samples
    total = torch.empty_like(evaluator.x)
    # Of each input: copies, paths, sums and maps.
    size = max(1, COPIES // (4 * count * evaluator.x[0].nbytes))
    for rows in torch.arange(len(total), device=total.device).split(size):
        each = rows.repeat_interleave(count)
        numbers = torch.arange(count, device=total.device).repeat(len(rows))
        maps = _follow(evaluator.select(each, copies.take(each, numbers)), *nodes)
        total[rows] = maps.unflatten(0, (len(rows), count)).mean(1)
    return total


def smoothgrad(
    evaluator: Evaluator, n_samples: int = 50, noise: float = 0.15, stdev: float | None = None
) -> Tensor:
    """Return the mean signed gradient over noisy copies; the options are those of `smooth_ig`."""
    around, total = _Noisy(evaluator, n_samples, noise, stdev), torch.zeros_like(evaluator.x)
    for part in evaluator.parts(n_samples):
        points = around.take(part.rows, part.steps)
        part.add(total, evaluator.gradient(points, part.rows))
    return total / n_samples


def gradient_shap(
    evaluator: Evaluator,
    n_samples: int = 200,
    noise: float = 0.0,
    stdev: float | None = None,
    baselines: Tensor | None = None,
) -> Tensor:
    """Return expected gradients: random baselines, random points on the way to the input.

    `baselines` [B, ...] is a pool that all inputs draw from. Left out, each input has the one that
    the call gives it.
    """
    pool = None if baselines is None else _check_pool(evaluator, baselines)
    base = evaluator.baseline() if pool is None else pool
    around = _Noisy(evaluator, n_samples, noise, stdev)
    picks, place = draw_baselines(evaluator.keys(), len(base), n_samples)
    total = torch.zeros_like(evaluator.x)
    for part in evaluator.parts(n_samples):
        start = base[part.rows if pool is None else picks[part.rows, part.steps]]
        path = around.take(part.rows, part.steps) - start
        far = _column(place[part.rows, part.steps].to(evaluator.x), base)
        part.add(total, evaluator.gradient(start + far * path, part.rows) * path)
    return total / n_samples


def draw_baselines(keys: Tensor, count: int, n_samples: int) -> tuple[Tensor, Tensor]:
    """Return which of `count` baselines, and how far on the way from it, both [N, n_samples]."""
    picks = (draw_uniform(keys, -1, n_samples) * count).long().clamp(max=count - 1)
    return picks, draw_uniform(keys, -2, n_samples)


def _quadrature(evaluator: Evaluator, n_steps: int) -> tuple[Tensor, Tensor]:
    return _place_nodes(n_steps, evaluator.x.dtype, evaluator.x.device)


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _place_nodes(n_steps: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [0, 1], [n_steps] each."""
    # Once for all calls: a copy from the host waits until the GPU has done what was sent before.
    nodes, weights = np.polynomial.legendre.leggauss(n_steps)
    steps, shares = torch.as_tensor((1 + nodes) / 2), torch.as_tensor(weights / 2)
    return steps.to(device, dtype), shares.to(device, dtype)


class _Noisy:
    """Noisy copies of the inputs: for each input `n_samples` of its own, made where needed."""

    def __init__(
        self, evaluator: Evaluator, n_samples: int, noise: float, stdev: float | None
    ) -> None:
        self.x, self.n_samples = evaluator.x, n_samples
        self.keys, self.scale = evaluator.keys(), _noise_scale(evaluator, noise, stdev)
        self.still = not noise if stdev is None else not stdev

    def take(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return noisy copies of the inputs `rows` [P], by the numbers `steps` [P] of the draws."""
        inputs = self.x[rows]
        if self.still:
            return inputs
        draws = draw_normal(self.keys[rows], steps, tuple(self.x.shape[1:]))
        return inputs + self.scale[rows] * draws.to(self.x)


def _noise_scale(evaluator: Evaluator, noise: float, stdev: float | None) -> Tensor:
    """Return the standard deviation for every input, [N, 1, ...]."""
    flat = evaluator.x.flatten(1)
    scale = noise * (flat.amax(1) - flat.amin(1))
    if stdev is not None:
        scale = torch.full_like(scale, stdev)
    return _column(scale, evaluator.x)


def _check_pool(evaluator: Evaluator, baselines: Any) -> Tensor:
    shape = evaluator.x.shape[1:]
    base = torch.as_tensor(baselines).detach().to(evaluator.x)
    if base.ndim < evaluator.x.ndim:
        base = base.expand(1, *shape)
    if base.shape[1:] != shape or len(base) == 0:
        raise InputError(
            f"gradient_shap draws baselines from a tensor [B, {', '.join(map(str, shape))}]; "
            f"got {list(base.shape)}"
        )
    return base


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Return values [P] as [P, 1, ...] to multiply points [P, ...]."""
    return values.view(-1, *(1,) * (like.ndim - 1))


def presence_gradient(evaluator: Evaluator, passes: int = 16, cells: int = 8) -> Tensor:
    """Return the mean gradient of the probability by presence, at ``passes`` half-hidden inputs.

    Args:
        evaluator: the inputs and the model.
        passes: blends, in pairs of shares m and 1 - m; the same ones for all inputs.
        cells: along each axis with neighbours, that are present in one share each; what has none,
            the columns of a table, is a cell of its own, and so is a group of a feature mask.
    """
    x = evaluator.x
    absent = evaluator.baseline()[:, None] if evaluator.absent is None else evaluator.absent()
    number = number_positions(evaluator, cells).to(x.device)
    count = int(number.max()) + 1
    half = torch.rand(math.ceil(passes / 2), count, generator=evaluator.generator())
    shares = torch.stack([half, 1 - half], 1).flatten(0, 1)[:passes].to(x)
    total = torch.zeros_like(x)
    for part in evaluator.parts(passes):
        start = absent[part.rows, part.steps % absent.shape[1]]
        change = x[part.rows] - start
        share = shares[part.steps][:, number.flatten()].view(-1, *number.shape)
        points = torch.addcmul(start, share, change)
        part.add(total, evaluator.gradient(points, part.rows, probability=True) * change)
    return total / passes


def number_positions(evaluator: Evaluator, cells: int) -> Tensor:
    """The cell of each value of an input, int64 like one input, channels broadcast."""
    features = evaluator.features
    if features.parts:
        numbers = [_number(part, cells).expand(1, *part.input_shape) for part in features.parts]
        firsts = reduce(lambda made, n: [*made, made[-1] + int(n.max()) + 1], numbers, [0])
        pairs = zip(numbers, firsts, strict=False)
        return torch.cat([(own + first).flatten() for own, first in pairs])
    return _number(features, cells).expand(1, *features.input_shape)[0]


def _number(features: Features, cells: int) -> Tensor:
    """The cell of each position, [1, ...] with the axes of an input."""
    if features.groups is not None:
        return features.over_input(features.groups)
    kind = features.kind
    axes = [axis for axis in range(1, kind.axes) if axis != kind.channels]
    sizes = [
        min(cells, size) if axis in kind.neighbours else size
        for axis, size in zip(axes, features.shape, strict=True)
    ]
    return features.over_input(number_cells(sizes, features.shape).unsqueeze(0))
