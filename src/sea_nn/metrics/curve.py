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

from sea_nn.errors import InputError
from sea_nn.features import Kind
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import Output, take
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
    def empty(cls, shape: tuple[int, ...], like: Tensor) -> PointOutputs:
        """Return room for answers of this shape, at least in single precision."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        score, logit = torch.empty(2, *shape, dtype=dtype, device=like.device)
        return cls(score, logit, torch.empty(shape, dtype=torch.bool, device=like.device))

    @classmethod
    def read(cls, outputs: Tensor, target: Tensor, output: Output) -> PointOutputs:
        """Read outputs [P, K], ``output`` says what they are, for the columns ``target``."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        logit = take(outputs, target)
        if output.kind == "value":
            return cls(logit, logit, torch.zeros_like(logit, dtype=torch.bool))
        return cls(output.score(outputs, target), logit, output.predicts(outputs, target))

    def map(self, change: Callable[[Tensor], Tensor]) -> PointOutputs:
        """Return the answers with every tensor changed alike."""
        return PointOutputs(change(self.score), change(self.logit), change(self.predicted))

    def read_as(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        if kind not in ("probability", "logit"):
            raise InputError(f"score must be 'probability' or 'logit'; got {kind!r}")
        return self.score if kind == "probability" else self.logit


def ask_about(evaluator: Evaluator, rows: Tensor, build: Callable[[slice], Tensor]) -> PointOutputs:
    """Return the model's answers about P points that ``build`` makes, see ``ask_points``."""
    answers = PointOutputs.empty((len(rows),), evaluator.x)
    start = 0

    def read(outputs: Tensor, rows: Tensor) -> Tensor:
        nonlocal start
        found = PointOutputs.read(outputs, evaluator.target[rows], evaluator.output)
        for table, part in zip(_tensors(answers), _tensors(found), strict=True):
            table[start : start + len(rows)] = part
        start += len(rows)
        return rows[:0]

    ask_points(evaluator, rows, build, read=read)
    return answers


def ask_hidden(evaluator: Evaluator, perturbation: Perturbation) -> PointOutputs:
    """Return the answers about the inputs hidden altogether, [N]."""
    rows = torch.arange(len(evaluator.x), device=evaluator.x.device)

    def build(part: slice) -> Tensor:
        hidden = torch.ones_like(evaluator.x[rows[part]], dtype=torch.bool)
        return perturbation.hide(hidden, rows[part])

    return ask_about(evaluator, rows, build)


def trace(
    evaluator: Evaluator,
    perturbation: Perturbation,
    step_maps: Tensor,
    steps: int,
    *,
    kind: Kind,
    insert: bool = False,
    whole: Callable[[], PointOutputs] | None = None,
) -> PointOutputs:
    """Return the answers after 0, 1, ..., ``steps`` steps, [N, m, steps + 1].

    ``step_maps`` are int16 [N, m, n], see ``order``, over maps of inputs of this ``kind``. To
    ``insert``, start with everything hidden, and each step shows what it would hide; ``whole``
    gives the answers of ``ask_hidden``, if known.
    """
    n_inputs, n_maps = step_maps.shape[:2]
    changed = kind.over_map(perturbation.changed())
    shape = changed.shape[1:]
    changed = changed.flatten(1)
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
        return perturbation.hide(kind.over_input(hidden.view(-1, *shape)), rows[part])

    answers = PointOutputs.empty((n_inputs, n_maps, steps + 1), evaluator.x)
    asked = ask_about(evaluator, rows, build)
    for table, found in zip(_tensors(answers), _tensors(asked), strict=True):
        table[rows, methods, at] = found
    # A step that changes nothing repeats the last one that was asked.
    step = torch.arange(steps + 1, device=evaluator.x.device)
    last = torch.where(new & ~every, step, 0).cummax(-1).values
    answers = answers.map(lambda table: table.gather(-1, last))
    intact = PointOutputs.read(
        evaluator.outputs.to(evaluator.x), evaluator.target, evaluator.output
    )
    covered = None
    if bool((none if insert else every).any()):
        covered = ask_hidden(evaluator, perturbation) if whole is None else whole()
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
    ``simps`` did when the paper was written). Of each curve only the ``counts`` [...] leading
    points are used, if given.

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


def _tensors(answers: PointOutputs) -> tuple[Tensor, Tensor, Tensor]:
    return answers.score, answers.logit, answers.predicted
