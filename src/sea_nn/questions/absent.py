"""Ways to hide parts of an input: black, mean, blur, noise, in-painting, or values of your own.

>>> x = torch.arange(8.0).view(1, 2, 2, 2)
>>> hidden = torch.tensor([[[True, False], [False, False]]])
>>> prepare(x, "mean").hide(hidden, torch.tensor([0]))[0, :, 0, 0]
tensor([1.5000, 5.5000])

Inputs are columns [N, F], series [N, C, T] or images [N, C, H, W]; a *position* is a column, a time
or a pixel, and all its channels are hidden together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sea_nn.ensembling.heatmaps import smooth
from sea_nn.errors import InputError, KindError
from sea_nn.passes.noise import normal, uniform
from sea_nn.questions.inpainting import inpaint

PERTURBATIONS = {
    "black": "the lowest value of each channel",
    "mean": "the input's own mean of each channel",
    "blur": "the input blurred, standard deviation a tenth of the longer side",
    "noise": "uniform noise between the bounds, drawn once an input",
    "inpaint": "ROAD: each hidden pixel the mean of its neighbours, plus a little noise",
}
Bounds = tuple[float | Sequence[float] | Tensor, float | Sequence[float] | Tensor]

# With this strength the shipped CNN's mean probability of the predicted class falls from .91 to .23
# (its 200 images) and EfficientNet-Lite0's from .64 to .002 (60 ILSVRC validation images); a third
# of it leaves .71 and .02.
BLUR_SHARE = 0.1
INPAINT_NOISE = 0.01


class Perturbation(Protocol):
    """Inputs [N, ...] of which any positions can be hidden."""

    def hide(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Return the inputs ``rows`` [P] with the positions ``hidden``, bool [P, ...], replaced."""

    def changed(self) -> Tensor:
        """Return the positions that look different when hidden, bool [N, n]."""


def positions(x: Tensor) -> tuple[int, ...]:
    """Return the shape of an input's positions: (F,), (T,) or (H, W)."""
    return tuple(x.shape[1:] if x.ndim == 2 else x.shape[2:])


def pixel_bounds(mean: Sequence[float], std: Sequence[float]) -> Bounds:
    """Return the values that black and white have after (pixel - mean) / std, pixels in [0, 1].

    >>> pixel_bounds((0.5,), (0.25,))
    ([-2.0], [2.0])
    """
    pairs = list(zip(mean, std, strict=True))
    return [(0 - m) / s for m, s in pairs], [(1 - m) / s for m, s in pairs]


def prepare(
    x: Tensor, kind: str | Tensor, *, bounds: Bounds | None = None, seed: int = 0, first: int = 0
) -> Perturbation:
    """Return the perturbation ``kind`` of the inputs ``x``.

    Args:
        x: inputs [N, F], [N, C, T] or [N, C, H, W].
        kind: a name from ``PERTURBATIONS``, or a tensor that broadcasts to ``x``.
        bounds: the lowest and the highest value a channel can have, numbers or one a channel (see
            ``pixel_bounds``); left out, each input's own extremes of each channel.
        seed: starts the noise.
        first: the number of the first input, if ``x`` is part of a larger set.
    """
    if isinstance(kind, Tensor) or kind in ("mean", "blur"):
        return Fill(x, fill(x, kind))
    if not isinstance(kind, str):
        raise KindError(
            f"a perturbation is a name ({', '.join(PERTURBATIONS)}) or a tensor of values, not "
            f"{type(kind).__name__}"
        )
    if kind not in PERTURBATIONS:
        raise InputError(
            f"there is no perturbation {kind!r}; choose from {', '.join(PERTURBATIONS)}, or pass a "
            "tensor of the values that hidden positions take"
        )
    low, high = _resolve_bounds(x, bounds)
    if kind == "black":
        return Fill(x, low)
    if kind == "noise":
        values = uniform("noise", x.shape, seed, first, x.device)
        return Fill(x, torch.lerp(low, high, values.to(x.dtype)))
    if x.ndim != 4:
        raise InputError(f"inpaint is for images [N, C, H, W]; x has the shape {list(x.shape)}")
    noise = normal("inpaint", x.shape, seed, first, x.device).to(x.dtype)
    return Inpainting(x, noise * INPAINT_NOISE * (high - low))


def fill(x: Tensor, kind: str | Tensor) -> Tensor:
    """Return what hidden positions become by "mean", "blur" or given values: broadcasts to x."""
    if isinstance(kind, Tensor):
        return _expand(kind, x)
    return _mean(x) if kind == "mean" else blur(x)


@dataclass(frozen=True)
class Fill:
    """Hidden positions take fixed values: ``values`` broadcasts to ``x`` behind the first axis."""

    x: Tensor
    values: Tensor

    def hide(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Return the inputs ``rows`` with the positions ``hidden`` replaced."""
        return torch.where(_over_channels(hidden, self.x), self.values[rows], self.x[rows])

    def changed(self) -> Tensor:
        """Return the positions whose value differs from the fill, bool [N, n]."""
        different = self.x != self.values
        return different.flatten(1) if self.x.ndim == 2 else different.any(1).flatten(1)


@dataclass(frozen=True)
class Inpainting:
    """Hidden pixels become the weighted mean of their neighbours, hidden or not, plus ``noise``.

    Noisy linear imputation of ROAD (Rong et al., ICML 2022): it tells the model little about where
    pixels were hidden. An input hidden altogether becomes its mean colour.
    """

    x: Tensor
    noise: Tensor

    def hide(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Return the inputs ``rows`` with the pixels ``hidden`` in-painted."""
        x = self.x[rows]
        return torch.where(hidden.unsqueeze(1), inpaint(x, hidden) + self.noise[rows], x)

    def changed(self) -> Tensor:
        """Every pixel: what a hidden one becomes depends on the others."""
        return torch.ones(len(self.x), self.x[0, 0].numel(), dtype=torch.bool, device=self.x.device)


def blur(x: Tensor, sigma: float | None = None) -> Tensor:
    """Return series or images blurred by a Gaussian, cut off and renormalised at the borders.

    Args:
        x: [N, C, T] or [N, C, H, W].
        sigma: standard deviation in positions; left out, a tenth of the longer side.
    """
    if x.ndim < 3:
        raise InputError(
            f"blur is for series [N, C, T] and images [N, C, H, W]; x has the shape {list(x.shape)}"
        )
    sigma = BLUR_SHARE * max(x.shape[2:]) if sigma is None else sigma
    if not (sigma > 0 and math.isfinite(sigma)):
        raise InputError(f"sigma must be a positive number of positions; got {sigma}")
    for axis in range(2, x.ndim):
        x = smooth(x, axis, sigma)
    return x.contiguous()


def _mean(x: Tensor) -> Tensor:
    return x.mean(tuple(range(1 if x.ndim == 2 else 2, x.ndim)), keepdim=True)


def _over_channels(hidden: Tensor, x: Tensor) -> Tensor:
    return hidden if x.ndim == 2 else hidden.unsqueeze(1)


def _expand(values: Tensor, x: Tensor) -> Tensor:
    values = values.to(x)
    try:
        torch.broadcast_to(values, x.shape)
    except RuntimeError as error:
        raise InputError(
            f"the values for hidden positions must broadcast to x, {list(x.shape)}; got "
            f"{list(values.shape)}"
        ) from error
    values = values.reshape((1,) * (x.ndim - values.ndim) + tuple(values.shape))
    return values.expand(len(x), *values.shape[1:])


def _resolve_bounds(x: Tensor, bounds: Bounds | None) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest value, shaped to broadcast to x behind its first axis."""
    axes = 1 if x.ndim == 2 else 2
    if bounds is None:
        flat = x.flatten(axes) if x.ndim > 2 else x
        shape = (*x.shape[:axes], *(1,) * (x.ndim - axes))
        return flat.amin(-1).view(shape), flat.amax(-1).view(shape)
    low, high = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in bounds)
    if any(bound.ndim > 1 or bound.numel() not in (1, x.shape[1]) for bound in (low, high)):
        raise InputError(
            f"bounds must be two numbers, or two with one number for each of the {x.shape[1]} "
            f"channels; got the shapes {list(low.shape)} and {list(high.shape)}"
        )
    if bool((low >= high).any()):
        raise InputError("bounds must be (lowest, highest), and the lowest below the highest")
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return (
        low.reshape(shape).expand(len(x), *(-1,) * (x.ndim - 1)),
        high.reshape(shape).expand(len(x), *(-1,) * (x.ndim - 1)),
    )
