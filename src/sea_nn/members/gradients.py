"""Members made of input gradients: at the input, along a path, or around it.

All of them are weighted sums of gradients at chosen points, so they share one packed loop,
`Evaluator.integrate`, and equal Captum's classes called with the same options and draws.
"""

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.evaluator import Evaluator


def saliency(task: Evaluator) -> Tensor:
    """Return the signed gradient of the class score (VG in the paper)."""
    return task.share("gradient", lambda: task.integrate(1, lambda rows, _: task.x[rows]))


def input_x_gradient(task: Evaluator) -> Tensor:
    """Return input times gradient; the gradient is the one `saliency` computed, if it ran."""
    return task.x * saliency(task)


def integrated_gradients(task: Evaluator, n_steps: int = 50) -> Tensor:
    """Return the path integral of the gradient from the baseline, by Gauss-Legendre quadrature."""
    steps, weights = _quadrature(n_steps, task.x)
    base = task.baseline()
    path = task.x - base
    total = task.integrate(
        n_steps,
        lambda rows, k: base[rows] + _column(steps[k], path) * path[rows],
        lambda grads, _, k: grads * _column(weights[k], path),
    )
    return total * path


def smooth_ig(
    task: Evaluator,
    n_samples: int = 5,
    noise: float = 0.15,
    stdev: float | None = None,
    n_steps: int = 50,
) -> Tensor:
    """Return the mean of integrated gradients over noisy copies of the input (SG in the paper).

    Args:
        task: the inputs and the model.
        n_samples: noisy copies an input.
        noise: standard deviation of the noise as a share of the input's own range, max - min.
        stdev: standard deviation in the input's units; replaces `noise`.
        n_steps: points on each path.
    """
    steps, weights = _quadrature(n_steps, task.x)
    base, draws = task.baseline(), _draw_noise(task, n_samples)
    scale = _noise_scale(task, noise, stdev)

    def ends(rows: Tensor, k: Tensor) -> Tensor:
        sample = torch.div(k, n_steps, rounding_mode="floor")
        return task.x[rows] + scale[rows] * draws[sample] - base[rows]

    total = task.integrate(
        n_samples * n_steps,
        lambda rows, k: base[rows] + _column(steps[k % n_steps], base) * ends(rows, k),
        lambda grads, rows, k: grads * _column(weights[k % n_steps], base) * ends(rows, k),
    )
    return total / n_samples


def smoothgrad(
    task: Evaluator, n_samples: int = 50, noise: float = 0.15, stdev: float | None = None
) -> Tensor:
    """Return the mean signed gradient over noisy copies; the options are those of `smooth_ig`."""
    draws, scale = _draw_noise(task, n_samples), _noise_scale(task, noise, stdev)
    total = task.integrate(n_samples, lambda rows, k: task.x[rows] + scale[rows] * draws[k])
    return total / n_samples


def gradient_shap(
    task: Evaluator, n_samples: int = 200, noise: float = 0.0, stdev: float | None = None
) -> Tensor:
    """Return expected gradients: random baselines, random points on the way to the input.

    `baselines` [B, ...] is the set that baselines are drawn from, one zero input if left out.
    """
    base = _baseline_set(task)
    # The draws, and their order, are those of captum.attr.GradientShap for a single input.
    random = np.random.RandomState(task.seed % 2**32)
    picks = torch.as_tensor(random.randint(0, len(base), n_samples), device=task.x.device)
    draws, scale = _draw_noise(task, n_samples), _noise_scale(task, noise, stdev)
    place = torch.as_tensor(random.uniform(0.0, 1.0, n_samples)).to(task.x)

    def ends(rows: Tensor, k: Tensor) -> Tensor:
        return task.x[rows] + scale[rows] * draws[k]

    total = task.integrate(
        n_samples,
        lambda rows, k: torch.lerp(base[picks[k]], ends(rows, k), _column(place[k], base)),
        lambda grads, rows, k: grads * (ends(rows, k) - base[picks[k]]),
    )
    return total / n_samples


def _quadrature(n_steps: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [0, 1], [n_steps] each."""
    if n_steps < 1:
        raise InputError(f"n_steps must be at least 1, got {n_steps}")
    nodes, weights = np.polynomial.legendre.leggauss(n_steps)
    return torch.as_tensor((1 + nodes) / 2).to(like), torch.as_tensor(weights / 2).to(like)


def _draw_noise(task: Evaluator, n_samples: int) -> Tensor:
    """Return standard normal draws [n_samples, ...], the same for every input."""
    if n_samples < 1:
        raise InputError(f"n_samples must be at least 1, got {n_samples}")
    shape = (n_samples, *task.x.shape[1:])
    return torch.randn(shape, generator=task.generator()).to(task.x)


def _noise_scale(task: Evaluator, noise: float, stdev: float | None) -> Tensor:
    """Return the standard deviation for every input, [N, 1, ...]."""
    if (stdev if stdev is not None else noise) < 0:
        raise InputError(f"noise and stdev must not be negative, got {noise} and {stdev}")
    flat = task.x.flatten(1)
    scale = noise * (flat.amax(1) - flat.amin(1))
    if stdev is not None:
        scale = torch.full_like(scale, stdev)
    return _column(scale, task.x)


def _baseline_set(task: Evaluator) -> Tensor:
    shape = task.x.shape[1:]
    base = torch.as_tensor(0.0 if task.baselines is None else task.baselines).to(task.x)
    if base.ndim < task.x.ndim:
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
