"""Columns of a table that belong together, found from data."""

import torch
from torch import Tensor

from sea_nn.errors import InputError


def group_columns(data: Tensor, correlated: float | None = None) -> Tensor:
    """Number the features of a table: one-hot codes and, if asked, correlated columns are one each.

    A one-hot code is a run of neighbouring columns of 0 and 1 of which exactly one is 1 in every
    row. The numbers are a ``feature_mask``.

    Args:
        data: rows to look at, [B, F]; the more, the fewer codes are found by chance.
        correlated: columns whose correlation is at least this in size are one feature, and those
            that others link; None: not looked at.

    >>> rows = torch.tensor([[1.0, 0, 0.3, 1], [0, 1, 0.7, 1], [1, 0, 0.1, 0]])
    >>> group_columns(rows)
    tensor([0, 0, 1, 2])
    """
    if data.ndim != 2 or len(data) < 2:
        raise InputError(f"columns are grouped by at least two rows [B, F]; got {list(data.shape)}")
    if correlated is not None and not 0 < correlated <= 1:
        raise InputError(f"correlated must lie above 0 and up to 1; got {correlated}")
    count = data.shape[1]
    linked = torch.eye(count, dtype=torch.bool)
    binary = ((data == 0) | (data == 1)).all(0).tolist()
    start = 0
    while start < count:
        stop, total = start, torch.zeros_like(data[:, 0])
        while stop < count and binary[stop] and bool((total + data[:, stop] <= 1).all()):
            total = total + data[:, stop]
            stop += 1
            if bool((total == 1).all()):
                linked[start:stop, start:stop] = True
                break
        else:
            stop = start + 1
        start = stop
    if correlated is not None:
        centred = data.double() - data.double().mean(0)
        unit = centred / centred.norm(dim=0).clamp_min(1e-300)
        linked |= ((unit.T @ unit).abs() >= correlated).to(linked.device)
    for _ in range(count.bit_length()):  # what is linked by others is linked
        linked = (linked.float() @ linked.float()) > 0
    first = linked.int().argmax(1)
    numbers: Tensor = first.unique(return_inverse=True)[1]
    return numbers
