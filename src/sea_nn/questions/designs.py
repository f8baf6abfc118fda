"""Which sets of features to ask about: bool [N, R, n], what is left of the input.

``spread_sets`` are of every size and drawn evenly, ``around`` are near a present order, ``halves``
compare the features of a window of it. The model is asked about a set and about its complement:
``paired`` adds these.

>>> paired(spread_sets(3, 8, torch.Generator().manual_seed(0))).shape
torch.Size([6, 8])
"""

from __future__ import annotations

import torch
from torch import Tensor


def spread_sets(count: int, n: int, generator: torch.Generator) -> Tensor:
    """Random sets whose sizes are spread evenly over 1 ... n - 1: bool [count, n]."""
    return around(torch.zeros(1, n), count, torch.inf, generator)[0]


def paired(sets: Tensor) -> Tensor:
    """The sets and then their complements: [..., R, n] -> [..., 2 R, n]."""
    return torch.cat([sets, ~sets], -2)


def around(
    score: Tensor,
    count: int,
    spread: float,
    generator: torch.Generator,
    most: int | None = None,
) -> Tensor:
    """Sets near those that an order would keep: bool [N, count, n].

    Each is the top k of score / its standard deviation + ``spread`` times Gumbel noise, the sizes k
    spread evenly over 1 ... ``most``.

    Args:
        score: larger for features that come first, [N, n].
        count: sets an input.
        spread: how far the order is shaken; inf for sets that do not know it.
        generator: on the CPU; the draws are the same for each input, whatever the batch.
        most: the largest size; None for n - 1.
    """
    n, device = score.shape[1], score.device
    start = torch.rand(1, generator=generator)
    size = (start + torch.arange(count) / max(1, count)).remainder(1)
    size = 1 + (size * (n - 1 if most is None else most)).long()[:, None].to(device)
    noise = torch.empty(count, n).exponential_(generator=generator)
    shaken = -noise.log().to(device).expand(len(score), -1, -1)
    if spread != torch.inf:
        deviation = score.std(1, keepdim=True).clamp(min=1e-12)
        level = (score - score.mean(1, keepdim=True)) / deviation
        shaken = level[:, None] + spread * shaken
    return shaken.argsort(2, descending=True).argsort(2) < size


def choose_open(
    sets: Tensor, kept: Tensor, removed: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Sets with unsure answers: bool [N, R, n] -> [N, count, n], each one of R / count candidates.

    An answer near 0 or 1 says little about the order. A candidate is taken with a probability in
    proportion to p (1 - p) of what is expected; the draws do not depend on what is expected, so
    that answers which differ by rounding choose the same sets.

    Args:
        sets: to choose from; every ``count``-th is a candidate for the same place.
        kept: the probability expected with only a set left, [N, R].
        removed: that without it, [N, R].
        count: how many to choose; R is a multiple of it.
        generator: on the CPU; the draws are the same for each input.
    """
    open_ = kept * (1 - kept) + removed * (1 - removed) + 0.02
    noise = torch.empty(sets.shape[1]).exponential_(generator=generator)
    drawn = (open_ / noise.to(open_)).view(len(sets), -1, count)
    chosen = drawn.argmax(1) * count + torch.arange(count, device=sets.device)
    return sets.gather(1, chosen[:, :, None].expand(-1, -1, sets.shape[2]))


def every_set(n: int) -> Tensor:
    """All sets but the empty and the whole one: bool [2^n - 2, n]."""
    return (torch.arange(1, 2**n - 1)[:, None] >> torch.arange(n) & 1).bool()


def balanced_signs(width: int, device: torch.device | None = None) -> Tensor:
    """The rows of a Hadamard matrix that are not constant: [width - 1, width] of -1 and 1."""
    signs = torch.ones(1, 1, device=device, dtype=torch.float64)
    while len(signs) < width:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    return signs[1:]


def halves(order: Tensor, low: int, width: int) -> Tensor:
    """Both halves of the balanced splits of order[low : low + width], after all before it.

    Args:
        order: [N, n].
        low: where the window starts.
        width: its features, a power of two.

    Returns:
        bool [N, 2 (width - 1), n]: first halves, then second ones.
    """
    signs = balanced_signs(width, order.device)
    split = torch.cat([signs > 0, signs < 0]).expand(len(order), -1, -1)
    taken = torch.zeros(order.shape, dtype=torch.bool, device=order.device)
    taken = taken.scatter_(1, order[:, :low], True)
    window = order[:, None, low : low + width].expand(-1, split.shape[1], -1)
    return taken[:, None].repeat(1, split.shape[1], 1).scatter_(2, window, split)


def find_effects(values: Tensor, width: int) -> Tensor:
    """The effect of each feature of a window, exact up to a constant if effects add up there.

    Args:
        values: what the model said about ``halves``, [N, 2 (width - 1)].
        width: the features of the window.

    Returns:
        [N, width]
    """
    first, second = values.double().chunk(2, 1)
    return (first - second) @ balanced_signs(width, values.device) / width


def windows(n: int) -> tuple[int, list[int]]:
    """The width of a sweep's windows and where they start; each overlaps the next by half.

    >>> windows(64)
    (16, [0, 8, 16, 24, 32, 40, 48])
    >>> windows(10)
    (8, [0, 2])
    """
    width = 1 << min(4, n.bit_length() - 1)
    lows = list(range(0, n - width + 1, max(1, width // 2)))
    if lows[-1] != n - width:
        lows.append(n - width)
    return width, lows
