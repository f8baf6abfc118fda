"""Algorithm 1: from a learned scoring function to a map [M6].

>>> f = CollapsedDSF(torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64), widths=(1,))
>>> order, gains, values = attribute(f)
>>> order.tolist(), [round(v, 2) for v in gains[0].tolist()]
([[0, 1, 2]], [2.0, 0.24, 0.0])
"""

from __future__ import annotations

import torch
from torch import Tensor

from sea_nn.config import SEAConfig
from sea_nn.errors import KindError
from sea_nn.submodular.dsf import DSF, CollapsedDSF, Scorer
from sea_nn.submodular.greedy import Selection
from sea_nn.submodular.lazy_greedy import GreedySearch
from sea_nn.submodular.ties import key_features, key_groups, sort_keys


@torch.no_grad()
def attribute(f: Scorer, config: SEAConfig | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 [M6]: take the best feature, give its gain to all that tie with it, go on.

    Args:
        f: a learned scorer, a batch of N functions or one.
        config: only ``reading`` matters: "authors" leaves tied features in.

    Returns:
        order [N, n], gains [N, n] and the map [N, n], with attribution[order[k]] = gains[k].
    """
    remove_ties = config is None or config.reading == "paper"
    if isinstance(f, CollapsedDSF):
        order, gains = _attribute_collapsed(f, remove_ties)
    elif isinstance(f, DSF):
        order, gains = GreedySearch(f, remove_ties=remove_ties).run(f.n)
    else:
        raise KindError(f"attribute takes a DSF or a CollapsedDSF; got {type(f).__name__}")
    return order, gains, torch.zeros_like(gains).scatter_(1, order, gains)


def _attribute_collapsed(f: CollapsedDSF, remove_ties: bool) -> Selection:
    """Algorithm 1 on g(w.x): sort by weight, run along the leaders of tie groups."""
    weight = f.weight.detach().reshape(f.count, f.n)
    keys = sort_keys(weight).sort(dim=1, descending=True).values
    order = key_features(keys)
    taken = weight.gather(1, order)
    if remove_ties:
        groups = key_groups(keys)
        leads = torch.ones_like(groups, dtype=torch.bool)
        leads[:, 1:] = groups[:, 1:] != groups[:, :-1]
        taken = taken * leads
    before = taken.cumsum(1) - taken
    gains = f.outer_rise(before, taken)
    if remove_ties:
        place = torch.arange(f.n, device=order.device).expand_as(order)
        gains = gains.gather(1, torch.where(leads, place, 0).cummax(1).values)
    return Selection(order, gains)
