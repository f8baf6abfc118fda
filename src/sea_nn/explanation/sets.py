"""What an explanation says of its inputs and features: names, units, and sets of features.

These are the first ones, the smallest ones, and what the model is expected to say of any.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.explanation.fields import Contents, spread
from sea_nn.features import smooth
from sea_nn.function.function import ROUNDING, SetFunction, find_rounding, to_score
from sea_nn.function.several import SeveralFunctions
from sea_nn.model.outputs import Output
from sea_nn.paper.agreement import agreement, disagreement


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


class Findings(Contents):
    """What an ``Explanation`` says, whoever shows it: figures, reports and texts read it here."""

    @property
    def output(self) -> Output:
        """What the model's outputs are, and so the scores."""
        return Output(self.provenance.call.get("output") or "logits")

    @property
    def questions(self) -> int:
        """How many questions about each input the model answered; 0 without a budget."""
        return 0 if self.function is None else self.function.n_answers

    @property
    def evaluations(self) -> dict[str, int]:
        """The rows of each input that the model saw, for "members", "questions" and "checks"."""
        return dict(self.provenance.by_purpose)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was not said and how it was taken: the kind of output, what absent means."""
        return self.provenance.assumed

    @property
    def unit(self) -> str:
        """The unit of gains and attribution: "log-odds" or "value"; "" of the paper's function."""
        return "" if self.function is None else self.function.link

    @cached_property
    def agreement_with_sea(self) -> Tensor:
        """Spearman's rank correlations of SEA (first) and the members: [N, m + 1, m + 1]."""
        sea = self.attribution.reshape(len(self), 1, *self.shape)
        maps = torch.cat([sea.to(self.maps), self.maps], dim=1)
        if self.texts is None:
            return agreement(maps)
        each = zip(maps.split(1), map(len, self.texts), strict=True)
        return torch.cat([agreement(one[..., :width]) for one, width in each])

    @property
    def agreement(self) -> Tensor:
        """Spearman's rank correlations between the members: [N, m, m]; nan for constant maps."""
        return self.agreement_with_sea[:, 1:, 1:]

    @cached_property
    def disagreement(self) -> Tensor:
        """Where members disagree, the spread of their percentile ranks (0 to 0.5): [N, *shape]."""
        return disagreement(self.maps)

    def mean_agreement(self) -> Tensor:
        """The mean rank correlation of all pairs of members: [N]; nan where there is no pair."""
        m = len(self.methods)
        above = torch.triu(torch.ones(m, m, dtype=torch.bool), 1)
        return self.agreement[:, above.to(self.agreement.device)].nanmean(1)

    def name(self, i: int) -> str:
        """The name of input i's target class, or its number; of a regression "value"."""
        if self.labels is not None:
            return self.labels[i]
        target, value = int(self.target[i]), self.output.kind == "value"
        if self.rival is not None:
            kind = "output" if value else "class"
            return f"{kind} {target}, not {int(self.rival[i])}"
        if value:
            return "value" if target == 0 else f"output {target}"
        return f"class {target}"

    def write_score(self, i: int) -> str:
        """Input i's score as text: a probability with two decimals, a value with four digits."""
        score = float(self.score[i])
        return f"{score:.4g}" if self.output.kind == "value" else f"{score:.2f}"

    def name_feature(self, k: int, i: int = 0) -> str:
        """The name of a feature: its columns', text i's word, or its place in the feature space."""
        if self.texts is not None:
            return self.texts[i][k].strip() if k < len(self.texts[i]) else ""
        if len(self.feature_shape) == 1:
            if self.view != "bars" or not self.feature_names:
                return f"feature {k}"
            if self.features is None:
                return self.feature_names[k]
            own = [n for n, g in zip(self.feature_names, self.features[0], strict=True) if g == k]
            return own[0] if len(own) == 1 else f"{own[0]} and {len(own) - 1} more"
        place = [int(p) for p in np.unravel_index(k, self.feature_shape)]
        if self.view == "lines":
            row, column = place
            channel = self.feature_names[row] if self.feature_names else f"channel {row}"
            return f"{channel} at {column}"
        return f"({', '.join(map(str, place))})"

    @property
    def mean_map(self) -> Tensor:
        """Agg-Mean, the plain mean of the members' heatmaps: [N, *shape]."""
        return self.maps.mean(1)

    def predict(self, sets: Tensor, interval: float | None = None) -> Any:
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
            return f.score(left).float().to(sets.device)
        if isinstance(interval, bool) or not isinstance(interval, float) or not 0 < interval < 1:
            raise InputError(f"interval is a probability between 0 and 1; got {interval!r}")
        score, low, high = (v.float().to(sets.device) for v in f.bound(left, interval))
        return score, low, high

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

    def soften(self, maps: Tensor) -> Tensor:
        """Maps of SEA's as pictures show them, [N, ..., H, W]: cells of a grid without edges.

        An answer is about a whole cell and says nothing of its border. So maps are blurred by half
        a cell, times what the answers believed of no member: heat has a place of its own.
        """
        cells = self.view == "picture" and self.features is not None
        if self.trusted is None or not cells or len(self.feature_shape) != 2:
            return maps
        softened = []
        for own, trust in zip(maps, self.trusted.sum(1).clamp(0, 1).tolist(), strict=True):
            for axis in (-2, -1):
                half = self.shape[axis] / self.feature_shape[axis] / 2
                own = smooth(own, axis, max(half * (1 - trust), 1e-3))
            softened.append(own)
        return torch.stack(softened)

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

    def default_sizes(self) -> list[int]:
        """Sizes worth looking at: 1, 3, 10 and 25 % of the features, all different."""
        return sorted({self.count(share) for share in (0.01, 0.03, 0.1, 0.25)})

    def spread(self, values: Tensor) -> Tensor:
        """Give every position its feature's value: [N, n] -> [N, *shape]."""
        self._check_shape("values", values, self.order.shape[1])
        return spread(values, self.features, self.shape)

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
