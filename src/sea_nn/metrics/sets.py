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
from sea_nn.metrics.map_batch import MapBatch, PerturbationKind, ask_sets
from sea_nn.passes.evaluator import Evaluator
from sea_nn.passes.outputs import Target, take
from sea_nn.questions.absent import Bounds, positions
from sea_nn.questions.points import PointOutputs
from sea_nn.questions.session import open_model


@dataclass(frozen=True)
class SetOutputs:
    """What the model says about sets of positions, [N, k] each.

    Attributes:
        kept: its answers when only the set is left.
        removed: its answers when only the set is hidden.
        survives: whether the class is still predicted when only the set is left.
        breaks: whether it is no longer predicted when the set is hidden.
    """

    kept: PointOutputs
    removed: PointOutputs
    survives: Tensor
    breaks: Tensor


def query_sets(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    sets: Tensor,
    perturbation: PerturbationKind = "blur",
    *,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    autocast: bool | torch.dtype = False,
    output: str | None = None,
) -> SetOutputs:
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
    with open_model(model, x, target, output=output, **given) as evaluators:
        batch = _make_batch(evaluators(slice(None)), bounds, seed, first)
        batch.need_model().meaning().check_class()
        kept, removed = (
            ask_sets(batch, perturbation, sets.to(x.device), keep) for keep in (True, False)
        )
    return SetOutputs(kept, removed, kept.predicted, ~removed.predicted)


def compute_drops(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    sets: Tensor,
    perturbation: PerturbationKind = "blur",
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
    with open_model(model, x, target, output=output) as evaluators:
        evaluator = evaluators(slice(None))
        batch = _make_batch(evaluator, bounds, seed, first)
        left = ask_sets(batch, perturbation, sets.to(x.device), keep=False).logit
        return take(evaluator.logits, evaluator.target).unsqueeze(1).to(left) - left


def _check_sets(sets: Tensor, x: Tensor) -> None:
    if sets.dtype != torch.bool:
        raise KindError(f"sets must be bool [N, k, *positions]; got {sets.dtype}")
    if sets.ndim < 2 or (len(sets), *sets.shape[2:]) != (len(x), *positions(x)):
        raise InputError(
            f"sets must be [N, k, *positions] with N = {len(x)} and positions "
            f"{list(positions(x))}; got {list(sets.shape)}"
        )


def _make_batch(evaluator: Evaluator, bounds: Bounds | None, seed: int, first: int) -> MapBatch:
    nothing = evaluator.x.new_empty(len(evaluator.x), 0, *positions(evaluator.x))
    return MapBatch(evaluator.x, nothing, (), evaluator, bounds=bounds, seed=seed, first=first)
