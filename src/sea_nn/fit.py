"""Learning: heatmaps and sets in, the scorer out [M5].

A constant start keeps all units of a layer equal for ever (docs/math.md), so ``fit`` then trains
the collapsed twin: n + 7 numbers instead of half a million, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.dsf import Scorer, check_init
from sea_nn.solver import Solver
from sea_nn.task import CollapsedTask, NetworkTask, Supervision, Terms

MapOf = Callable[[Scorer], Tensor]
Projection = Callable[[Scorer], None]


@dataclass
class Record:
    """What happened in each epoch, [N, epochs] each: the objective, its terms, the map's change.

    ``map_change`` is the L1 distance between successive maps over the L1 norm of the newer one
    (NaN where it was not asked for); ``epochs`` counts the steps each input took, [N].
    ``sea_nn.plots.plot_record`` draws it.
    """

    objective: Tensor
    heatmap: Tensor
    margin: Tensor
    floor: Tensor
    decay: Tensor
    map_change: Tensor
    epochs: Tensor

    @classmethod
    def of(cls, history: list[tuple[Terms, Tensor]], epochs: Tensor) -> Record:
        """From the terms and the map's change of every epoch."""
        rows = [[*vars(terms).values(), change] for terms, change in history]
        if not rows:
            rows = [[epochs.new_zeros(len(epochs), dtype=torch.float64)] * 5]
        columns = [torch.stack(column, 1)[:, : len(history)] for column in zip(*rows, strict=True)]
        heatmap, margin, floor, decay, change = columns
        total = heatmap + margin + floor + decay
        return cls(total, heatmap, margin, floor, decay, change, epochs)

    @classmethod
    def concatenate(cls, records: list[Record]) -> Record:
        """Join the records of several chunks of inputs; shorter ones are padded with NaN."""
        longest = max(record.objective.shape[1] for record in records)

        def padded(column: Tensor) -> Tensor:
            if column.ndim == 1:
                return column
            space = (0, longest - column.shape[1])
            return torch.nn.functional.pad(column, space, value=torch.nan)

        return cls(*(torch.cat([padded(getattr(r, f.name)) for r in records]) for f in fields(cls)))


def fit(
    supervision: Supervision,
    config: SEAConfig,
    *,
    map_of: MapOf | None = None,
    project: Projection | None = None,
    collapse: bool = True,
) -> tuple[Scorer, Record]:
    """Minimise the objective [M2, M3] for every input at once.

    Args:
        supervision: heatmaps and sets.
        config: solver, weights and architecture.
        map_of: the attribution that a scorer gives; needed to record or to stop on its change.
        project: further constraints, restored after every step [M8].
        collapse: use the collapsed form where it applies; False forces the full network.

    Returns:
        The scorer (a batch of N functions) and the record of its training.
    """
    low, high = check_init(config.init)
    task = (CollapsedTask if low == high and collapse else NetworkTask)(supervision, config)
    solver = Solver(config)
    count = len(supervision.heatmaps)
    active = torch.ones(count, dtype=torch.bool, device=supervision.heatmaps.device)
    epochs = torch.zeros_like(active, dtype=torch.int64)
    unknown = torch.full_like(epochs, torch.nan, dtype=torch.float64)
    history: list[tuple[Terms, Tensor]] = []
    if project is not None:
        project(task.scorer)
    previous = map_of(task.scorer) if map_of is not None else None
    for epoch in range(config.epochs):
        terms, gradients = task.evaluate()
        before = [p.clone() for p in task.parameters] if config.tolerance else []
        solver.step(epoch, task.parameters, gradients)
        if project is not None:
            project(task.scorer)
        for parameter, old in zip(task.parameters, before, strict=bool(before)):
            moving = active.reshape(-1, *[1] * (parameter.ndim - 1))
            parameter.copy_(torch.where(moving, parameter, old))
        change = unknown
        if map_of is not None and previous is not None:
            current = map_of(task.scorer)
            change = _relative_change(previous, current)
            previous = current
        history.append((terms, change))
        epochs = epochs + active
        if config.tolerance:
            active = active & (change > config.tolerance)
            if not bool(active.any()):
                break
    return task.scorer.requires_grad_(False), Record.of(history, epochs)


def _relative_change(old: Tensor, new: Tensor) -> Tensor:
    moved, size = (new - old).abs().sum(1), new.abs().sum(1)
    return moved / size.clamp_min(torch.finfo(size.dtype).tiny)
