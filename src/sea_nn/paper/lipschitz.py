"""How fast a learned function can change: Lemma 1 of the paper, exactly and by sampling [M11].

>>> from sea_nn import DSF
>>> f = DSF(16, widths=(8,), init=(0.1, 1.0))
>>> bool(estimate_lipschitz(f, pairs=1000) <= lipschitz(f))
True
"""

import torch
from torch import Tensor

from sea_nn.config import check_seed, check_whole
from sea_nn.paper.dsf import Scorer


def lipschitz(f: Scorer) -> Tensor:
    """The smallest L with |f(x) - f(y)| <= L |x - y| on [0,1]^n, Euclidean norm: [], or [N].

    The gradient of a DSF is non-negative and falls in every coordinate, so its norm is largest at
    the origin: L = |grad f(0)|, with no slack (docs/math.md).
    """
    origin = torch.zeros(f.n) if f.batch is None else torch.zeros(f.batch, f.n)
    norm: Tensor = torch.linalg.vector_norm(f.slope(origin), dim=-1)
    return norm


@torch.no_grad()
def estimate_lipschitz(f: Scorer, pairs: int = 10**6, seed: int = 0) -> Tensor:
    """The largest |f(x) - f(y)| / |x - y| over random pairs from [0,1]^n: [], or [N]."""
    check_whole("pairs", pairs, 1)
    reference = next(f.parameters())
    generator = torch.Generator(reference.device).manual_seed(check_seed(seed))
    chunk = max(1, (64 << 20) // (16 * f.n * f.count))
    lead = () if f.batch is None else (f.batch,)
    largest = torch.zeros(lead, dtype=reference.dtype, device=reference.device)
    for start in range(0, pairs, chunk):
        size = (*lead, min(chunk, pairs - start), f.n)
        x, y = (
            torch.rand(size, generator=generator, dtype=reference.dtype, device=reference.device)
            for _ in range(2)
        )
        ratio = (f(x) - f(y)).abs() / torch.linalg.vector_norm(x - y, dim=-1)
        largest = torch.maximum(largest, ratio.amax(-1))
    return largest
