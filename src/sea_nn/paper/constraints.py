"""Axioms as constraints that the learned function keeps exactly [M8].

Sensitivity(a), *required*: f(1) - f(1 - e_v) >= epsilon. f is submodular, so the gain of v is then
at least epsilon in every context. Sensitivity(b), *forbidden*: f({v}) = f(0), so it is 0 in all.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sea_nn.config import check_number
from sea_nn.errors import InputError
from sea_nn.features import expand_mask, sum_cells
from sea_nn.paper.dsf import DSF

STEPS = 60
"""So often the level of required columns is bisected."""
LEAST_GAIN = 1e-3
"""The least gain of a required feature, where nobody says it."""
LEAST, MOST = -1000.0, 40.0
"""Powers of two between which that level lies, in units of the mean column."""


@torch.no_grad()
def restore(f: DSF, required: Tensor, forbidden: Tensor, epsilon: float) -> None:
    """Make f keep the constraints, in place: forbidden columns to 0, required ones raised.

    Required columns are raised to a common least level, found by bisection, so that their features
    keep a gain of at least ``epsilon``, in units of f. Masks are bool, [N, n].
    """
    columns = f.first_layer().detach().masked_fill_(forbidden.unsqueeze(1), 0)
    if not required.any():
        return
    start = columns.clone()

    unit = columns.mean((1, 2), keepdim=True).clamp_min(1e-3)

    def raise_to(power: Tensor) -> Tensor:
        """Raise the required columns to a level; returns their least gain, [N, 1, 1]."""
        level = start.maximum(unit * power.exp2())
        columns.copy_(torch.where(required.unsqueeze(1), level, start))
        return _least_gain(f, required)[:, None, None]

    low, high = torch.full_like(unit, LEAST), torch.full_like(unit, MOST)
    gains = raise_to(high)
    if bool((gains < epsilon).any()):
        raise InputError(
            f"no weights give every required feature a gain of {epsilon:g}: the function "
            f"saturates at {float(gains.amin()):.3g}; lower epsilon or require fewer features"
        )
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = raise_to(middle) >= epsilon
        low, high = low.where(enough, middle), middle.where(enough, high)
    raise_to(high)


def _least_gain(f: DSF, required: Tensor) -> Tensor:
    """min over required v of f(1) - f(1 - e_v), for each input: [N] (inf where none is)."""
    first = f.first_layer().detach()
    index = required.byte().topk(int(required.sum(1).amax()), dim=1).indices
    step = first.gather(2, index.unsqueeze(1).expand(-1, first.shape[1], -1))
    rest = (first.sum(2, keepdim=True) - step).clamp_min(0)
    gains = f.rise_above(rest, step)
    return torch.where(required.gather(1, index), gains, torch.inf).amin(1)


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
