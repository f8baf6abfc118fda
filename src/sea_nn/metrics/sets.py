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
from sea_nn.features import find_kind
from sea_nn.metrics.map_batch import MapBatch, PerturbationKind, ask_sets
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import Target, take
from sea_nn.model.probe import PointOutputs, open_model
from sea_nn.questions.absent import Bounds


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
    seed: int = 0,
    internal_batch_size: int | None = None,
    output: str | None = None,
) -> SetOutputs:
    """Keep and remove sets of positions, bool [N, k, *positions], and return what the model says.

    ``perturbation`` is how positions are hidden; the other arguments are those of ``score_maps``.
    """
    _check_sets(sets, x)
    with open_model(model, x, target, limit=internal_batch_size, output=output) as probe:
        batch = _make_batch(probe.part(slice(None)), None, seed)
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
) -> Tensor:
    """Return by how much the class's output falls when each set is hidden, [N, k].

    The arguments are those of ``score_maps``.
    """
    _check_sets(sets, x)
    with open_model(model, x, target) as probe:
        evaluator = probe.part(slice(None))
        batch = _make_batch(evaluator, bounds, 0)
        left = ask_sets(batch, perturbation, sets.to(x.device), keep=False).logit
        return take(evaluator.outputs, evaluator.target).unsqueeze(1).to(left) - left


def _check_sets(sets: Tensor, x: Tensor) -> None:
    if sets.dtype != torch.bool:
        raise KindError(f"sets must be bool [N, k, *positions]; got {sets.dtype}")
    shape = find_kind(x).map_shape(x)
    if sets.ndim < 2 or (len(sets), *sets.shape[2:]) != (len(x), *shape):
        raise InputError(
            f"sets must be [N, k, *positions] with N = {len(x)} and positions "
            f"{list(shape)}; got {list(sets.shape)}"
        )


def _make_batch(evaluator: Evaluator, bounds: Bounds | None, seed: int) -> MapBatch:
    x = evaluator.x
    nothing = x.new_empty(len(x), 0, *find_kind(x).map_shape(x))
    return MapBatch(x, nothing, (), evaluator, bounds=bounds, seed=seed)
