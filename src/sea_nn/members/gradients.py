"""Members made of input gradients: at the input, along a path, or around it.

All of them are weighted sums of gradients at chosen points (`Probe.parts`), and equal
Captum's classes called with the same options and draws. Draws are each input's own
(`sea_nn.model.noise`): what noise leaves in the maps averages out over inputs.
"""

import numpy as np
import torch
from torch import Tensor

from sea_nn.model.noise import draw_normal, draw_uniform, find_keys
from sea_nn.model.probe import Probe, add_up


def saliency(probe: Probe) -> Tensor:
    """Return the signed gradient of the class score (VG in the paper)."""
    return probe.input_gradients()


def input_x_gradient(probe: Probe) -> Tensor:
    """Return input times gradient; the gradient is the one `saliency` computed, if it ran."""
    return probe.x * probe.input_gradients()


def integrated_gradients(probe: Probe, n_steps: int = 50) -> Tensor:
    """Return the path integral of the gradient from the baseline, by Gauss-Legendre quadrature."""
    steps, weights = _place_nodes(n_steps, probe.x)
    base, total = probe.baseline(), torch.zeros_like(probe.x)
    path = probe.x - base
    for rows, step in probe.parts(n_steps):
        points = torch.addcmul(base[rows], steps[step], path[rows])
        add_up(total, rows, probe.gradient(points, rows) * weights[step])
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
    steps, weights = _place_nodes(n_steps, probe.x)
    around, base, total = _Noisy(probe, noise, stdev), probe.baseline(), torch.zeros_like(probe.x)
    for rows, number in probe.parts(n_samples * n_steps):
        step, draw = number % n_steps, number if per_point else number // n_steps
        path = around.take(rows, draw) - base[rows]
        slope = probe.gradient(base[rows] + steps[step] * path, rows)
        add_up(total, rows, slope * weights[step] * path)
    return total / n_samples


def smoothgrad(
    probe: Probe, n_samples: int = 50, noise: float = 0.15, stdev: float | None = None
) -> Tensor:
    """Return the mean signed gradient over noisy copies; the options are those of `smooth_ig`."""
    around, total = _Noisy(probe, noise, stdev), torch.zeros_like(probe.x)
    for rows, draw in probe.parts(n_samples):
        add_up(total, rows, probe.gradient(around.take(rows, draw), rows))
    return total / n_samples


def gradient_shap(
    probe: Probe, n_samples: int = 200, noise: float = 0.0, stdev: float | None = None
) -> Tensor:
    """Return expected gradients: at random points on the way from the baseline to the input."""
    around, base, total = _Noisy(probe, noise, stdev), probe.baseline(), torch.zeros_like(probe.x)
    place = draw_uniform(around.keys, -2, n_samples).to(probe.x)
    for rows, draw in probe.parts(n_samples):
        path = around.take(rows, draw) - base[rows]
        points = base[rows] + _column(place[rows, draw], base) * path
        add_up(total, rows, probe.gradient(points, rows) * path)
    return total / n_samples


def _place_nodes(n_steps: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [0, 1], to multiply points: [n_steps, 1, ...]."""
    nodes, weights = map(torch.as_tensor, np.polynomial.legendre.leggauss(n_steps))
    return _column((1 + nodes) / 2, x).to(x), _column(weights / 2, x).to(x)


class _Noisy:
    """Noisy copies of the inputs: each has draws of its own, made where needed."""

    def __init__(self, probe: Probe, noise: float, stdev: float | None) -> None:
        self.x, self.keys = probe.x, find_keys(probe.x, probe.seed)
        low, high = probe.x.flatten(1).aminmax(dim=1)
        scale = noise * (high - low) if stdev is None else torch.full_like(high, stdev)
        self.scale, self.still = _column(scale, probe.x), not (noise if stdev is None else stdev)

    def take(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """Return noisy copies of the inputs `rows` [P], by the numbers [P] of the draws."""
        if self.still:
            return self.x[rows]
        draws = draw_normal(self.keys[rows], numbers, tuple(self.x.shape[1:]))
        return self.x[rows] + self.scale[rows] * draws.to(self.x)


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Return values [P] as [P, 1, ...] to multiply points [P, ...]."""
    return values.view(-1, *(1,) * (like.ndim - 1))
