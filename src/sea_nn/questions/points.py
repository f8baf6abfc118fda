"""What the model says about points: variants of inputs with some features absent."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.passes.evaluator import Evaluator
from sea_nn.questions.absent import Perturbation, positions
from sea_nn.questions.session import use_fold

ScoreKind = Literal["probability", "logit"]


@dataclass(frozen=True)
class PointAnswers:
    """What the model says about the explained class, in tensors of one shape.

    Attributes:
        probability: softmax probability; of a model with a single output, that output.
        logit: the model's output itself.
        predicted: the class with the largest output.
    """

    probability: Tensor
    logit: Tensor
    predicted: Tensor

    @classmethod
    def empty(cls, shape: tuple[int, ...], like: Tensor) -> "PointAnswers":
        """Return room for answers of this shape, at least in single precision."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return cls(
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=torch.int64, device=like.device),
        )

    @classmethod
    def read(cls, logits: Tensor, target: Tensor) -> "PointAnswers":
        """Read logits [P, classes] for the classes ``target`` [P]."""
        column = target.unsqueeze(1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logit = logits.gather(1, column).squeeze(1)
        if logits.shape[1] == 1:
            return cls(logit, logit, torch.zeros_like(target))
        probability = logits.softmax(1).gather(1, column).squeeze(1)
        return cls(probability, logit, logits.argmax(1))

    def map(self, change: Callable[[Tensor], Tensor]) -> "PointAnswers":
        """Return the answers with every tensor changed alike."""
        return PointAnswers(change(self.probability), change(self.logit), change(self.predicted))

    def put(self, place: slice | Tensor, other: "PointAnswers") -> None:
        """Write other answers into these."""
        self.probability[place] = other.probability
        self.logit[place] = other.logit
        self.predicted[place] = other.predicted

    def score(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        if kind not in ("probability", "logit"):
            raise InputError(f"score must be 'probability' or 'logit'; got {kind!r}")
        return self.probability if kind == "probability" else self.logit


def ask_points(task: Evaluator, rows: Tensor, build: Callable[[slice], Tensor]) -> PointAnswers:
    """Return the model's answers about P points, in chunks that fit into memory.

    Args:
        task: the model and the inputs.
        rows: the input that each point is a variant of, [P].
        build: returns the points [p, ...] of a slice of 0 to P.
    """
    answers = PointAnswers.empty((len(rows),), task.x)
    task = use_fold(task, len(rows))
    total, size = len(rows), task.limit if task.x.device.type == "cpu" else None

    def visit(start: int, stop: int) -> None:
        part = slice(start, stop)
        with torch.no_grad():
            logits = task.forward(task.arrange(build(part)), rows[part])
            answers.put(part, PointAnswers.read(logits, task.target[rows[part]]))

    if size is not None:
        size = math.ceil(total / max(1, math.ceil(total / size)))
    task.sweep(total, visit, size=size, gradient=False)
    return answers


def ask_hidden(task: Evaluator, perturbation: Perturbation) -> PointAnswers:
    """Return the answers about the inputs hidden altogether, [N]."""
    rows = torch.arange(len(task.x), device=task.x.device)

    def build(part: slice) -> Tensor:
        hidden = torch.ones((), dtype=torch.bool, device=task.x.device)
        shape = (len(rows[part]), *positions(task.x))
        return perturbation.hide(hidden.expand(shape), rows[part])

    return ask_points(task, rows, build)
