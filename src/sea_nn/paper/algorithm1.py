"""Algorithm 1: from a learned scoring function to a map [M6].

>>> from sea_nn import CollapsedDSF
>>> f = CollapsedDSF(torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64), widths=(1,))
>>> order, gains, values = attribute(f)
>>> order.tolist(), [round(v, 2) for v in gains[0].tolist()]
([[0, 1, 2]], [2.0, 0.24, 0.0])
"""

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.paper.dsf import Scorer


@torch.no_grad()
def attribute(f: Scorer, config: SEAConfig | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Take the best feature, give its gain to all that tie with it, go on.

    Of ``config`` only ``reading`` matters: "authors" leaves tied features in. Returns order, gains
    and the map, [N, n] each, with map[order[k]] = gains[k].
    """
    order, gains = f.select(f.n, remove_ties=config is None or config.reading == "paper")
    return order, gains, torch.zeros_like(gains).scatter_(1, order, gains)
