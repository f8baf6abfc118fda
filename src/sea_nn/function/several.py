"""Learned functions of inputs whose numbers of features differ, as those of texts do.

Each input has a function of its own features. Together they are asked about sets of positions:
every input has some of them as its features, and the others change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sea_nn.function.function import Link, SetFunction


@dataclass(frozen=True, eq=False)
class SeveralFunctions:
    """The functions of N inputs over the same positions; a ``SetFunction`` in all that is asked.

    Attributes:
        each: one function an input, of one input each.
        places: the position of each of an input's features, ascending, int64 [n] an input.
        width: the number of positions.
    """

    each: tuple[SetFunction, ...]
    places: tuple[Tensor, ...]
    width: int

    @property
    def link(self) -> Link:
        """ "log-odds", or "value" for the identity."""
        return self.each[0].link

    @property
    def none(self) -> Tensor:
        """The model's log-odds (or value) with no feature left, [N, 1]."""
        return torch.cat([f.none for f in self.each])

    @property
    def all(self) -> Tensor:
        """The same of the whole inputs, [N, 1]."""
        return torch.cat([f.all for f in self.each])

    @property
    def error(self) -> Tensor:
        """Root mean square error of answers predicted from all the others, [N]."""
        return torch.cat([f.error for f in self.each])

    def find_doubt(self) -> Tensor:
        """How wide intervals are, as shares of what they are unlearned, [N]."""
        return torch.cat([f.find_doubt() for f in self.each])

    @property
    def n_answers(self) -> int:
        """How many answers the input with the most was learned from."""
        return max(f.n_answers for f in self.each)

    @property
    def there(self) -> Tensor:
        """Which positions are features of each input, bool [N, width]."""
        there = torch.zeros(len(self.each), self.width, dtype=torch.bool)
        for row, own in zip(there, self.places, strict=True):
            row[own] = True
        return there

    def score(self, x: Tensor) -> Tensor:
        """The model's score expected of sets of positions: [N, R, width] -> [N, R]."""
        return torch.cat([f.score(own) for f, own in self._split(x)])

    def bound(self, x: Tensor, interval: float) -> tuple[Tensor, Tensor, Tensor]:
        """The score expected, and between which two the model's answer is believed to lie."""
        mean, low, high = zip(*(f.bound(own, interval) for f, own in self._split(x)), strict=True)
        return torch.cat(mean), torch.cat(low), torch.cat(high)

    def bound_gains(self, order: Tensor) -> Tensor:
        """Between which two values each gain along orders is believed to lie, [N, width, 2]."""
        found = torch.zeros(len(self.each), self.width, 2, dtype=torch.float64)
        for i, (f, places) in enumerate(zip(self.each, self.places, strict=True)):
            own = torch.searchsorted(places, order[i, : len(places)].contiguous())
            found[i, : len(places)] = f.bound_gains(own[None])[0]
        return found

    def bound_ranks(self) -> Tensor:
        """Between which two places each feature is believed to be, [N, width, 2]; 0 without one."""
        found = torch.zeros(len(self.each), self.width, 2, dtype=torch.int64)
        for row, f, places in zip(found, self.each, self.places, strict=True):
            row[places] = f.bound_ranks()[0]
        return found

    def rows(self, which: Tensor | slice) -> SeveralFunctions:
        """The functions of some of the inputs."""
        picked = torch.arange(len(self.each))[which].tolist()
        each, places = (tuple(p[i] for i in picked) for p in (self.each, self.places))
        return SeveralFunctions(each, places, self.width)

    def cut(self, width: int) -> SeveralFunctions:
        """The same over the first positions; no input may have features behind them."""
        return replace(self, width=width)

    def parts(self) -> dict[str, Tensor]:
        """What ``build`` needs beside the answers to make the same functions again, by name."""
        found: dict[str, Tensor] = {}
        for i, (f, places) in enumerate(zip(self.each, self.places, strict=True)):
            own = f.parts() | {"places": places, "answers": torch.tensor([f.n_answers])}
            found |= {f"{i}.{name}": part for name, part in own.items()}
        return found

    @classmethod
    def build(
        cls, parts: Mapping[str, Tensor], sets: Tensor, answers: Tensor, link: Link
    ) -> SeveralFunctions:
        """The functions of ``parts``, sets of positions and their log-odds or values."""
        each, every = [], []
        for i in range(len(sets)):
            own = {k.removeprefix(f"{i}."): v for k, v in parts.items() if k.startswith(f"{i}.")}
            places, count = own.pop("places").long(), int(own.pop("answers"))
            row = slice(i, i + 1)
            known = sets[row, :count][..., places], answers[row, :count]
            each.append(SetFunction.build(own, *known, link))
            every.append(places)
        return cls(tuple(each), tuple(every), sets.shape[2])

    def _split(self, x: Tensor) -> list[tuple[SetFunction, Tensor]]:
        """Each function with the part of sets that is about its own features."""
        own = (x[i : i + 1][..., places] for i, places in enumerate(self.places))
        return list(zip(self.each, own, strict=True))
