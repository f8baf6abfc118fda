"""Greedy maximisation: a set function in, the order of features and their gains out [M4, M10].

>>> from sea_nn import DSF, maximize
>>> f = DSF(5, widths=(8, 4), init=(0.0, 1.0), seed=1)
>>> picked = maximize(f, budget=3)
>>> picked.order.shape, bool((picked.gains.diff() <= 0).all())
(torch.Size([3]), True)

Every method and every representation of f gives the same answer: ``sea_nn.paper.ties`` has the
rule for ties.
"""

import torch

from sea_nn.errors import InputError, KindError
from sea_nn.paper.dsf import Scorer
from sea_nn.paper.greedy_search import Selection

METHODS = ("auto", "naive", "lazy")


@torch.no_grad()
def maximize(f: Scorer, budget: int, method: str = "auto") -> Selection:
    """Greedily maximise f under |A| <= budget; f(A) is at least (1 - 1/e) of the optimum.

    Args:
        f: a DSF or its collapsed form, one function or a batch.
        budget: how many features to take; more than there are is clipped, with a warning.
        method: "naive" evaluates every candidate at every step, "lazy" only those whose upper
            bound exceeds the best gain; "auto" is the faster. All give the same answer.

    Returns:
        ``Selection(order, gains)``, [k] each, or [N, k] for a batch.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    if not isinstance(f, Scorer):
        raise KindError(f"maximize takes a DSF or a CollapsedDSF; got {type(f).__name__}")
    order, gains = f.select(f.check_budget(budget), bounded=method != "naive")
    return Selection(order, gains) if f.batch is not None else Selection(order[0], gains[0])
