"""Learning: heatmaps and sets in, the scorer out [M5].

A constant start keeps all units of a layer equal for ever (docs/math.md), so ``fit`` then trains
the collapsed form: n + 7 numbers instead of half a million, with the same result.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.paper.dsf import Scorer
from sea_nn.paper.objective import TrainingData
from sea_nn.paper.solvers import Solver
from sea_nn.paper.trainers import CollapsedTrainer, NetworkTrainer

MapOf = Callable[[Scorer], Tensor]
Projection = Callable[[Scorer], None]


@dataclass
class History:
    """What happened in each epoch, [N, epochs] each: the objective, its terms, the map's change.

    ``map_change`` is the L1 distance between successive maps over the L1 norm of the newer one
    (NaN where it was not asked for); ``epochs`` counts the steps each input took, [N].
    ``sea_nn.show.charts.plot_history`` draws it.
    """

    objective: Tensor
    heatmap: Tensor
    margin: Tensor
    floor: Tensor
    decay: Tensor
    map_change: Tensor
    epochs: Tensor

    @classmethod
    def of(cls, history: Tensor, epochs: Tensor) -> "History":
        """From the terms and the map's change, [epochs run, 5, N], and the steps taken [N]."""
        heatmap, margin, floor, decay, change = history.permute(1, 2, 0)
        return cls(heatmap + margin + floor + decay, heatmap, margin, floor, decay, change, epochs)

    @classmethod
    def concatenate(cls, parts: "list[History]") -> "History":
        """Join the histories of several chunks of inputs; shorter ones are padded with NaN."""
        longest = max(part.objective.shape[1] for part in parts)

        def padded(column: Tensor) -> Tensor:
            if column.ndim == 1:
                return column
            space = (0, longest - column.shape[1])
            return torch.nn.functional.pad(column, space, value=torch.nan)

        return cls(
            *(torch.cat([padded(getattr(part, f.name)) for part in parts]) for f in fields(cls))
        )


def fit(
    data: TrainingData,
    config: SEAConfig,
    *,
    map_of: MapOf | None = None,
    project: Projection | None = None,
    collapse: bool = True,
) -> tuple[Scorer, History]:
    """Minimise the objective [M2, M3] for every input at once.

    ``map_of`` gives a scorer's attribution, which is needed to record or to stop on its change;
    ``project`` restores further constraints after every step [M8]; ``collapse=False`` forces the
    full network where the collapsed form would do. Returns a batch of N functions.
    """
    form = CollapsedTrainer if config.constant_start and collapse else NetworkTrainer
    trainer = form(data, config)
    solver = Solver(config, trainer.layers)
    count, device = len(data.heatmaps), data.heatmaps.device
    history = torch.full((config.epochs, 5, count), torch.nan, dtype=torch.float64, device=device)
    active = torch.ones(count, dtype=torch.bool, device=device)
    epochs = torch.zeros_like(active, dtype=torch.int64)
    simple = map_of is None and project is None and not config.tolerance
    if device.type == "cuda" and simple and isinstance(trainer, CollapsedTrainer) and config.epochs:
        _replay(trainer, solver, history)
        return trainer.scorer.requires_grad_(False), History.of(history, epochs + config.epochs)
    if project is not None:
        project(trainer.scorer)
    previous = map_of(trainer.scorer) if map_of is not None else None
    for epoch in range(config.epochs):
        terms, gradients = trainer.evaluate()
        history[epoch, :4] = torch.stack(list(vars(terms).values()))
        before = [p.clone() for p in trainer.parameters] if config.tolerance else []
        solver.step(epoch, trainer.parameters, gradients)
        if project is not None:
            project(trainer.scorer)
        for parameter, old in zip(trainer.parameters, before, strict=bool(before)):
            moving = active.reshape(-1, *[1] * (parameter.ndim - 1))
            parameter.copy_(torch.where(moving, parameter, old))
        epochs = epochs + active
        if map_of is not None and previous is not None:
            current = map_of(trainer.scorer)
            history[epoch, 4] = _relative_change(previous, current)
            previous = current
        if config.tolerance:
            active = active & (history[epoch, 4] > config.tolerance)
            if not bool(active.any()):
                break
    history = history[: int(epochs.amax())] if count else history
    return trainer.scorer.requires_grad_(False), History.of(history, epochs)


def _replay(trainer: CollapsedTrainer, solver: Solver, history: Tensor) -> None:
    """All epochs on a GPU: the first as it is, the others as replays of one captured graph.

    An epoch is a hundred kernels of microseconds each: launched one by one, the launches would
    take nine tenths of the time.
    """
    epoch = torch.zeros((), dtype=torch.float64, device=history.device)

    def step() -> None:
        terms, gradients = trainer.evaluate()
        row = torch.stack(list(vars(terms).values()))
        history[:, :4].index_copy_(0, epoch.long().reshape(1), row.unsqueeze(0))
        solver.step(epoch, trainer.parameters, gradients)
        epoch.add_(1)

    aside = torch.cuda.Stream(history.device)
    aside.wait_stream(torch.cuda.current_stream(history.device))
    with torch.cuda.stream(aside):
        step()
    torch.cuda.current_stream(history.device).wait_stream(aside)
    if len(history) > 1:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for _ in range(len(history) - 1):
            graph.replay()


def _relative_change(old: Tensor, new: Tensor) -> Tensor:
    moved, size = (new - old).abs().sum(1), new.abs().sum(1)
    return moved / size.clamp_min(torch.finfo(size.dtype).tiny)
