"""Ask the model about halves of the input, and let its answers join the ensemble.

The paper's second kind of supervision is sets: f must score a member's top features above all other
sets of their size. But members disagree, and a set is not right because one of them drew it: here
the model decides. The input is divided into 16 regions (or 4, 64, 256); a row of a Hadamard matrix
splits them into two halves, and the model says which it needs more: V = p(class | only this half is
left) - p(class | only the other). The 15 splits are orthogonal, so 30 questions tell the
effect of every region exactly, up to a constant, if effects add up (docs/math.md). The effects,
painted, are one more heatmap; and a member that predicts the answers counts for more.

>>> heat = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))
>>> truth = torch.arange(64.0).reshape(1, 8, 8)
>>> def ask(sets):
...     return torch.where(sets, truth.unsqueeze(1), -truth.unsqueeze(1)).flatten(2).sum(2)
>>> answers = HalfAnswers.of(ask, heat)
>>> effects = answers.map()[0]
>>> bool(effects[-1, -1] > effects[0, 0])
True
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from sea_nn.ensembling.heatmaps import scale, smooth
from sea_nn.errors import InputError
from sea_nn.questions.halves import count_bands, divide

Ask = Callable[[Tensor], Tensor]
"""From sets, bool [N, R, *shape], to how much more the model needs each than the rest, [N, R]."""

ROOM = 1 << 23  # numbers of sets worked on at once


@dataclass(frozen=True)
class Asking:
    """How inputs are divided and answers weighed; chosen on tuning inputs (docs/results/tried.md).

    Attributes:
        even: the part of a cut that follows area; the rest follows the members' heat.
        softness: blur of a region's edge, in widths of a region.
        trust: how sharply members are weighed by how well they predict the answers.
        say: the answers about 16 regions count as much as this many members.
    """

    even: float = 0.5
    softness: float = 0.25
    trust: float = 2.0
    say: float = 3.0


@dataclass(frozen=True)
class HalfAnswers:
    """What the model said about halves of N inputs, in one round or several.

    Attributes:
        regions: the region of each feature, one round after another: int64 [N, *shape] each.
        sets: the halves asked about, bool [N, R, *shape].
        preference: how much more the model needs each than the other half, [N, R].
        count: the number of regions.
    """

    regions: tuple[Tensor, ...]
    sets: Tensor
    preference: Tensor
    count: int = 16
    asking: Asking = Asking()

    @classmethod
    def of(
        cls,
        ask: Ask,
        heat: Tensor,
        count: int = 16,
        asking: Asking = Asking(),  # noqa: B008
    ) -> "HalfAnswers":
        """Divide the inputs by their heat, [N, *shape], and ask about all splits."""
        regions = divide(heat, count, asking.even)
        sets = split(regions, count)
        answers = ask(sets)
        if answers.shape != sets.shape[:2]:
            raise InputError(
                f"ask must return one number a set, {list(sets.shape[:2])}; got "
                f"{list(answers.shape)}"
            )
        if not bool(answers.isfinite().all()):
            raise InputError("ask returned NaN or infinite answers; does the model on such inputs?")
        return cls((regions,), sets, answers.detach().to(torch.float64), count, asking)

    def __add__(self, other: "HalfAnswers") -> "HalfAnswers":
        return HalfAnswers(
            self.regions + other.regions,
            torch.cat([self.sets, other.sets], 1),
            torch.cat([self.preference, other.preference], 1),
            self.count,
            self.asking,
        )

    def map(self) -> Tensor:
        """The regions' effects painted over the features, edges softened: [N, *shape] in [0, 1]."""
        design = _design(self.count, self.preference.device)
        rounds = zip(self.regions, self.preference.split(self.count - 1, 1), strict=True)
        painted = []
        for regions, answers in rounds:
            effects = answers @ design / self.count
            drawn = effects.gather(1, regions.flatten(1)).view(regions.shape)
            painted.append(scale(_soften(drawn, self.count, self.asking.softness)))
        return scale(torch.stack(painted).mean(0))

    def agreement(self, heatmaps: Tensor) -> Tensor:
        """Cosine between the answers and what each heatmap's own mass would say, [N, m]."""
        # Sets are many: as numbers, those of a few inputs at a time.
        rows = max(1, ROOM // self.sets[0].numel())
        parts = zip(heatmaps.flatten(2).split(rows), self.sets.flatten(2).split(rows), strict=True)
        expected = [heat.double() @ (sets.double() * 2 - 1).mT for heat, sets in parts]
        return cosine_similarity(torch.cat(expected), self.preference.unsqueeze(1), dim=2)


def join_answers(answers: HalfAnswers, heatmaps: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Join the answers to the heatmaps [N, m, *shape] and weights [N, m]: m + 1 rows each.

    A row pulls on a feature by its weight, its value there and the slope of f at the row, which
    falls almost as 1 / heat. Weights in proportion to heat make up for that, so that a spread-out
    map is not outvoted by a thin one.
    """
    drawn = answers.map().to(heatmaps)
    heat = heatmaps.flatten(2).mean(2).to(weights)
    trust = (answers.asking.trust * answers.agreement(heatmaps)).exp()
    # Two equal members of weight 1/2 must be as one of weight 1, so votes are counted, not rows.
    votes = weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    tiny = torch.finfo(weights.dtype).tiny
    pulls = (
        weights * heat * trust / ((weights * trust).sum(1, keepdim=True) / votes).clamp_min(tiny)
    )
    # Effects of regions a quarter as large are told by four times as many answers.
    say = answers.asking.say * math.sqrt((answers.count - 1) / 15)
    said = say * pulls.sum(1, keepdim=True) / votes
    return torch.cat([heatmaps, drawn.unsqueeze(1)], 1), torch.cat([pulls, said], 1)


def split(regions: Tensor, count: int = 16) -> Tensor:
    """The halves asked about: regions [N, *shape] -> bool [N, count - 1, *shape]."""
    chosen = _design(count, regions.device) > 0
    return chosen.T[regions].movedim(-1, 1)


def _design(count: int, device: torch.device) -> Tensor:
    """All rows but the first of the Hadamard matrix: [count - 1, count] of -1 and 1."""
    signs = torch.ones(1, 1, dtype=torch.float64, device=device)
    while len(signs) < count:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    return signs[1:]


def _soften(drawn: Tensor, count: int, softness: float) -> Tensor:
    """Blur the regions' edges, each axis by a part of a region's width there."""
    if drawn.ndim == 2:
        return drawn  # columns of a table have no neighbours
    flat = drawn.reshape(len(drawn), -1, drawn.shape[-1])
    for axis, bands in zip((1, 2), count_bands(flat, count), strict=True):
        flat = smooth(flat, axis, softness * flat.shape[axis] / bands)
    return flat.reshape(drawn.shape)
