"""What the model says about sets of positions: with these alone, and without them.

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
from sea_nn.metrics.curve import PointOutputs
from sea_nn.metrics.map_batch import MapBatch, PerturbationKind
from sea_nn.model.outputs import Target
from sea_nn.model.probe import open_model


def ask_sets(batch: MapBatch, how: PerturbationKind, sets: Tensor, keep: bool) -> PointOutputs:
    """Return the answers with only the sets, bool [N, k, *positions], kept or hidden, [N, k]."""
    flat = sets.flatten(0, 1)
    return PointOutputs.of(batch.ask(how, sets.shape[1], lambda numbers: flat[numbers] ^ keep))


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
    kind = find_kind(x)
    if sets.dtype != torch.bool:
        raise KindError(f"sets must be bool [N, k, *positions]; got {sets.dtype}")
    shape = kind.map_shape(x)
    if sets.ndim < 2 or (len(sets), *sets.shape[2:]) != (len(x), *shape):
        raise InputError(
            f"sets must be [N, k, *positions] with N = {len(x)} and positions "
            f"{list(shape)}; got {list(sets.shape)}"
        )
    with open_model(model, x, target, limit=internal_batch_size, output=output) as probe:
        evaluator = probe.part(slice(None))
        batch = MapBatch(
            evaluator.x, x.new_empty(len(x), 0, *shape), (), kind, evaluator, seed=seed
        )
        evaluator.output.check_class()
        kept, removed = (
            ask_sets(batch, perturbation, sets.to(x.device), keep) for keep in (True, False)
        )
    return SetOutputs(kept, removed, kept.predicted, ~removed.predicted)
