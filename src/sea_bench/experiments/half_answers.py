"""Release 0.1's way to ask, a rival of SEA's budgets: answers about halves join the heatmaps.

An image is divided into 16 regions. A row of a Hadamard matrix splits them into two halves, and the
model says which it needs more: V = p(class | only this half is left) - p(class | only the other).
The 15 splits, 30 evaluations, tell every region's effect up to a constant, where effects add up.
The effects, painted, are one more heatmap, and a member that predicts the answers counts for more.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from sea_nn.paper.heatmaps import scale, smooth
from sea_nn.questions.ask import Ask, make_ask_only
from sea_nn.questions.designs import balanced_signs
from sea_nn.questions.halves import divide

REGIONS, SIDE = 16, 4
QUESTIONS = 2 * (REGIONS - 1)
SOFTNESS = 0.25  # blur of a region's edge, in widths of a region
TRUST = 2.0  # how sharply members are weighed by how well they predict the answers
SAY = 3.0  # the answers count as much as this many members


def ask_both(model: Callable[..., Any], x: Tensor, target: Tensor, **options: Any) -> Ask:
    """Return a function from sets, bool [N, R, *shape], to p(only S) - p(all but S), [N, R].

    It costs two evaluations a set; options as for ``make_ask_only``.
    """
    ask_only = make_ask_only(model, x, target, **options)

    def ask(sets: Tensor) -> Tensor:
        both = ask_only(torch.stack([sets, ~sets], 2).flatten(1, 2))
        only, rest = both.view(*sets.shape[:2], 2).unbind(2)
        return only - rest

    return ask


def join_answers(ask: Ask, heatmaps: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Ask, and join the answers to heatmaps [N, m, H, W] and weights [N, m]: m + 1 rows each.

    A row pulls on a feature by its weight, its value there and the slope of f at the row, which
    falls almost as 1 / heat. Weights in proportion to heat make up for that, so that a spread-out
    map is not outvoted by a thin one.
    """
    tiny = torch.finfo(weights.dtype).tiny
    share = weights / weights.sum(1, keepdim=True).clamp_min(tiny)
    regions = divide(torch.einsum("nm,nm...->n...", share, heatmaps.to(share)), REGIONS)
    signs = balanced_signs(REGIONS, heatmaps.device)
    sets = (signs > 0).T[regions].movedim(-1, 1)
    answers = ask(sets).to(torch.float64)
    expected = heatmaps.flatten(2).double() @ (sets.flatten(2).double() * 2 - 1).mT
    trust = (TRUST * cosine_similarity(expected, answers.unsqueeze(1), dim=2)).exp()
    # Two equal members of weight 1/2 must be as one of weight 1, so votes are counted, not rows.
    votes = weights.sum(1, keepdim=True).clamp_min(tiny)
    level = ((weights * trust).sum(1, keepdim=True) / votes).clamp_min(tiny)
    pulls = weights * heatmaps.flatten(2).mean(2).to(weights) * trust / level
    said = SAY * pulls.sum(1, keepdim=True) / votes
    drawn = _paint(answers @ signs / REGIONS, regions).to(heatmaps).unsqueeze(1)
    return torch.cat([heatmaps, drawn], 1), torch.cat([pulls, said], 1)


def _paint(effects: Tensor, regions: Tensor) -> Tensor:
    """The regions' effects over the positions, edges softened: [N, H, W] in [0, 1]."""
    drawn = effects.gather(1, regions.flatten(1)).view(regions.shape)
    for axis in (1, 2):
        drawn = smooth(drawn, axis, SOFTNESS * drawn.shape[axis] / SIDE)
    return scale(drawn)
