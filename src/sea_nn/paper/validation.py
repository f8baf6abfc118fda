"""Refuse heatmaps, weights and constraints that cannot be used, and say why."""

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from sea_nn.errors import AssumptionWarning, InputError, KindError
from sea_nn.features import expand_mask, sum_cells
from sea_nn.paper.constraints import Constraints

MANY_METHODS = 16
"""More methods than this, on tables, are taken for the rows of a picture: [m, H, W]."""


def check_heatmaps(heatmaps: Tensor, quiet: bool = False) -> Tensor:
    """Heatmaps [N, m, *shape] in [0, 1], detached and real, or an error that says what is wrong.

    ``quiet`` leaves out the warnings, of constant heatmaps and of three axes that look like
    [m, H, W].
    """
    if not isinstance(heatmaps, Tensor):
        try:
            heatmaps = torch.as_tensor(heatmaps)
        except (TypeError, ValueError, RuntimeError) as error:
            raise KindError(
                f"heatmaps must be one tensor [N, m, *shape]; got {type(heatmaps).__name__} "
                "(stack several maps with torch.stack(maps, dim=1))"
            ) from error
    if heatmaps.is_complex():
        raise KindError("heatmaps must be real numbers; these are complex")
    if heatmaps.is_meta or heatmaps.layout != torch.strided or heatmaps.is_nested:
        raise KindError("heatmaps must be a dense tensor that holds numbers (not meta, not sparse)")
    if heatmaps.ndim < 3:
        raise InputError(
            f"heatmaps must be [N, m, *shape] (inputs, methods, features); got shape "
            f"{tuple(heatmaps.shape)}: unsqueeze(0) a single input"
        )
    count, m = heatmaps.shape[:2]
    if not quiet and heatmaps.ndim == 3 and 1 < count <= MANY_METHODS < m:
        warnings.warn(
            f"heatmaps {list(heatmaps.shape)} were read as {count} inputs with {m} methods and "
            f"{heatmaps.shape[2]} features each; for {count} heatmaps [m, H, W] of one picture, "
            "give heatmaps.unsqueeze(0)",
            AssumptionWarning,
            stacklevel=3,
        )
    if m == 0:
        raise InputError("there is no heatmap: m = 0 methods; give at least one")
    if math.prod(heatmaps.shape[2:]) == 0:
        raise InputError(f"heatmaps of shape {tuple(heatmaps.shape[2:])} have no features")
    heatmaps = heatmaps.detach()
    if heatmaps.numel() == 0:
        return heatmaps
    flat = heatmaps.reshape(*heatmaps.shape[:2], -1)
    if flat.dtype == torch.bool or not flat.is_floating_point():
        flat = flat.to(torch.float32)
        heatmaps = flat.reshape(heatmaps.shape)
    low, high = flat.aminmax(dim=2)
    _refuse(
        ~(low.isfinite() & high.isfinite()), "holds NaN or infinite values", "replace or drop it"
    )
    _refuse((low < 0) | (high > 1), "leaves [0, 1]", "use sea_nn.paper.heatmaps.scale first")
    still = low == high
    if not quiet and bool(still.any()):
        warnings.warn(
            f"{_where(still)} is constant, prefers no feature, and does not count", stacklevel=3
        )
    return heatmaps.clone() if heatmaps.is_inference() else heatmaps


def _where(bad: Tensor) -> str:
    first = [int(i) for i in bad.nonzero()[0]]
    more = int(bad.sum()) - 1
    others = f" (and {more} more)" if more else ""
    return f"the heatmap of input {first[0]}, method {first[1]}{others}"


def _refuse(bad: Tensor, what: str, advice: str) -> None:
    if bool(bad.any()):
        raise InputError(f"{_where(bad)} {what}: {advice}")


def check_weights(weights: Tensor | None, heatmaps: Tensor) -> Tensor:
    """Weights as float64 [N, m]; all ones if None."""
    count, m = heatmaps.shape[:2]
    if weights is None:
        return torch.ones(count, m, dtype=torch.float64, device=heatmaps.device)
    try:
        weights = torch.as_tensor(weights, dtype=torch.float64, device=heatmaps.device).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(f"weights must be numbers, one a method; got {weights!r}") from error
    if weights.shape not in ((m,), (count, m)):
        raise InputError(
            f"weights must be [m] = [{m}] or [N, m] = [{count}, {m}]; got {tuple(weights.shape)}"
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InputError("weights must be finite and >= 0")
    return weights.expand(count, m)


def check_chunk(chunk: int | None) -> None:
    """Refuse a number of inputs at once that is none."""
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise InputError(f"chunk must be a whole number of inputs from 1, or None; got {chunk!r}")


def read_constraints(
    required: Tensor | None,
    forbidden: Tensor | None,
    epsilon: float,
    count: int,
    shape: tuple[int, ...],
    grid: Sequence[int] | None = None,
) -> Constraints:
    """Constraints from masks in the heatmaps' shape; a grid's cell is bound if any pixel is."""
    bound: dict[str, Tensor] = {}
    for name, mask in (("required", required), ("forbidden", forbidden)):
        if mask is None or not count:
            continue
        mask = expand_mask(mask, name, count, shape)
        cells = mask if grid is None else sum_cells(mask.to(torch.float64), grid) > 0
        bound[name] = cells.reshape(count, -1)
    if len(bound) == 2 and bool(
        (bound["required"] & bound["forbidden"].to(bound["required"].device)).any()
    ):
        raise InputError(
            "a feature is both required and forbidden"
            + (": two of its pixels share a cell of the grid" if grid is not None else "")
        )
    number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if "required" in bound and not (number and 0 < epsilon < float("inf")):
        raise InputError(f"epsilon must be above 0 for required features; got {epsilon}")
    return Constraints(**bound, epsilon=epsilon)
