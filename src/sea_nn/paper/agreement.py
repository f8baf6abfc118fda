"""How maps compare: ranks, rank correlation, disagreement, chance, equal sharpness, one unit.

>>> import torch
>>> rank(torch.tensor([0.1, 0.7, 0.7, 0.3]))
tensor([1.0000, 3.5000, 3.5000, 2.0000], dtype=torch.float64)
"""

import torch
from torch import Tensor


def rank(values: Tensor) -> Tensor:
    """Ranks [..., n] along the last axis, 1 for the smallest; tied values share their mean rank."""
    values = values.to(torch.float64).contiguous()
    ordered = values.sort(dim=-1).values
    fewer, upto = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (fewer + upto + 1).to(torch.float64) / 2


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's rank correlation along the last axis: [..., n] twice, broadcast -> [...].

    A constant map ranks nothing: its correlations are nan.

    >>> round(spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0])).item(), 6)
    1.0
    """
    return (_standardize(rank(a)) * _standardize(rank(b))).sum(-1).clamp(-1, 1)


def agreement(maps: Tensor) -> Tensor:
    """Spearman's rank correlation of every pair of members: [N, m, *shape] -> [N, m, m]."""
    # One input at a time: ranks of a large batch of images would take gigabytes.
    ranks = (_standardize(rank(one.flatten(1))) for one in maps)
    return torch.stack([(r @ r.mT).clamp(-1, 1) for r in ranks])


def disagreement(maps: Tensor) -> Tensor:
    """Where members disagree: [N, m, *shape] -> the spread of their percentile ranks [N, *shape].

    A member's percentile rank runs from 0 (its least important feature) to 1 (its most
    important), so 0 means that all members place the feature alike, and 0.5, the largest value
    there is, that half of them place it first and half last.
    """
    last = max(maps[0, 0].numel() - 1, 1)
    percentiles = ((rank(one.flatten(1)) - 1) / last for one in maps)
    spread = torch.stack([p.std(dim=0, unbiased=False).to(torch.float32) for p in percentiles])
    return spread.reshape(maps.shape[0], *maps.shape[2:])


def mean_agreement(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Mean rank correlation of each input's members [N, m, *shape], and what chance reaches: [N].

    Chance is two standard deviations of the same mean if every map were shifted at random, around
    the edges: shifts keep each map's smoothness, and smooth maps correlate by accident. A member's
    correlation with a shifted other has the variance sum_f |A_f|^2 |B_f|^2 / n^2, from the spectra
    of their standardised ranks. NaN where fewer than two members rank anything.
    """
    mean, chance = maps.new_full((2, len(maps)), torch.nan, dtype=torch.float64)
    for i, one in enumerate(maps):
        ranks = _standardize(rank(one.flatten(1)))
        ranks = ranks[~ranks.isnan().any(1)]
        m, n = ranks.shape
        pairs = m * (m - 1) / 2
        if pairs:
            mean[i] = ((ranks @ ranks.mT).sum() - m) / 2 / pairs
            axes = one.shape[1:]
            power = torch.fft.fftn(ranks.view(m, *axes), axes).abs().square().flatten(1)
            spread = (power.sum(0).square() - power.square().sum(0)).sum().clamp_min(0) / 2
            chance[i] = 2 * spread.sqrt() / n / pairs
    return mean, chance


def sharpen(maps: Tensor, like: Tensor) -> Tensor:
    """Each map's order of features, painted with the sorted values of another; ties share a mean.

    Both are then equally sharp. Most of the mass that SEA puts on few features comes from the
    square root's steep start, not from evidence: compare its mass on an object with that of other
    maps sharpened like it. Both are [..., n]; ``like`` broadcasts to ``maps``.

    >>> sharpen(torch.tensor([0.1, 0.3, 0.2]), like=torch.tensor([1.0, 0.0, 9.0])).tolist()
    [0.0, 9.0, 1.0]
    """
    ordered, order = maps.sort(dim=-1, descending=True)
    values = like.to(maps).sort(dim=-1, descending=True).values.expand_as(maps)
    tie = torch.zeros_like(order)
    tie[..., 1:] = (ordered[..., 1:] != ordered[..., :-1]).cumsum(-1)
    sums = torch.zeros_like(maps).scatter_add_(-1, tie, values)
    counts = torch.zeros_like(maps).scatter_add_(-1, tie, torch.ones_like(maps))
    return torch.zeros_like(maps).scatter_(-1, order, (sums / counts.clamp_min(1)).gather(-1, tie))


def multiples_of_mean(maps: Tensor, batch_axes: int = 1) -> Tensor:
    """Each map divided by its own mean: the unit in which maps of different methods compare.

    Every map then spreads the same total over its features, and equal values mean equal shares
    of it: 3 is three times what an even spread would give. A map of zeros stays zero.

    >>> multiples_of_mean(torch.tensor([[0.0, 1.0, 3.0, 0.0]]))
    tensor([[0., 1., 3., 0.]])
    """
    flat = maps.reshape(*maps.shape[:batch_axes], -1).to(torch.float64)
    mean = flat.mean(-1, keepdim=True)
    return (flat / torch.where(mean > 0, mean, 1)).reshape(maps.shape).to(torch.float32)


def _standardize(ranks: Tensor) -> Tensor:
    centred = ranks - ranks.mean(-1, keepdim=True)
    norm = centred.square().sum(-1, keepdim=True).sqrt()
    return centred / norm  # 0 / 0 = nan where all ranks tie
