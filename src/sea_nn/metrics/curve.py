"""Ask the model about partly hidden inputs, and measure the area under its answers [M13].

The points of all inputs, methods and steps are numbered first and then built, chunk by chunk, on
the device: a step map compared with the steps, and one ``torch.where``. A point whose answer is
known is not asked again: an input of which nothing is hidden, or everything, and a step that hides
nothing that looks different (black pixels set to black).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.errors import InputError
from sea_nn.features import Kind
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import take
from sea_nn.model.probe import Perturbation, ask_points

ScoreKind = Literal["probability", "logit"]


@dataclass(frozen=True)
class PointOutputs:
    """What the model says about the explained class, in tensors of one shape.

    Attributes:
        score: its probability; of a model of values, the value.
        logit: the model's output itself.
        predicted: whether the model predicts the class; False of a model of values.
    """

    score: Tensor
    logit: Tensor
    predicted: Tensor

    @classmethod
    def of(cls, table: Tensor) -> PointOutputs:
        """From what ``ask`` returns, [..., 3]."""
        score, logit, predicted = table.unbind(-1)
        return cls(score, logit, predicted > 0)

    def read_as(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        if kind not in ("probability", "logit"):
            raise InputError(f"score must be 'probability' or 'logit'; got {kind!r}")
        return self.score if kind == "probability" else self.logit


def ask(evaluator: Evaluator, rows: Tensor, build: Callable[[slice], Tensor]) -> Tensor:
    """Return what the model says about P points, see ``ask_points``: [P, 3]."""
    if not len(rows):
        return torch.empty(0, 3, dtype=evaluator.outputs.dtype, device=rows.device)
    return ask_points(evaluator, rows, build, read=lambda said, rows: _read(evaluator, said, rows))


def _read(evaluator: Evaluator, outputs: Tensor, rows: Tensor) -> Tensor:
    """Score, output and whether the class is predicted, of outputs [P, K] about inputs [P]."""
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    kind, target = evaluator.output, evaluator.target[rows]
    logit = take(outputs, target)
    if kind.kind == "value":
        return torch.stack([logit, logit, torch.zeros_like(logit)], 1)
    return torch.stack([kind.score(outputs, target), logit, kind.predicts(outputs, target)], 1)


def ask_hidden(evaluator: Evaluator, perturbation: Perturbation) -> Tensor:
    """Return what the model says about the inputs hidden altogether, [N, 3]."""
    rows = torch.arange(len(evaluator.x), device=evaluator.x.device)

    def build(part: slice) -> Tensor:
        hidden = torch.ones_like(evaluator.x[rows[part]], dtype=torch.bool)
        return perturbation.hide(hidden, rows[part])

    return ask(evaluator, rows, build)


def trace(
    evaluator: Evaluator,
    perturbation: Perturbation,
    step_maps: Tensor,
    steps: int,
    *,
    kind: Kind,
    insert: bool,
    whole: Callable[[], Tensor],
) -> PointOutputs:
    """Return the answers after 0, 1, ..., ``steps`` steps, [N, m, steps + 1].

    ``step_maps`` are int16 [N, m, n], see ``order``, over maps of inputs of this ``kind``. To
    ``insert``, start with everything hidden, and each step shows what it would hide; ``whole``
    gives what ``ask_hidden`` does.
    """
    n_inputs, n_maps = step_maps.shape[:2]
    changed = kind.over_map(perturbation.changed())
    shape = changed.shape[1:]
    changed = changed.flatten(1)
    bins = step_maps.long().clamp_(max=steps + 1)
    source = changed.to(torch.int32).unsqueeze(1).expand(step_maps.shape)
    new = source.new_zeros(n_inputs, n_maps, steps + 2).scatter_add_(-1, bins, source)[..., :-1]
    done = new.cumsum(-1)
    none, every = done == 0, done == changed.sum(1)[:, None, None]
    wanted = (new > 0) & ~every
    rows, methods, at = wanted.nonzero().unbind(1)
    flat, numbers, last_step = step_maps.flatten(0, 1), rows * n_maps + methods, at.to(torch.int16)

    def build(part: slice) -> Tensor:
        hidden = flat.index_select(0, numbers[part]) <= last_step[part, None]
        hidden = ~hidden if insert else hidden
        return perturbation.hide(kind.over_input(hidden.view(-1, *shape)), rows[part])

    intact = _read(evaluator, evaluator.outputs, torch.arange(n_inputs, device=rows.device))
    table = intact.new_zeros(n_inputs, n_maps, steps + 1, 3)
    table[rows, methods, at] = ask(evaluator, rows, build).to(table)
    # A step that changes nothing repeats the last one that was asked.
    step = torch.arange(steps + 1, device=rows.device)
    last = torch.where(wanted, step, 0).cummax(-1).values
    table = table.gather(2, last.unsqueeze(-1).expand(table.shape))
    hidden, shown = (none, every) if insert else (every, none)
    if bool(hidden.any()):
        table = torch.where(hidden.unsqueeze(-1), whole()[:, None, None].to(table), table)
    # Where nothing looks different when hidden, all steps are both: the intact input wins.
    return PointOutputs.of(torch.where(shown.unsqueeze(-1), intact[:, None, None], table))


def trapezoid(curves: Tensor, dx: float = 1.0) -> Tensor:
    """Return the area under curves [..., points] by the trapezoid rule.

    >>> trapezoid(torch.tensor([1.0, 0.5, 0.0]))
    tensor(1.)
    """
    return (curves.sum(-1) - (curves[..., 0] + curves[..., -1]) / 2) * dx


def simpson(curves: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return the area under curves [..., points] by Simpson's rule, points 1 apart.

    With an even number of points the rule leaves one interval over; it is taken by the trapezoid
    rule once at the end and once at the start, and the two areas are averaged (what SciPy's
    ``simps`` did when the paper was written). Of each curve only the ``counts`` [...] leading
    points are used, if given.

    >>> simpson(torch.tensor([0.0, 1.0, 4.0]))
    tensor(2.6667)
    """
    points = curves.shape[-1]
    rows = [pad(_simpson_weights(count), (0, points - count)) for count in range(points + 1)]
    table = torch.stack(rows).to(curves)
    weights = table[-1] if counts is None else table[counts]
    return (curves * weights).sum(-1)


def _simpson_weights(count: int) -> Tensor:
    weights = torch.zeros(count, dtype=torch.float64)
    if count % 2 == 0 and count:
        weights[:-1] = _simpson_weights(count - 1)
        weights[-2:] += 0.5
        return (weights + weights.flip(0)) / 2
    for start in range(0, count - 2, 2):
        weights[start : start + 3] += weights.new_tensor([1.0, 4.0, 1.0]) / 3
    return weights
