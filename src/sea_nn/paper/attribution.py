"""What is read off a learned function: best features, Algorithm 1's map, how fast f can change.

>>> from sea_nn import DSF, maximize
>>> f = DSF(5, widths=(8, 4), init=(0.0, 1.0), seed=1)
>>> picked = maximize(f, budget=3)
>>> picked.order.shape, bool((picked.gains.diff() <= 0).all())
(torch.Size([3]), True)
"""

import torch
from torch import Tensor

from sea_nn.config import check_seed, check_whole
from sea_nn.errors import InputError, KindError
from sea_nn.paper.dsf import DSF
from sea_nn.paper.greedy import Selection

METHODS = ("auto", "naive", "lazy")


@torch.no_grad()
def maximize(f: DSF, budget: int, method: str = "auto") -> Selection:
    """Greedily maximise f under |A| <= budget; f(A) is at least (1 - 1/e) of the optimum [M4, M10].

    Args:
        f: a DSF or its collapsed form, one function or a batch.
        budget: how many features to take; more than there are is clipped, with a warning.
        method: "naive" evaluates every candidate at every step, "lazy" only those whose upper
            bound reaches the best gain; "auto" is the faster. All give the same answer.

    Returns:
        ``Selection(order, gains)``, [k] each, or [N, k] for a batch.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    if not isinstance(f, DSF):
        raise KindError(f"maximize takes a DSF; got {type(f).__name__}")
    found = f.select(f.check_budget(budget), bounded=method != "naive")
    return Selection(*(part.reshape(*f.lead, part.shape[1]) for part in found))


@torch.no_grad()
def attribute(f: DSF, remove_ties: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Take the best feature, give its gain to all that tie with it, go on [M6].

    The authors' code leaves tied features in (``remove_ties=False``). Returns order, gains and the
    map, [N, n] each, with map[order[k]] = gains[k].

    >>> from sea_nn import CollapsedDSF
    >>> f = CollapsedDSF(torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64), widths=(1,))
    >>> order, gains, values = attribute(f)
    >>> order.tolist(), [round(v, 2) for v in gains[0].tolist()]
    ([[0, 1, 2]], [2.0, 0.24, 0.0])
    """
    order, gains = f.select(f.n, remove_ties=remove_ties)
    return order, gains, torch.zeros_like(gains).scatter_(1, order, gains)


def lipschitz(f: DSF) -> Tensor:
    """The smallest L with |f(x) - f(y)| <= L |x - y| on [0,1]^n, Euclidean norm: [], or [N] [M11].

    The gradient of a DSF is non-negative and falls in every coordinate, so its norm is largest at
    the origin: L = |grad f(0)|, with no slack (docs/math.md).

    >>> from sea_nn import DSF
    >>> f = DSF(16, widths=(8,), init=(0.1, 1.0))
    >>> bool(estimate_lipschitz(f, pairs=1000) <= lipschitz(f))
    True
    """
    norm: Tensor = torch.linalg.vector_norm(f.slope(torch.zeros(*f.lead, f.n)), dim=-1)
    return norm


@torch.no_grad()
def estimate_lipschitz(f: DSF, pairs: int = 10**6, seed: int = 0) -> Tensor:
    """The largest |f(x) - f(y)| / |x - y| over random pairs from [0,1]^n: [], or [N]."""
    check_whole("pairs", pairs, 1)
    reference = next(f.parameters())
    generator = torch.Generator(reference.device).manual_seed(check_seed(seed))
    chunk = max(1, (64 << 20) // (16 * f.n * f.count))
    largest = reference.new_zeros(f.lead)
    for start in range(0, pairs, chunk):
        size = (2, *f.lead, min(chunk, pairs - start), f.n)
        x, y = reference.new_empty(size).uniform_(generator=generator)
        ratio = (f(x) - f(y)).abs() / torch.linalg.vector_norm(x - y, dim=-1)
        largest = torch.maximum(largest, ratio.amax(-1))
    return largest
