"""Members that hide parts of the input and ask the model again: occlusion and RISE."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sea_nn.errors import InputError
from sea_nn.features import segment
from sea_nn.model.noise import find_keys
from sea_nn.model.outputs import take
from sea_nn.model.probe import Probe


def occlusion(probe: Probe, window: int | None = None, stride: int | None = None) -> Tensor:
    """Return how much the class score falls when a sliding window is hidden.

    Args:
        probe: the inputs and the model.
        window: the window's size along every axis, all channels at once. Left out, an eighth of
            each axis; a single feature for inputs without positions, [N, F].
        stride: its step. Left out, half the window.

    Where windows overlap the map is their mean; at the far edge they are cut off.
    """
    x, places = probe.x, _windows(tuple(probe.x.shape[1:]), window, stride)

    def make(part: slice) -> Tensor:
        masks = x.new_ones(len(places[part]), *x.shape[1:])
        for mask, place in zip(masks, places[part], strict=True):
            mask[place] = 0
        return masks

    answers = ask_masks(probe, len(places), make)
    total, cover = torch.zeros_like(x), torch.zeros_like(x[0])
    for place, answer in zip(places, answers.mT, strict=True):
        fall = take(probe.whole, probe.target).to(x.dtype) - answer
        total[:, *place] += fall.view(-1, *(1,) * (x.ndim - 1))
        cover[place] += 1
    return total / cover


def rise(probe: Probe, n_masks: int = 4000, cells: int = 7, keep: float = 0.5) -> Tensor:
    """Return RISE: the mean of random smooth masks, weighed by the class's probability.

    All inputs share the masks, as in the authors' code: masks for each of them would take longer to
    make than a small network takes to answer. What is left of chance in the mean of the masks is
    therefore the same in all maps and does not average out over inputs; more masks make it smaller.

    Args:
        probe: the inputs [N, C, H, W] and the model.
        n_masks: random masks.
        cells: cells along each axis of the coarse random grid.
        keep: the probability that a cell is kept.

    Returns:
        Maps [N, 1, H, W], not negative.
    """
    x, random = probe.x, torch.Generator().manual_seed(probe.seed)
    height, width = x.shape[2:]
    step = (math.ceil(height / cells), math.ceil(width / cells))
    grids = (torch.rand(n_masks, 1, cells + 1, cells + 1, generator=random) < keep).to(x)
    shift_y = torch.randint(0, step[0], (n_masks,), generator=random).to(x.device)
    shift_x = torch.randint(0, step[1], (n_masks,), generator=random).to(x.device)
    large = ((cells + 1) * step[0], (cells + 1) * step[1])
    down, across = torch.arange(height, device=x.device), torch.arange(width, device=x.device)

    def make(part: slice) -> Tensor:
        smooth = functional.interpolate(grids[part], large, mode="bilinear")
        which = torch.arange(len(smooth), device=x.device)[:, None, None]
        rows, columns = shift_y[part, None] + down, shift_x[part, None] + across
        return smooth[which, 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)

    answers = ask_masks(probe, n_masks, make, probability=True)
    total = x.new_zeros(len(x), height * width)
    for start in range(0, n_masks, FEW):  # masks of all would fill the memory
        part = slice(start, start + FEW)
        total += answers[:, part] @ make(part).flatten(1)
    return (total / (n_masks * keep)).view(-1, 1, height, width)


def ask_masks(
    probe: Probe, count: int, make: Callable[[slice], Tensor], probability: bool = False
) -> Tensor:
    """What the model says of every input behind every mask, [N, count].

    Args:
        probe: the inputs and the model.
        count: how many masks there are.
        make: some of the masks, [k, ...] that broadcast to an input, 1 keeps and 0 hides: what is
            hidden takes the baseline's value.
        probability: return the probability of the target class (of a model of values, the value),
            not its logit.
    """
    x, base = probe.x, None if probe.baselines is None else probe.baseline()
    numbers = torch.arange(len(x) * count, device=x.device)
    rows = numbers % len(x)

    def build(part: slice) -> Tensor:
        own, which = rows[part], numbers[part] // len(x)
        mask = make(slice(int(which[0]), int(which[-1]) + 1))[which - which[0]]
        return x[own] * mask if base is None else x[own] * mask + base[own] * (1 - mask)

    def read(outputs: Tensor, own: Tensor) -> Tensor:
        scores = probe.output.scores(outputs) if probability else outputs
        return take(scores, probe.target[own]).to(x.dtype)

    return probe.ask_points(rows, build, read=read).view(count, len(x)).mT


def count_windows(options: Mapping[str, Any], shape: tuple[int, ...]) -> int:
    """Return the number of windows that `occlusion` slides over one input of this shape."""
    return len(_windows(shape, options["window"], options["stride"]))


def _windows(
    shape: tuple[int, ...], window: int | None, stride: int | None
) -> list[tuple[slice, ...]]:
    """Return the index of every window into one input, channels first and whole."""
    places, axes = [], shape[1:] or shape
    for size in axes:
        width = window or (math.ceil(size / 8) if len(shape) > 1 else 1)
        step = stride or math.ceil(width / 2)
        if width > size or (step > width and width < size):
            raise InputError(
                f"occlusion needs stride <= window <= input on every axis; got stride {step}, "
                f"window {width} and input {list(axes)}"
            )
        starts = range(0, step * math.ceil((size - width) / step) + 1, step)
        places.append([slice(start, start + width) for start in starts])
    whole = (slice(None),) * (len(shape) - len(axes))
    return [(*whole, *place) for place in itertools.product(*places)]


Matrix = NDArray[np.float64]
FULL_WEIGHT = 1e6  # the empty and the whole input bind the fit, as a stand-in for infinity
SWEEPS = 10_000
FEW = 100  # masks that are made at once


def lime(
    probe: Probe,
    n_samples: int = 1000,
    kernel_width: float = 0.25,
    alpha: float | None = None,
    n_segments: int = 50,
) -> Tensor:
    """Return LIME: lasso weights of the segments, fitted to random on/off samples.

    Args:
        probe: the inputs and the model.
        n_samples: samples an input.
        kernel_width: a sample at cosine distance d from the input weighs
            exp(-d² / (2 · kernel_width²)).
        alpha: the lasso's penalty in units of the score (Captum's default is 0.01); left out, a
            hundredth of the scores' standard deviation, so that small scores leave a map too.
        n_segments: superpixels of an image, about.
    """
    if n_samples < 2:
        raise InputError(f"lime needs n_samples >= 2, got {n_samples}")

    def explain(one: Probe, segments: Tensor, random: torch.Generator) -> Matrix:
        n, x, base = int(segments.max()) + 1, one.x[0].double(), one.baseline()[0].double()
        half = torch.full((1, n), 0.5)
        on = torch.cat([torch.bernoulli(half, generator=random) for _ in range(n_samples)])
        scores = _ask_segments(one, segments, on)
        # Products of the input and a sample are sums over the segments that are on, and those off.
        own, mixed, other = (
            torch.bincount(segments.expand_as(x).flatten(), (a * b).flatten()).cpu()
            for a, b in ((x, x), (x, base), (base, base))
        )
        kept, gone = on.double(), 1 - on.double()
        length = (own.sum() * (kept @ own + gone @ other)).sqrt().clamp_min(1e-8)
        distance = 1 - (kept @ own + gone @ mixed) / length
        weights = torch.exp(-(distance**2) / (2 * kernel_width**2)).numpy()
        penalty = 0.01 * float(scores.std()) if alpha is None else alpha
        return fit_lasso(on.double().numpy(), scores, weights, penalty)

    return _explain_each(probe, n_segments, explain)


def kernel_shap(probe: Probe, n_samples: int | None = None, n_segments: int = 50) -> Tensor:
    """Return Kernel SHAP: Shapley values of the segments by weighted least squares.

    Args:
        probe: the inputs and the model.
        n_samples: sets of segments an input; left out, 2048 + 2 · segments as in the authors' code,
            or all sets, for exact Shapley values, if that is fewer.
        n_segments: superpixels of an image, about.
    """

    def explain(one: Probe, segments: Tensor, random: torch.Generator) -> Matrix:
        on, weights = draw_coalitions(int(segments.max()) + 1, n_samples, random)
        # Least squares with an intercept, the shortest solution if there are many.
        scores = _ask_segments(one, segments, on)
        centred, rest = _centre(on.double().numpy(), scores, weights)
        root = np.sqrt(weights)
        solution = np.linalg.lstsq(centred * root[:, None], rest * root, rcond=None)[0]
        return solution.astype(np.float64)

    return _explain_each(probe, n_segments, explain)


def count_coalitions(options: Mapping[str, Any], shape: tuple[int, ...]) -> int:
    """Return how many sets `kernel_shap` asks about for one input of this shape."""
    n_features = options["n_segments"] if len(shape) == 3 else math.prod(shape)
    budget = 2048 + 2 * n_features
    few = min(budget, 2**n_features) if n_features < 32 else budget
    return few if options["n_samples"] is None else int(options["n_samples"])


def draw_coalitions(
    n_features: int, n_samples: int | None, random: torch.Generator
) -> tuple[Tensor, Matrix]:
    """Return sets of features [S, n_features], 1 for in, and the weight of each in the fit [S].

    All sets with the Shapley kernel's weights if `n_samples` is None and they are few; otherwise
    the whole set, the empty set, and sets drawn by the kernel, which then weigh the same.
    """
    count = count_coalitions({"n_samples": n_samples}, (n_features,))
    if count < 2:
        raise InputError(f"kernel_shap needs n_samples >= 2, got {n_samples}")
    sizes = np.arange(1, n_features)
    kernel = (n_features - 1) / (sizes * (n_features - sizes))  # its mass on each size
    if n_samples is None and count == 2**n_features:
        on = (torch.arange(count)[:, None] >> torch.arange(n_features) & 1).float()
        each = kernel / [math.comb(n_features, int(k)) for k in sizes]
        return on, np.array([FULL_WEIGHT, *each, FULL_WEIGHT])[on.sum(1).long().numpy()]
    on = torch.ones(count, n_features)
    on[1] = 0
    # The same numbers, drawn in the same order, as Captum's.
    mass = torch.cat([torch.zeros(1), torch.as_tensor(kernel).float()])
    mass = mass / mass.sum() if n_features > 1 else mass
    for k in range(2, count if n_features > 1 else 2):
        size = int(torch.multinomial(mass, 1, True, generator=random))
        values = torch.randn(1, n_features, generator=random)
        on[k] = (values > values.kthvalue(n_features - size).values).float()
    weights = np.ones(count)
    weights[:2] = FULL_WEIGHT
    return on, weights


def fit_lasso(inputs: Matrix, answers: Matrix, weights: Matrix, alpha: float) -> Matrix:
    """Return the coefficients of the weighted lasso with an intercept.

    Minimises Σ w (y − z·c − b)² / (2 Σ w) + alpha · Σ |c| by coordinate descent.
    """
    centred, rest = _centre(inputs, answers, weights)
    share = weights / weights.sum()
    gram = centred.T @ (centred * share[:, None])
    pull = centred.T @ (rest * share)
    own = gram.diagonal()
    coefficients = np.zeros(len(pull))
    for _ in range(SWEEPS):
        before = coefficients.copy()
        for j in np.flatnonzero(own > 1e-15):
            free = pull[j] - gram[j] @ coefficients + own[j] * coefficients[j]
            coefficients[j] = np.sign(free) * max(abs(free) - alpha, 0.0) / own[j]
        largest = float(np.abs(coefficients).max())
        if np.abs(coefficients - before).max() <= 1e-8 * max(1e-8, largest):
            break
    return coefficients


def _explain_each(
    probe: Probe,
    n_segments: int,
    explain: Callable[[Probe, Tensor, torch.Generator], Matrix],
) -> Tensor:
    """Coefficients of each input's segments, by draws that are its own, as maps."""
    maps, keys = torch.zeros_like(probe.x), find_keys(probe.x, probe.seed)
    segmented = segment(probe.x, probe.features, n_segments)
    for i, segments in enumerate(segmented):
        random = torch.Generator().manual_seed(draw_seed(keys[i]))
        one = probe.select(torch.tensor([i], device=maps.device))
        maps[i] = torch.as_tensor(explain(one, segments, random)).to(maps)[segments]
    return maps


def draw_seed(key: Tensor) -> int:
    """Return the 32 bits of an input's key that start its draws."""
    return int(key) % 2**32


def _ask_segments(one: Probe, segments: Tensor, on: Tensor) -> Matrix:
    """What the model says of one input with only the segments left that are on, [S]."""
    x = one.x
    places = segments.view(*(1,) * (x.ndim - 1 - segments.ndim), *segments.shape)
    said = ask_masks(one, len(on), lambda part: on[part].to(x)[:, places])
    return said[0].double().cpu().numpy()


def _centre(inputs: Matrix, answers: Matrix, weights: Matrix) -> tuple[Matrix, Matrix]:
    """Take the weighted means away, which fits the intercept."""
    if not weights.sum() > 0:
        raise InputError("every sample weighs nothing: choose a larger kernel_width")
    return (
        inputs - np.average(inputs, axis=0, weights=weights),
        answers - np.average(answers, weights=weights),
    )
