"""Ways for features to be absent: blur, mean, baseline, noise, draws from data and others.

>>> x = torch.arange(8.0).view(1, 2, 2, 2)
>>> hidden = torch.tensor([[[[True, False], [False, False]]]])
>>> prepare(x, "mean").hide(hidden, torch.tensor([0]))[0, :, 0, 0]
tensor([1.5000, 5.5000])

Inputs are columns [N, F], series [N, C, T], images [N, C, H, W] or volumes [N, C, D, H, W]. What is
hidden is given by masks that broadcast to the inputs (``Kind.over_input`` makes them of sets of
positions). ``WAYS`` has every way by name; ``choose_absence`` finds the one that questions take.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import Features, Kind, find_kind, smooth
from sea_nn.model.noise import normal, uniform
from sea_nn.model.probe import Perturbation
from sea_nn.questions.inpainting import inpaint

Bounds = tuple[float | Sequence[float] | Tensor, float | Sequence[float] | Tensor]

# With this strength the shipped CNN's mean probability of the predicted class falls from .91 to .23
# (its 200 images) and EfficientNet-Lite0's from .64 to .002 (60 ILSVRC validation images); a third
# of it leaves .71 and .02.
BLUR_SHARE = 0.1
INPAINT_NOISE = 0.01
LEAST_DRAWS, MOST_DRAWS = 8, 16
QUESTIONS_PER_FEATURE = 10
NEED_NEIGHBOURS = ("blur", "mean", "interpolate")  # ways that columns of a table do not have
WAYS = {
    "black": "the lowest value of each channel",
    "mean": "the input's own mean of each channel",
    "blur": "the input blurred, standard deviation a tenth of the longer side",
    "noise": "uniform noise between the bounds, drawn once an input",
    "inpaint": "ROAD: each hidden pixel the mean of its neighbours, plus a little noise",
    "baseline": "the members' baseline: 0, a number or values of your own",
    "interpolate": "of a series, the line between the steps around",
    "background": "the values of other inputs, one draw or the mean of several",
    "background_mean": "the mean of other inputs",
}
PERTURBATIONS = {name: WAYS[name] for name in ("black", "mean", "blur", "noise", "inpaint")}
"""The ways by which metrics hide positions."""


def pixel_bounds(mean: Sequence[float], std: Sequence[float]) -> Bounds:
    """Return the values that black and white have after (pixel - mean) / std, pixels in [0, 1].

    >>> pixel_bounds((0.5,), (0.25,))
    ([-2.0], [2.0])
    """
    pairs = list(zip(mean, std, strict=True))
    return [(0 - m) / s for m, s in pairs], [(1 - m) / s for m, s in pairs]


def prepare(
    x: Tensor,
    way: str | Tensor,
    *,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    baselines: float | Tensor | None = None,
    background: Tensor | None = None,
    draws: int = 1,
    kind: Kind | None = None,
) -> Perturbation:
    """Return the perturbation of the inputs ``x`` by a way to be absent.

    Args:
        x: inputs [N, F], [N, C, T], [N, C, H, W] or [N, C, D, H, W].
        way: a name from ``WAYS``, or a tensor that broadcasts to ``x``.
        bounds: the lowest and the highest value a channel can have, numbers or one a channel (see
            ``pixel_bounds``); left out, each input's own extremes of each channel.
        seed: starts the noise, and the choice of rows from the background.
        first: the number of the first input, if ``x`` is part of a larger set.
        baselines: the values of "baseline": None for 0, a number or a tensor.
        background: other inputs, [B, ...], for "background" and "background_mean".
        draws: how many rows of the background stand in for what is absent, at most.
        kind: of the inputs; left out, found from x.
    """
    if isinstance(way, Tensor):
        return _fill(x, _expand(way, x))
    if not isinstance(way, str):
        raise KindError(
            f"a perturbation is a name ({', '.join(WAYS)}) or a tensor of values, not "
            f"{type(way).__name__}"
        )
    kind = find_kind(x) if kind is None else kind
    if way == "mean":
        return _fill(x, x.mean(kind.scale_axes, keepdim=True))
    if way == "blur":
        return _fill(x, blur(x, kind=kind))
    if way == "baseline":
        return _fill(x, _expand(torch.as_tensor(0.0 if baselines is None else baselines), x))
    if way == "interpolate":
        if kind.view != "lines":
            raise InputError(f"interpolate is for series [N, C, T]; x is {list(x.shape)}")
        return Hiding(x, lambda hidden, rows, _: interpolate(x[rows], hidden))
    if way == "background":
        others, generator = check_background(background, x), torch.Generator().manual_seed(seed)
        others = others[torch.randperm(len(others), generator=generator)[:draws].to(x.device)]
        return Hiding(x, lambda _, rows, draw: others[draw], len(others))
    if way == "background_mean":
        return _fill(x, check_background(background, x).mean(0, keepdim=True).expand_as(x))
    if way not in WAYS:
        raise InputError(
            f"there is no perturbation {way!r}; choose from {', '.join(WAYS)}, or pass a "
            "tensor of the values that hidden positions take"
        )
    low, high = _resolve_bounds(x, bounds, kind)
    if way == "black":
        return _fill(x, low)
    if way == "noise":
        values = uniform("noise", x.shape, seed, first, x.device).to(x.dtype)
        return _fill(x, torch.lerp(low, high, values))
    if kind.view != "picture":
        raise InputError(f"inpaint is for images [N, C, H, W]; x has the shape {list(x.shape)}")
    noise = normal("inpaint", x.shape, seed, first, x.device).to(x.dtype)
    noise = noise * INPAINT_NOISE * (high - low)
    # Noisy linear imputation of ROAD (Rong et al., ICML 2022).
    return Hiding(x, lambda hidden, rows, _: inpaint(x[rows], hidden[:, 0]) + noise[rows])


def choose_absence(
    x: Tensor,
    features: Features,
    absent: str | None = None,
    *,
    baselines: float | Tensor | None = None,
    background: Tensor | None = None,
    draws: int = 1,
    seed: int = 0,
) -> tuple[Perturbation, str]:
    """How what is left out of ``x`` becomes absent when the model is asked, and that in words.

    Args:
        x: the inputs; several side by side, [N, V], become absent each in a way of its own.
        features: of ``x``.
        absent: the way; left out, or where an input of several has no neighbours for it, the
            background says what absent means: draws from it where they are many enough to stand
            for it, else its mean. Without a background it is the way of the kind of data.
        baselines: the values of "baseline".
        background: other inputs like ``x``.
        draws: how many of these stand in for what is absent.
        seed: starts the draws.
    """
    several, ways = len(features.parts) > 0, list[str]()
    made: list[Perturbation] = []
    for k, part in enumerate(features.parts or (features,)):
        own, start, others, way = x, baselines, background, absent
        if several:
            start = torch.as_tensor(0.0 if start is None else start).to(x).expand_as(x)
            own, start = features.split(x)[k], features.split(start)[k]
            others = None if background is None else features.split(background)[k]
        if way in NEED_NEIGHBOURS and not part.kind.neighbours:
            if not several:
                raise InputError(
                    f"absent={way!r} needs neighbours, and inputs of the kind {part.kind.name!r} "
                    'have none: give background=, or choose "baseline"'
                )
            way = None
        if way is None:
            drawn = "background" if draws >= LEAST_DRAWS else "background_mean"
            way = part.kind.absent if others is None else drawn
        given: dict[str, Any] = {"baselines": start, "background": others}
        made.append(prepare(own, way, **given, draws=draws, seed=seed, kind=part.kind))
        ways.append(WAYS[way])
    said = "as said by the caller" if absent or background is not None else "nothing was said"
    says = f"what is left out becomes {' and '.join(dict.fromkeys(ways))} ({said})"
    return place_side_by_side(x, made, features.split) if several else made[0], says


def choose_draws(questions: int, n: int, absent: str | None, background: Tensor) -> int:
    """How many rows of the background each answer is a mean of; 1 where it is of none.

    At equal evaluations more questions order columns better than more draws, until there are about
    ten for each column or every set is asked about, and fewer than eight draws stand for the
    background less well than its mean (docs/results/tables.md).

    >>> rows = torch.zeros(50, 4)
    >>> [choose_draws(q, 4, None, rows) for q in (60, 128, 1024)]
    [1, 8, 16]
    """
    if absent not in (None, "background"):
        return 1
    enough = min(QUESTIONS_PER_FEATURE * n, 2**n)
    draws = max(1, min(questions // enough, MOST_DRAWS, len(background)))
    return draws if absent or draws >= LEAST_DRAWS else 1


@dataclass(frozen=True)
class Hiding:
    """Inputs ``x`` of which positions can be hidden: these take the values of ``fill``.

    Attributes:
        x: the inputs.
        fill: the values of hidden positions, for masks, the numbers of the inputs and the draws.
        n_draws: how many versions of these values there are.
    """

    x: Tensor
    fill: Callable[[Tensor, Tensor, Tensor], Tensor]
    n_draws: int = 1

    def hide(self, hidden: Tensor, rows: Tensor, draw: Tensor | None = None) -> Tensor:
        """Return the inputs ``rows`` with the values ``hidden`` replaced."""
        draw = torch.zeros_like(rows) if draw is None else draw
        return torch.where(hidden, self.fill(hidden, rows, draw), self.x[rows])


def place_side_by_side(
    x: Tensor, parts: Sequence[Perturbation], split: Callable[[Tensor], Sequence[Tensor]]
) -> Hiding:
    """Several inputs in one row: each has a way of its own to be absent.

    There are as many draws as the part with the most has; the others take theirs in turn.
    """

    def fill(hidden: Tensor, rows: Tensor, draw: Tensor) -> Tensor:
        pairs = zip(parts, split(hidden), strict=True)
        said = [part.hide(own, rows, draw % part.n_draws).flatten(1) for part, own in pairs]
        return torch.cat(said, 1)

    return Hiding(x, fill, max(part.n_draws for part in parts))


def interpolate(x: Tensor, hidden: Tensor) -> Tensor:
    """Return series whose hidden steps lie on the line between the steps left and right of them.

    Before the first step that is left and after the last they keep its value; a channel that is
    hidden altogether becomes its mean.
    """
    hidden = hidden.expand_as(x)
    steps, length = torch.arange(x.shape[2], device=x.device), x.shape[2]
    left = torch.where(hidden, -1, steps).cummax(2).values
    right = torch.where(hidden, length, steps).flip(2).cummin(2).values.flip(2)
    before = x.gather(2, torch.where(left < 0, right, left).clamp(max=length - 1))
    after = x.gather(2, torch.where(right == length, left, right).clamp(min=0))
    part = ((steps - left) / (right - left).clamp(min=1)).to(x.dtype)
    nothing, mean = hidden.all(2, keepdim=True), x.mean(2, keepdim=True)
    return torch.where(nothing, mean, torch.lerp(before, after, part))


def blur(x: Tensor, sigma: float | None = None, kind: Kind | None = None) -> Tensor:
    """Return series, images or volumes blurred by a Gaussian, renormalised at the borders.

    Args:
        x: [N, C, T], [N, C, H, W] or [N, C, D, H, W].
        sigma: standard deviation in positions; left out, a tenth of the longer side.
        kind: of the inputs; left out, found from x.
    """
    axes = (find_kind(x) if kind is None else kind).neighbours
    if not axes:
        raise InputError(
            f"blur is for series [N, C, T], images [N, C, H, W] and volumes; x is {list(x.shape)}: "
            'choose "mean", "baseline" or "background"'
        )
    sigma = BLUR_SHARE * max(map(x.size, axes)) if sigma is None else sigma
    for axis in axes:
        x = smooth(x, axis, sigma)
    return x.contiguous()


def _fill(x: Tensor, values: Tensor) -> Hiding:
    """Hidden positions take fixed values, which broadcast to ``x`` behind its first axis."""
    return Hiding(x, lambda _, rows, draw: values[rows])


def _expand(values: Tensor, x: Tensor) -> Tensor:
    try:
        return values.to(x).expand_as(x)
    except RuntimeError as error:
        raise InputError(
            f"the values for hidden positions must broadcast to x, {list(x.shape)}; got "
            f"{list(values.shape)}"
        ) from error


def _resolve_bounds(x: Tensor, bounds: Bounds | None, kind: Kind) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest value, shaped to broadcast to x behind its first axis."""
    if bounds is None:
        axes = kind.scale_axes
        return x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
    low, high = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in bounds)
    if any(bound.ndim > 1 or bound.numel() not in (1, x.shape[1]) for bound in (low, high)):
        raise InputError(
            f"bounds must be two numbers, or two with one number for each of the {x.shape[1]} "
            f"channels; got the shapes {list(low.shape)} and {list(high.shape)}"
        )
    if bool((low >= high).any()):
        raise InputError("bounds must be (lowest, highest), and the lowest below the highest")
    ones = (1,) * (x.ndim - 2)
    low, high = (one.view(1, -1, *ones).expand(*x.shape[:2], *ones) for one in (low, high))
    return low, high


def check_background(background: Tensor | None, x: Tensor) -> Tensor:
    """Background data as a tensor [B, ...] like ``x``, or why it cannot stand in for it."""
    inputs = f"inputs like x: [B, {', '.join(map(str, x.shape[1:]))}]"
    if background is None:
        raise InputError(f"features that are absent by the background need background=, {inputs}")
    plain = isinstance(background, Tensor) and not background.is_meta
    if not plain or not background.is_floating_point():
        raise KindError("background must be a floating-point tensor of inputs like x")
    if background.shape[1:] != x.shape[1:] or len(background) == 0:
        raise InputError(f"background must be {inputs} with B >= 1; got {list(background.shape)}")
    background = background.detach().to(x)
    if not bool(background.isfinite().all()):
        bad = int((~background.isfinite()).flatten(1).any(1).sum())
        raise InputError(
            f"background holds NaN or infinite values in {bad} of {len(background)} rows: leave "
            "these rows out, or fill them as those the model was trained on"
        )
    return background
