"""What the model answers about partly hidden inputs, and the area under its answers [M13]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import take

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
        """From what ``read`` returns, [..., 3]."""
        score, logit, predicted = table.unbind(-1)
        return cls(score, logit, predicted > 0)

    def read_as(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        return self.score if kind == "probability" else self.logit


def read(evaluator: Evaluator, outputs: Tensor, rows: Tensor) -> Tensor:
    """Score, output and whether the class is predicted, of outputs [P, K] about inputs [P]."""
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    kind, target = evaluator.output, evaluator.target[rows]
    logit = take(outputs, target)
    if kind.kind == "value":
        return torch.stack([logit, logit, torch.zeros_like(logit)], 1)
    return torch.stack([kind.score(outputs, target), logit, kind.predicts(outputs, target)], 1)


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
