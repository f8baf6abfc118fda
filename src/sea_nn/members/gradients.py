"""Members made of input gradients: at the input, along a path, or around it.

All of them are weighted sums of gradients at chosen points, so they share one packed loop,
`Probe.parts`, and equal Captum's classes called with the same options and draws. Draws are each
input's own (`sea_nn.model.noise`): what noise leaves in the maps averages out over inputs.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sea_nn.model.noise import draw_normal, draw_uniform, find_keys
from sea_nn.model.probe import Probe


def saliency(probe: Probe) -> Tensor:
    """Return the signed gradient of the class score (VG in the paper)."""
    return probe.input_gradients()


def input_x_gradient(probe: Probe) -> Tensor:
    """Return input times gradient; the gradient is the one `saliency` computed, if it ran."""
    return probe.x * probe.input_gradients()


def integrated_gradients(probe: Probe, n_steps: int = 50) -> Tensor:
    """Return the path integral of the gradient from the baseline, by Gauss-Legendre quadrature."""
    steps, weights = _place_nodes(n_steps, probe.x.dtype, probe.x.device)
    base, total = probe.baseline(), torch.zeros_like(probe.x)
    path = probe.x - base
    for part in probe.parts(n_steps):
        points = torch.addcmul(base[part.rows], _column(steps[part.steps], base), path[part.rows])
        part.add(total, probe.gradient(points, part.rows), weights)
    return total * path


def smooth_ig(
    probe: Probe,
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
        probe: the inputs and the model.
        n_samples: paths an input.
        noise: standard deviation of the noise as a share of the input's own range, max - min.
        stdev: standard deviation in the input's units; replaces `noise`.
        n_steps: points on each path.
        per_point: draw for every point of a path; else once for a path, as NoiseTunnel does.
    """
    steps, weights = _place_nodes(n_steps, probe.x.dtype, probe.x.device)
    around, base, total = _Noisy(probe, noise, stdev), probe.baseline(), torch.zeros_like(probe.x)
    for part in probe.parts(n_samples * n_steps):
        step, draw = part.steps % n_steps, part.steps if per_point else part.steps // n_steps
        start = base[part.rows]
        path = around.take(part.rows, draw) - start
        grads = probe.gradient(start + _column(steps[step], base) * path, part.rows)
        part.add(total, grads * _column(weights[step], base) * path)
    return total / n_samples


def smoothgrad(
    probe: Probe, n_samples: int = 50, noise: float = 0.15, stdev: float | None = None
) -> Tensor:
    """Return the mean signed gradient over noisy copies; the options are those of `smooth_ig`."""
    around, total = _Noisy(probe, noise, stdev), torch.zeros_like(probe.x)
    for part in probe.parts(n_samples):
        part.add(total, probe.gradient(around.take(part.rows, part.steps), part.rows))
    return total / n_samples


def gradient_shap(
    probe: Probe, n_samples: int = 200, noise: float = 0.0, stdev: float | None = None
) -> Tensor:
    """Return expected gradients: at random points on the way from the baseline to the input."""
    around, base, total = _Noisy(probe, noise, stdev), probe.baseline(), torch.zeros_like(probe.x)
    place = draw_uniform(around.keys, -2, n_samples)
    for part in probe.parts(n_samples):
        start = base[part.rows]
        path = around.take(part.rows, part.steps) - start
        far = _column(place[part.rows, part.steps].to(probe.x), base)
        part.add(total, probe.gradient(start + far * path, part.rows) * path)
    return total / n_samples


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _place_nodes(n_steps: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [0, 1], [n_steps] each."""
    # Once for all calls: a copy from the host waits until the GPU has done what was sent before.
    nodes, weights = np.polynomial.legendre.leggauss(n_steps)
    steps, shares = torch.as_tensor((1 + nodes) / 2), torch.as_tensor(weights / 2)
    return steps.to(device, dtype), shares.to(device, dtype)


class _Noisy:
    """Noisy copies of the inputs: each has draws of its own, made where needed."""

    def __init__(self, probe: Probe, noise: float, stdev: float | None) -> None:
        self.x, self.keys = probe.x, find_keys(probe.x, probe.seed)
        low, high = probe.x.flatten(1).aminmax(dim=1)
        scale = noise * (high - low) if stdev is None else torch.full_like(high, stdev)
        self.scale, self.still = _column(scale, probe.x), not (noise if stdev is None else stdev)

    def take(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return noisy copies of the inputs `rows` [P], by the numbers `steps` [P] of the draws."""
        inputs = self.x[rows]
        if self.still:
            return inputs
        draws = draw_normal(self.keys[rows], steps, tuple(self.x.shape[1:]))
        return inputs + self.scale[rows] * draws.to(self.x)


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Return values [P] as [P, 1, ...] to multiply points [P, ...]."""
    return values.view(-1, *(1,) * (like.ndim - 1))
