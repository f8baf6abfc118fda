"""Greedy maximisation: a set function in, the order of features and their gains out [M4, M10].

>>> from sea_nn import DSF, maximize
>>> f = DSF(5, widths=(8, 4), init=(0.0, 1.0), seed=1)
>>> picked = maximize(f, budget=3)
>>> picked.order.shape, bool((picked.gains.diff() <= 0).all())
(torch.Size([3]), True)

Ties: gains that agree to one part in 2^30 are equal, and the lowest index goes first. The rule is
the same for every method and every representation of f, so they all give the same answer.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.submodular.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.submodular.lazy_greedy import GreedySearch
from sea_nn.submodular.ties import key_features, sort_keys

METHODS = ("auto", "naive", "lazy")


class Selection(NamedTuple):
    """Features as greedy took them and what each one added; [k], or [N, k] for a batch."""

    order: Tensor
    gains: Tensor


@torch.no_grad()
def maximize(f: Scorer, budget: int, method: str = "auto") -> Selection:
    """Greedily maximise f under |A| <= budget; f(A) is at least (1 - 1/e) of the optimum.

    Args:
        f: a DSF or its collapsed twin, one function or a batch.
        budget: how many features to take; more than there are is clipped, with a warning.
        method: "naive" evaluates every candidate at every step, "lazy" only those whose upper
            bound exceeds the best gain; "auto" is the faster. All give the same answer.

    Returns:
        ``Selection(order, gains)``, [k] each, or [N, k] for a batch.
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    if not isinstance(f, (DSF, CollapsedDSF)):
        raise KindError(f"maximize takes a DSF or a CollapsedDSF; got {type(f).__name__}")
    if budget < 0:
        raise InputError(f"budget must be >= 0; got {budget}")
    if budget > f.n:
        warnings.warn(f"budget {budget} was clipped to the {f.n} features there are", stacklevel=2)
        budget = f.n
    if isinstance(f, CollapsedDSF):
        order, gains = _rank_collapsed(f, budget)
    else:
        order, gains = GreedySearch(f, bounded=method != "naive").run(budget)
    if f.batch is None:
        return Selection(order[0], gains[0])
    return Selection(order, gains)


def _rank_collapsed(f: CollapsedDSF, budget: int) -> tuple[Tensor, Tensor]:
    """Greedy on g(w.x): the largest weights first, gains from a running sum."""
    weight = f.weight.detach().reshape(f.count, f.n)
    order = top_features(weight, budget)
    picked = weight.gather(1, order)
    before = picked.cumsum(1) - picked
    return order, f.outer_rise(before, picked)


def top_features(values: Tensor, k: int) -> Tensor:
    """The k features with the largest values, ties to the lowest index: [N, n] -> [N, k]."""
    keys = sort_keys(values)
    if k > values.shape[1] // 4:  # from here on a full sort is the faster selection
        return key_features(keys.sort(dim=1, descending=True).values[:, :k])
    return key_features(keys.topk(k, dim=1).values)
