"""From raw attributions to heatmaps and sets: reduce, scale, check, binarise, pool [M7].

>>> import torch
>>> from sea_nn.features import scale
>>> raw = torch.tensor([[[[-3.0, 1.0], [0.0, 2.0]]]])        # one input, one channel
>>> scale(reduce_channels(raw))
tensor([[[1.0000, 0.3333],
         [0.0000, 0.6667]]])
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from sea_nn.config import check_number
from sea_nn.errors import InputError, KindError
from sea_nn.features import expand_mask, number_cells, read_tensor, sum_cells
from sea_nn.paper.exact import sort_features

LEAST_GAIN = 1e-3
"""The least gain of a required feature, where nobody says it."""


def reduce_channels(raw: Tensor, axis: int | None = 1) -> Tensor:
    """Absolute value, summed over the channel axis (``None``: there is none).

    Half precision and whole numbers become single precision, which a sum cannot overflow.
    """
    magnitude = raw.to(torch.promote_types(raw.dtype, torch.float32)).abs()
    return magnitude if axis is None else magnitude.sum(axis)


def clip_thresholds(thresholds: Sequence[int], n: int) -> Tensor:
    """Thresholds that are at most n each.

    >>> clip_thresholds([5, 10], 20)
    tensor([ 5, 10])
    """
    if max(thresholds) > n:
        said = f"thresholds above the {n} features there are were clipped to {n}"
        warnings.warn(said, stacklevel=2)
    return torch.tensor(thresholds).clamp_max(n)


def binarize(heatmaps: Tensor, thresholds: Sequence[int]) -> Tensor:
    """The top features of each heatmap at each threshold: [..., n] -> bool [..., k, n].

    Ties go to the lowest index.
    """
    n = heatmaps.shape[-1]
    counts = clip_thresholds(thresholds, n).to(heatmaps.device)
    top, _ = sort_features(heatmaps, int(counts.max()))
    rank = torch.full(heatmaps.shape, n, device=heatmaps.device)
    rank.scatter_(-1, top, torch.arange(top.shape[-1], device=top.device).expand_as(top))
    return rank.unsqueeze(-2) < counts.unsqueeze(-1)


def pool(heatmaps: Tensor, grid: Sequence[int]) -> Tensor:
    """Average each heatmap over the cells of a grid: [..., H, W] -> [..., rows, columns] [M7]."""
    area = sum_cells(heatmaps.new_ones(heatmaps.shape[-2:]), grid)
    return sum_cells(heatmaps, grid) / area


def pool_sets(sets: Tensor, grid: Sequence[int], at_least: bool = False) -> Tensor:
    """A cell is in the pooled set where its count exceeds the mean count over all cells [M7].

    ``at_least`` counts a cell that equals the mean too, as the authors' code does.
    """
    counts = sum_cells(sets.to(torch.float64), grid)
    mean = counts.mean((-2, -1), keepdim=True)
    return counts >= mean if at_least else counts > mean


def upsample(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Bring cell maps [..., rows, columns] to ``size``, to the nearest: the inverse of ``pool``."""
    return maps.flatten(-2)[..., number_cells(maps.shape[-2:], size)]


def check_heatmaps(heatmaps: Tensor, quiet: bool = False) -> Tensor:
    """Heatmaps [N, m, *shape] in [0, 1], detached and real, or an error that says what is wrong.

    ``quiet`` leaves out the warning of constant heatmaps.
    """
    must = "heatmaps must be one tensor [N, m, *shape], such as torch.stack(maps, dim=1)"
    heatmaps = read_tensor(heatmaps, must)
    dense = heatmaps.layout == torch.strided and not heatmaps.is_nested
    if heatmaps.is_complex() or heatmaps.is_meta or not dense:
        raise KindError(
            "heatmaps must be a dense tensor that holds real numbers (not complex, meta or sparse)"
        )
    if heatmaps.ndim < 3 or 0 in heatmaps.shape[1:]:
        raise InputError(
            "heatmaps must be [N, m, *shape] with at least one method and one feature; got shape "
            f"{list(heatmaps.shape)}: unsqueeze(0) a single input"
        )
    heatmaps = heatmaps.detach()
    if not heatmaps.is_floating_point():
        heatmaps = heatmaps.to(torch.float32)
    if len(heatmaps) == 0:
        return heatmaps
    low, high = heatmaps.flatten(2).aminmax(dim=2)
    for bad, what in (
        (~(low.isfinite() & high.isfinite()), "holds NaN or infinite values: replace or drop it"),
        ((low < 0) | (high > 1), "leaves [0, 1]: use sea_nn.paper.scale first"),
    ):
        if bool(bad.any()):
            raise InputError(f"{_name_first(bad)} {what}")
    still = low == high
    if not quiet and bool(still.any()):
        warnings.warn(
            f"{_name_first(still)} is constant, prefers no feature, and does not count",
            stacklevel=3,
        )
    return heatmaps.clone() if heatmaps.is_inference() else heatmaps


def _name_first(chosen: Tensor) -> str:
    i, method = chosen.nonzero()[0].tolist()
    more = int(chosen.sum()) - 1
    others = f" (and {more} more)" if more else ""
    return f"the heatmap of input {i}, method {method}{others}"


def check_weights(weights: Tensor | None, heatmaps: Tensor) -> Tensor:
    """Weights as float64 [N, m]; all ones if None."""
    count, m = heatmaps.shape[:2]
    weights = torch.ones(m) if weights is None else weights
    weights = read_tensor(weights, "weights must be numbers, one a method").detach()
    weights = weights.to(heatmaps.device, torch.float64)
    if weights.shape not in ((m,), (count, m)):
        raise InputError(
            f"weights must be [m] = [{m}] or [N, m] = [{count}, {m}]; got {tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InputError("weights must be finite and >= 0")
    return weights.expand(count, m)


def read_constraints(
    required: Tensor | None,
    forbidden: Tensor | None,
    epsilon: float,
    count: int,
    shape: tuple[int, ...],
    grid: Sequence[int] | None,
) -> list[Tensor]:
    """The two masks, [N, n], from those in the heatmaps' shape; a cell is bound if a pixel is."""
    bound = []
    for name, mask in (("required", required), ("forbidden", forbidden)):
        mask = torch.zeros(shape, dtype=torch.bool) if mask is None else mask
        mask = expand_mask(mask, name, count, shape).cpu()
        bound.append((mask if grid is None else sum_cells(mask.double(), grid) > 0).flatten(1))
    if bool((bound[0] & bound[1]).any()):
        raise InputError(
            "a feature is both required and forbidden"
            + (": two of its pixels share a cell of the grid" if grid is not None else "")
        )
    if required is None and epsilon != LEAST_GAIN:
        raise InputError("epsilon is the least gain of required features: give required=")
    if bound[0].any():
        check_number("epsilon", epsilon, above=0)
    return bound
