"""What the model says about points: variants of inputs with some features absent."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import Output, take
from sea_nn.questions.absent import Perturbation
from sea_nn.questions.opening import use_fold

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
    def empty(cls, shape: tuple[int, ...], like: Tensor) -> "PointOutputs":
        """Return room for answers of this shape, at least in single precision."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return cls(
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=torch.bool, device=like.device),
        )

    @classmethod
    def read(cls, outputs: Tensor, target: Tensor, output: Output) -> "PointOutputs":
        """Read outputs [P, K], ``output`` says what they are, for the columns ``target``."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        logit = take(outputs, target)
        if output.kind == "value":
            return cls(logit, logit, torch.zeros_like(logit, dtype=torch.bool))
        return cls(output.score(outputs, target), logit, output.predicts(outputs, target))

    def map(self, change: Callable[[Tensor], Tensor]) -> "PointOutputs":
        """Return the answers with every tensor changed alike."""
        return PointOutputs(change(self.score), change(self.logit), change(self.predicted))

    def put(self, place: slice | Tensor, other: "PointOutputs") -> None:
        """Write other answers into these."""
        self.score[place] = other.score
        self.logit[place] = other.logit
        self.predicted[place] = other.predicted

    def read_as(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        if kind not in ("probability", "logit"):
            raise InputError(f"score must be 'probability' or 'logit'; got {kind!r}")
        return self.score if kind == "probability" else self.logit


def ask_points(
    evaluator: Evaluator,
    rows: Tensor,
    build: Callable[[slice], Tensor],
    keep: Callable[[Tensor], None] = lambda outputs: None,
) -> PointOutputs:
    """Return the model's answers about P points, in chunks that fit into memory.

    Args:
        evaluator: the model and the inputs.
        rows: the input that each point is a variant of, [P].
        build: returns the points [p, ...] of a slice of 0 to P.
        keep: is given the model's own outputs [p, K], part by part.
    """
    answers = PointOutputs.empty((len(rows),), evaluator.x)
    evaluator = use_fold(evaluator, len(rows))
    total, size = len(rows), evaluator.limit if evaluator.x.device.type == "cpu" else None

    def visit(start: int, stop: int) -> None:
        part = slice(start, stop)
        with torch.no_grad():
            outputs = evaluator.forward(evaluator.arrange(build(part)), rows[part])
            answers.put(
                part, PointOutputs.read(outputs, evaluator.target[rows[part]], evaluator.meaning())
            )
            keep(outputs)

    if size is not None:
        size = math.ceil(total / max(1, math.ceil(total / size)))
    evaluator.sweep(total, visit, size=size, gradient=False)
    _check_answers(answers, evaluator.meaning())
    return answers


def ask_hidden(evaluator: Evaluator, perturbation: Perturbation) -> PointOutputs:
    """Return the answers about the inputs hidden altogether, [N]."""
    rows = torch.arange(len(evaluator.x), device=evaluator.x.device)

    def build(part: slice) -> Tensor:
        hidden = torch.ones_like(evaluator.x[rows[part]], dtype=torch.bool)
        return perturbation.hide(hidden, rows[part])

    return ask_points(evaluator, rows, build)


def _check_answers(answers: PointOutputs, output: Output) -> None:
    """Refuse answers that are no numbers, or no probabilities where these are expected."""
    wrong, said = answers.score.isnan() | answers.logit.isnan(), "NaN"
    if output.kind == "probabilities":
        wrong |= (answers.score < -0.01) | (answers.score > 1.01)
        said = "NaN, or numbers outside 0 to 1 where probabilities are expected,"
    if bool(wrong.any()):
        raise InputError(
            f"the model returned {said} for {int(wrong.sum())} of {wrong.numel()} inputs with "
            "features hidden, though not for the whole inputs; hide them in another way, or say "
            "what the model's outputs are (output=)"
        )
