"""Sets of an explanation's features: the first ones, the smallest ones, what is said of any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.fields import Contents
from sea_nn.function.function import ROUNDING, SetFunction, find_rounding, to_score
from sea_nn.function.several import SeveralFunctions
from sea_nn.paper.heatmaps import binarize


@dataclass(frozen=True)
class SmallestSets:
    """A set of features of each of N inputs, and the model's own answer about it.

    Attributes:
        mask: where it is, bool [N, *shape]; empty where no set was found.
        count: its number of features, [N].
        score: what the model said with only it left, or with it removed, [N]; nan without a set.
    """

    mask: Tensor
    count: Tensor
    score: Tensor


class FeatureSets(Contents):
    """What an ``Explanation`` says about sets of features."""

    @property
    def mean_map(self) -> Tensor:
        """Agg-Mean, the plain mean of the members' heatmaps: [N, *shape]."""
        return self.maps.mean(1)

    @overload
    def predict(self, sets: Tensor, interval: None = None) -> Tensor: ...

    @overload
    def predict(self, sets: Tensor, interval: float) -> tuple[Tensor, Tensor, Tensor]: ...

    def predict(
        self, sets: Tensor, interval: float | None = None
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """What the model would say with only these positions left, by the learned function.

        Args:
            sets: bool [N, R, *shape] over the map; of a feature that is left in part, its part.
            interval: a probability, such as 0.9: say also between which two values the model's
                own answer is believed to lie as often.

        Returns:
            The score (a probability, or a value) of each set, [N, R]; with an interval (score,
            low, high), each [N, R].
        """
        f: SetFunction | SeveralFunctions = self._need("function")
        self._check_shape("sets", sets, "R", *self.shape)
        left = self.average(sets.double().cpu())
        if interval is None:
            return f.score(left).float()
        if isinstance(interval, bool) or not isinstance(interval, float) or not 0 < interval < 1:
            raise InputError(f"interval is a probability between 0 and 1; got {interval!r}")
        score, low, high = f.bound(left, interval)
        return score.float(), low.float(), high.float()

    def map(self, wish: str = "both") -> Tensor:
        """The map of a wish, >= 0, shaped like the attribution: [N, 1, H, W] of images.

        Args:
            wish: "keep": what suffices, the gains with only the first features left (of two copies
                one); "remove": what is needed, what is lost when the first are removed (of two
                copies either nothing or both); "both": the attribution, the mean of the two.
        """
        if wish not in ("keep", "remove", "both"):
            raise InputError(f'a map is "keep", "remove" or "both"; got {wish!r}')
        found: Tensor = self._need("attribution" if wish == "both" else f"{wish}_map")
        return found

    @property
    def trust(self) -> dict[str, Tensor]:
        """The share of what the model answered that each member's heat explains, [N] by member.

        Empty without a budget: nothing was asked that could tell.
        """
        if self.trusted is None:
            return {}
        return dict(zip(self.methods, self.trusted.unbind(1), strict=True))

    @cached_property
    def gain_intervals(self) -> Tensor | None:
        """Between which two values each of ``gains`` is believed to lie with .9, [N, n, 2]."""
        if self.function is None:
            return None
        return self.function.bound_gains(self.order.cpu()).float()

    @cached_property
    def rank_intervals(self) -> Tensor | None:
        """Between which two places of ``order`` each feature is believed to be with .9, [N, n, 2].

        By feature, not by place; the first place is 1.
        """
        return None if self.function is None else self.function.bound_ranks()

    def count(self, p: int | float) -> int:
        """How many features ``p`` means: an integer is a count, a float a share of all n."""
        n = self.order.shape[1]
        if isinstance(p, bool) or not isinstance(p, (int, float)):
            raise KindError(f"p is a count (int) or a share of the features (float); got {p!r}")
        if isinstance(p, int) and 0 <= p <= n:
            return p
        if isinstance(p, float) and 0 < p <= 1:
            return max(1, round(p * n))
        raise InputError(
            f"p must be a count from 0 to {n}, or a share above 0.0 and up to 1.0; got {p!r}"
        )

    def top(self, p: int | float, keep: bool | None = None) -> Tensor:
        """The first p features, [N, p].

        Args:
            p: their number, or a share of all.
            keep: with a budget, True for those expected to keep the score alone (of two copies
                one), False for those whose removal is expected to break it (of two copies both);
                None: the order found, which serves both wishes.
        """
        order = self.order
        if keep is not None:
            order = self._need("asked").keep if keep else self._need("asked").remove
        return order[:, : self.count(p)]

    def top_mask(self, p: int | float, keep: bool | None = None) -> Tensor:
        """Where the first p features are, as by ``top``: bool [N, *shape]."""
        chosen = torch.zeros_like(self.order, dtype=torch.bool)
        return self.spread(chosen.scatter_(1, self.top(p, keep), True))

    def smallest(self, keep: bool = True, share: float = 0.5) -> SmallestSets:
        """The smallest sets of features that keep the score, or whose removal breaks it.

        Only sets count that the model was asked about: with a budget from about 256 on, it is asked
        about the first features by either wish until their number is found.

        Args:
            keep: True for sets that alone leave at least ``share`` of the score; False for sets
                without which less than that is left.
            share: of a probability, or of a value's change from an empty input.
        """
        asked, f = self._need("asked"), self._need("function")
        if not isinstance(share, float) or not 0 < share < 1:
            raise InputError(f"share is a part of the score, above 0 and below 1; got {share!r}")
        sets = torch.cat([asked.sets, torch.ones_like(asked.sets[:, :1])], 1)
        scores = to_score(torch.cat([asked.answers, f.all.to(asked.answers)], 1), f.link)
        start = to_score(f.none, f.link) if f.link == "value" else torch.zeros_like(f.none)
        change = to_score(f.all, f.link) - start
        done = (scores - start) * change.sign()  # a value below that of an empty input falls
        fits = done >= share * change.abs() if keep else done < share * change.abs()
        fits &= ((sets == 0) | (sets == 1)).all(2)  # halves of images cut through features
        chosen = sets.bool() if keep else ~sets.bool()
        if isinstance(f, SeveralFunctions):  # pieces of a text that take no part are in no set
            chosen &= f.there[:, None].to(chosen.device)
        size = chosen.sum(2).masked_fill(~fits, chosen.shape[2] + 1)
        # Of sets of one size, that which does it best.
        better = done if keep else -done
        tied = better.masked_fill(size > size.amin(1, keepdim=True), -torch.inf)
        best = tied.argmax(1, keepdim=True)
        found = size.gather(1, best)[:, 0] <= chosen.shape[2]
        one = chosen.gather(1, best[:, :, None].expand(-1, -1, chosen.shape[2]))[:, 0]
        one = one & found[:, None]
        said = torch.where(found, scores.gather(1, best)[:, 0], torch.nan).float()
        return SmallestSets(self.spread(one), one.sum(1), said)

    def member_top_masks(self, sizes: Sequence[int | float]) -> Tensor:
        """Where the top features of SEA, every member and Agg-Mean are, at several sizes.

        SEA's are greedy's first; the others' are the features with the largest mean.

        Returns:
            bool [N, m + 2, len(sizes), *shape].
        """
        if not isinstance(sizes, (list, tuple)) or not sizes:
            raise InputError(f"sizes must be a list of counts or shares; got {sizes!r}")
        counts = [self.count(size) for size in sizes]
        others = torch.cat([self.maps, self.mean_map.unsqueeze(1)], dim=1)
        # A map that is zero everywhere has no top: ties would light its first features.
        alive = (others.flatten(2).amax(2) > 0)[..., None, None]
        chosen = binarize(self.average(others), counts) & alive
        rows = [self.spread(one) for one in chosen.flatten(1, 2).unbind(1)]
        masks = torch.stack([*(self.top_mask(c) for c in counts), *rows], 1)
        found: Tensor = masks.unflatten(1, (-1, len(counts)))
        return found

    def default_sizes(self) -> list[int]:
        """Sizes worth looking at: 1, 3, 10 and 25 % of the features, all different."""
        return sorted({self.count(share) for share in (0.01, 0.03, 0.1, 0.25)})

    def spread(self, values: Tensor) -> Tensor:
        """Give every position its feature's value: [N, n] -> [N, *shape]."""
        self._check_shape("values", values, self.order.shape[1])
        if self.features is None:
            return values.reshape(len(self), *self.shape)
        index = self.features.flatten(1).expand(len(self), -1).to(values.device, torch.int64)
        return values.gather(1, index).reshape(len(self), *self.shape)

    def average(self, maps: Tensor) -> Tensor:
        """Average maps over each feature's positions: [N, k, *shape] -> [N, k, n]."""
        self._check_shape("maps", maps, "k", *self.shape)
        flat = maps.flatten(2)
        if self.features is None:
            return flat
        index = self.features.flatten(1).to(flat.device, torch.int64).unsqueeze(1).expand_as(flat)
        empty = flat.new_zeros(*flat.shape[:2], self.order.shape[1])
        sums = empty.scatter_add(2, index, flat)
        return sums / empty.scatter_add(2, index, torch.ones_like(flat)).clamp_min(1)

    def gains_by_feature(self) -> Tensor:
        """``gains`` in the order of the features' numbers: [N, n]."""
        return torch.zeros_like(self.gains).scatter(1, self.order, self.gains)

    def sum_gains(self) -> tuple[Tensor, Tensor]:
        """What speaks for the target and what against it, both >= 0: float64 [N] each.

        They are the sums of the gains above 0, which the map has, and of those below 0, without a
        minus and where it is more than the arithmetic's rounding.
        """
        above, below = (side.double().clamp(min=0).sum(1) for side in (self.gains, -self.gains))
        least = ROUNDING * above if self.function is None else find_rounding(self.function)
        return above, torch.where(below > least.to(below), below, 0.0)

    def find_r2(self) -> Tensor:
        """R² of ``predict`` on answers left out of its fit, [N]; nan where it is not known."""
        if self.asked is None or self.function is None or self.predict_error is None:
            return torch.full((len(self),), torch.nan)
        if self.texts is not None and len(self) > 1:  # each by its own answers
            each: Any = self
            return torch.cat([one.find_r2() for one in each])
        return self.asked.compute_r2(self.predict_error, self.function.link)

    def rank_against(self, i: int, count: int) -> list[int]:
        """The features of input i with the most evidence against the target, the first ones."""
        if self.against is None:
            return []
        against = self.average(self.against.reshape(len(self), 1, *self.shape))[i, 0]
        worst = against.argsort(descending=True, stable=True)[:count]
        return [k for k in worst.tolist() if against[k] > 0]

    def _check_shape(self, name: str, value: Tensor, *sizes: int | str) -> None:
        """Refuse what is no tensor of N rows of these sizes, a letter being any size."""
        if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
            raise KindError(f"{name} must be a dense tensor; got {type(value).__name__}")
        wanted = (len(self), *sizes)
        same = [a == b or isinstance(b, str) for a, b in zip(value.shape, wanted, strict=False)]
        if value.ndim != len(wanted) or not all(same):
            shape = ", ".join(map(str, wanted))
            raise InputError(f"{name} must be [{shape}]; got {list(value.shape)}")

    def _need(self, name: str) -> Any:
        """What only an explanation with a budget has."""
        if getattr(self, name) is None:
            raise InputError(
                "the model was asked nothing: only an explanation with a budget predicts, and has "
                "orders and maps by wish: SEA(model, budget=128)"
            )
        return getattr(self, name)
