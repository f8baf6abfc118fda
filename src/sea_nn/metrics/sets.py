"""Does the prediction survive on a set of positions alone, and does it break without them?

>>> model = torch.nn.Linear(3, 2, bias=False)
>>> _ = model.weight.data.copy_(torch.tensor([[4.0, -1.0, -2.0], [0.0, 0.0, 0.0]]))
>>> sets = torch.tensor([[[True, False, False], [False, True, True]]])
>>> query_sets(model, torch.ones(1, 3), 0, sets, torch.tensor(0.0)).survives
tensor([[ True, False]])
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.metrics.trial import Kind, Trial, ask_sets
from sea_nn.passes.evaluator import Evaluator
from sea_nn.passes.outputs import Target, take
from sea_nn.questions.absent import Bounds, positions
from sea_nn.questions.points import PointAnswers
from sea_nn.questions.session import open_tasks


@dataclass(frozen=True)
class SetAnswers:
    """What the model says about sets of positions, [N, k] each.

    Attributes:
        kept: its answers when only the set is left.
        removed: its answers when only the set is hidden.
        survives: whether the class is still predicted when only the set is left.
        breaks: whether it is no longer predicted when the set is hidden.
    """

    kept: PointAnswers
    removed: PointAnswers
    survives: Tensor
    breaks: Tensor


def query_sets(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    sets: Tensor,
    perturbation: Kind = "blur",
    *,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    autocast: bool | torch.dtype = False,
    output: str | None = None,
) -> SetAnswers:
    """Keep and remove sets of positions, given as masks, and return what the model says.

    Args:
        model: a module or callable.
        x: inputs [N, ...].
        target: the class explained; None for the predicted one.
        sets: bool [N, k, *positions].
        perturbation: how the other positions, or the set, are hidden.
        bounds: as for ``score_maps``, like the remaining arguments.
        seed: of the noise.
        first: the number of the first input.
        additional_forward_args: further arguments of the model.
        internal_batch_size: the most inputs in one pass.
        autocast: the precision on a GPU.
        output: what the model's outputs are, as for ``SEA``; None to find out.
    """
    _check_sets(sets, x)
    given = {"args": additional_forward_args, "limit": internal_batch_size, "autocast": autocast}
    with open_tasks(model, x, target, output=output, **given) as tasks:
        trial = _make_trial(tasks(slice(None)), bounds, seed, first)
        trial.ask().meaning().check_class()
        kept, removed = (
            ask_sets(trial, perturbation, sets.to(x.device), keep) for keep in (True, False)
        )
    return SetAnswers(kept, removed, kept.predicted, ~removed.predicted)


def measure_drops(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    sets: Tensor,
    perturbation: Kind = "blur",
    *,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    output: str | None = None,
) -> Tensor:
    """Return by how much the class's output falls when each set is hidden, [N, k].

    Args:
        model: as for ``query_sets``, like the other arguments.
        x: inputs [N, ...].
        target: the class explained; None for the predicted one.
        sets: bool [N, k, *positions].
        perturbation: how a set is hidden.
        bounds: the lowest and highest value of each channel.
        seed: of the noise.
        first: the number of the first input.
        output: what the model's outputs are.
    """
    _check_sets(sets, x)
    with open_tasks(model, x, target, output=output) as tasks:
        task = tasks(slice(None))
        trial = _make_trial(task, bounds, seed, first)
        left = ask_sets(trial, perturbation, sets.to(x.device), keep=False).logit
        return take(task.logits, task.target).unsqueeze(1).to(left) - left


def _check_sets(sets: Tensor, x: Tensor) -> None:
    if sets.dtype != torch.bool:
        raise KindError(f"sets must be bool [N, k, *positions]; got {sets.dtype}")
    if sets.ndim < 2 or (len(sets), *sets.shape[2:]) != (len(x), *positions(x)):
        raise InputError(
            f"sets must be [N, k, *positions] with N = {len(x)} and positions "
            f"{list(positions(x))}; got {list(sets.shape)}"
        )


def _make_trial(task: Evaluator, bounds: Bounds | None, seed: int, first: int) -> Trial:
    nothing = task.x.new_empty(len(task.x), 0, *positions(task.x))
    return Trial(task.x, nothing, (), task, bounds=bounds, seed=seed, first=first)
