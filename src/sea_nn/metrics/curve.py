"""Ask the model about partly hidden inputs, and measure the area under its answers [M13].

The points of all inputs, methods and steps are numbered first and then built, chunk by chunk, on
the device: a step map compared with the steps, and one ``torch.where``. A point whose answer is
known is not asked again: an input of which nothing is hidden, or everything, and a step that hides
nothing that looks different (black pixels set to black).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.passes.evaluator import Evaluator
from sea_nn.questions.absent import Perturbation, positions
from sea_nn.questions.session import find_fold, recall_chain

ScoreKind = Literal["probability", "logit"]


@dataclass(frozen=True)
class Answers:
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
    def empty(cls, shape: tuple[int, ...], like: Tensor) -> "Answers":
        """Return room for answers of this shape, at least in single precision."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return cls(
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=torch.int64, device=like.device),
        )

    @classmethod
    def read(cls, logits: Tensor, target: Tensor) -> "Answers":
        """Read logits [P, classes] for the classes ``target`` [P]."""
        column = target.unsqueeze(1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logit = logits.gather(1, column).squeeze(1)
        if logits.shape[1] == 1:
            return cls(logit, logit, torch.zeros_like(target))
        probability = logits.softmax(1).gather(1, column).squeeze(1)
        return cls(probability, logit, logits.argmax(1))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Answers":
        """Return the answers with every tensor changed alike."""
        return Answers(change(self.probability), change(self.logit), change(self.predicted))

    def put(self, place: slice | Tensor, other: "Answers") -> None:
        """Write other answers into these."""
        self.probability[place] = other.probability
        self.logit[place] = other.logit
        self.predicted[place] = other.predicted

    def score(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        if kind not in ("probability", "logit"):
            raise InputError(f"score must be 'probability' or 'logit'; got {kind!r}")
        return self.probability if kind == "probability" else self.logit


def ask(task: Evaluator, rows: Tensor, build: Callable[[slice], Tensor]) -> Answers:
    """Return the model's answers about P points, in chunks that fit into memory.

    Args:
        task: the model and the inputs.
        rows: the input that each point is a variant of, [P].
        build: returns the points [p, ...] of a slice of 0 to P. On a CPU it pays if each is much
            like the one before; see `sea_nn.passes.chain`.
    """
    answers = Answers.empty((len(rows),), task.x)
    chain = recall_chain(task, len(rows), build)
    fold = find_fold(task, len(rows))
    task = replace(task, folded=fold)
    total, size = len(rows), task.limit if task.x.device.type == "cpu" else None
    forward = task.forward
    if chain is not None:
        size, forward = chain.size, partial(chain.forward, task)

    def visit(start: int, stop: int) -> None:
        part = slice(start, stop)
        with torch.no_grad():
            logits = forward(task.arrange(build(part)), rows[part])
            answers.put(part, Answers.read(logits, task.target[rows[part]]))

    if size is not None:
        size = math.ceil(total / max(1, math.ceil(total / size)))
    with fold.applied():
        task.sweep(total, visit, size=size, gradient=False)
    return answers


def ask_hidden(task: Evaluator, perturbation: Perturbation) -> Answers:
    """Return the answers about the inputs hidden altogether, [N]."""
    rows = torch.arange(len(task.x), device=task.x.device)

    def build(part: slice) -> Tensor:
        hidden = torch.ones((), dtype=torch.bool, device=task.x.device)
        shape = (len(rows[part]), *positions(task.x))
        return perturbation.hide(hidden.expand(shape), rows[part])

    return ask(task, rows, build)


def trace(
    task: Evaluator,
    perturbation: Perturbation,
    step_maps: Tensor,
    steps: int,
    *,
    insert: bool = False,
    whole: Callable[[], Answers] | None = None,
) -> Answers:
    """Return the answers after 0, 1, ..., ``steps`` steps, [N, m, steps + 1].

    Args:
        task: the model and the inputs, with ``task.logits`` the answers about them.
        perturbation: how positions are hidden.
        step_maps: the step that hides each position, int16 [N, m, n]; see ``order``.
        steps: the last step.
        insert: start with everything hidden, and each step shows what it would hide.
        whole: gives the answers of ``ask_hidden``, if they are known.
    """
    n_inputs, n_maps = step_maps.shape[:2]
    changed = perturbation.changed()
    bins = step_maps.long().clamp_(max=steps + 1)
    source = changed.to(torch.int32).unsqueeze(1).expand(step_maps.shape)
    new = source.new_zeros(n_inputs, n_maps, steps + 2).scatter_add_(-1, bins, source)
    done = new.cumsum(-1)[..., :-1]
    everything = changed.sum(1)[:, None, None]
    new = new[..., :-1] > 0
    none, every = done == 0, done == everything
    wanted = (new & ~every).nonzero()
    rows, methods, at = wanted.unbind(1)
    flat, numbers, last_step = step_maps.flatten(0, 1), rows * n_maps + methods, at.to(torch.int16)

    def build(part: slice) -> Tensor:
        hidden = flat.index_select(0, numbers[part]) <= last_step[part, None]
        hidden = ~hidden if insert else hidden
        return perturbation.hide(hidden.view(-1, *positions(task.x)), rows[part])

    answers = Answers.empty((n_inputs, n_maps, steps + 1), task.x)
    asked = ask(task, rows, build)
    for table, found in zip(_tensors(answers), _tensors(asked), strict=True):
        table[rows, methods, at] = found
    # A step that changes nothing repeats the last one that was asked.
    step = torch.arange(steps + 1, device=task.x.device)
    last = torch.where(new & ~every, step, 0).cummax(-1).values
    answers = answers.map(lambda table: table.gather(-1, last))
    intact = Answers.read(task.logits.to(task.x), task.target)
    covered = None
    if bool((none if insert else every).any()):
        covered = ask_hidden(task, perturbation) if whole is None else whole()
    start, end = (covered, intact) if insert else (intact, covered)
    # Where nothing looks different when hidden, all steps are both: the intact input wins.
    known = ((every, end), (none, start)) if not insert else ((none, start), (every, end))
    for where, value in known:
        if value is not None:
            for table, one in zip(_tensors(answers), _tensors(value), strict=True):
                table.copy_(torch.where(where, one[:, None, None], table))
    return answers


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
    ``simps`` did when the paper was written).

    Args:
        curves: [..., points].
        counts: use only that many leading points of each curve, [...].

    >>> simpson(torch.tensor([0.0, 1.0, 4.0]))
    tensor(2.6667)
    """
    points = curves.shape[-1]
    rows = [_simpson_weights(count, points) for count in range(points + 1)]
    table = torch.tensor(rows, dtype=curves.dtype, device=curves.device)
    weights = table[-1] if counts is None else table[counts]
    return (curves * weights).sum(-1)


def _simpson_weights(count: int, length: int) -> list[float]:
    weights = [0.0] * length

    def add(start: int, values: tuple[float, ...], share: float) -> None:
        for offset, value in enumerate(values):
            weights[start + offset] += share * value

    parabola, chord = (1 / 3, 4 / 3, 1 / 3), (0.5, 0.5)
    if count % 2:
        for start in range(0, count - 2, 2):
            add(start, parabola, 1.0)
    elif count:
        for skip in (0, 1):
            add(0 if skip else count - 2, chord, 0.5)
            for start in range(skip, count - 3 + skip, 2):
                add(start, parabola, 0.5)
    return weights


def _tensors(answers: Answers) -> tuple[Tensor, Tensor, Tensor]:
    return answers.probability, answers.logit, answers.predicted
