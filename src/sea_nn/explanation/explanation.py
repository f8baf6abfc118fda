"""Explanation: what SEA found for a batch of inputs, and everything needed to judge it.

An explanation of images holds maps over pixels [H, W], of a table over columns [F], of series
over channels and steps [C, T]; ``shape`` is that shape. Greedy worked on n features: each is a
position of the map, a grid cell or a group; ``features`` says to which each position belongs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from sea_nn.config import count_questions
from sea_nn.ensembling.agreement import agreement, disagreement
from sea_nn.ensembling.heatmaps import binarize
from sea_nn.errors import InputError, KindError
from sea_nn.explanation.files import read_parts, write_parts
from sea_nn.explanation.provenance import Provenance, to_text
from sea_nn.explanation.ranking import Ranking
from sea_nn.explanation.selection import pick_checks, trim_texts
from sea_nn.explanation.summary import write_summary
from sea_nn.explanation.validation import check_parts
from sea_nn.features import KINDS, find_kind
from sea_nn.members.checks import Check
from sea_nn.passes.outputs import Output
from sea_nn.questions.curve import Curve
from sea_nn.submodular.answers_function import AnswersFunction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PlotKind = Literal["strip", "overlay", "top", "gains", "agreement"]
ROWS = (
    *("attribution", "maps", "target", "score", "order", "gains"),
    *("images", "values", "answers", "predict_error", "rival"),
)


class NoSuchInputError(InputError, IndexError):
    """An index beyond the inputs of an explanation."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Attribution maps of N inputs, how they came about, and how far their members agree.

    Attributes:
        attribution: the SEA map, >= 0: [N, 1, H, W] of images, [N, F] of tables, [N, C, T] of
            series, [N, 1, D, H, W] of volumes.
        maps: the members' heatmaps in [0, 1], [N, m, *shape].
        methods: m names.
        target: the explained class of each input, int64 [N].
        score: what the model says of it, [N]: its probability, or of a regression the value; see
            ``output``. With a ``rival``, the probability if it can only be one of the two.
        order: features as greedy took them, int64 [N, n], each a permutation of 0 … n-1.
        gains: what each added: feature ``order[i, k]`` has attribution ``gains[i, k]``, [N, n].
        feature_shape: the shape of the feature space, such as (28, 28) on a grid; its product is n.
        features: the feature of each position of the map, int [N or 1, *shape]; None: one each.
        images: the inputs as the model sees them, uint8 [N, H, W, 3].
        labels: the name of each input's target class.
        checks: what was checked.
        provenance: where it all comes from.
        values: a table's or series' own numbers, [N, F] or [N, C, T].
        feature_names: names of a table's columns or a series' channels.
        answers: which regions the model needs, in [0, 1], [N, *shape]: its answers to questions
            about halves of each input (``sea_nn.questions``), which SEA learned from beside the
            maps; None if it was not asked.
        function: with a budget, the functions learned from the model's answers: ``predict`` asks
            them, and gains are in their ``unit``; a feature's gain is then the sum of the
            attribution of its positions.
        predict_error: root mean square error of ``predict``, from answers left out of its fit, [N].
        kind: of the inputs: "image", "table", "series", "volume" or another; left out, found from
            the attribution's axes.
        view: how it is shown: "picture", "bars", "lines", "slices", …; left out, its kind's.
        curve: with a budget, what the model itself said along ``order``: with only the first p
            features left, and with these removed.
        ranking: the classes that the model finds likeliest.
        rival: of a contrast, the class that the target is explained against, int64 [N].
        texts: of texts, the words of each with the white space after them, one a position of the
            map. Positions behind a shorter text have no gain; ``e[i]`` leaves them out.
    """

    attribution: Tensor
    maps: Tensor
    methods: tuple[str, ...]
    target: Tensor
    score: Tensor
    order: Tensor
    gains: Tensor
    feature_shape: tuple[int, ...]
    features: Tensor | None = None
    images: Tensor | None = None
    labels: tuple[str, ...] | None = None
    checks: tuple[Check, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    values: Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    answers: Tensor | None = None
    function: AnswersFunction | None = None
    predict_error: Tensor | None = None
    kind: str = ""
    view: str = ""
    curve: Curve | None = None
    ranking: Ranking | None = None
    rival: Tensor | None = None
    texts: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", find_kind(self.attribution).name)
        if not self.view:
            known = KINDS.get(self.kind) or find_kind(self.attribution)
            object.__setattr__(self, "view", known.view)
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                object.__setattr__(self, item.name, value.detach())
            elif item.name in ("methods", "labels", "feature_names") and value is not None:
                object.__setattr__(self, item.name, tuple(map(to_text, value)))
            elif item.name == "texts" and value is not None:
                object.__setattr__(self, "texts", tuple(tuple(map(to_text, t)) for t in value))
            elif isinstance(value, list):
                object.__setattr__(self, item.name, tuple(value))
        check_parts(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one map: (H, W), (F,), (C, T) or (D, H, W)."""
        return tuple(self.maps.shape[2:])

    @property
    def output(self) -> Output:
        """What the model's outputs are, and so the scores."""
        return Output(self.provenance.call.get("output") or "logits")

    @property
    def mean_map(self) -> Tensor:
        """Agg-Mean, the plain mean of the members' heatmaps: [N, *shape]."""
        return self.maps.mean(1)

    @property
    def questions(self) -> int:
        """How many questions about each input the model answered; 0 if that is not known."""
        if self.function is not None:
            return self.function.n_answers
        rounds = self.provenance.config.get("rounds")
        regions = self.provenance.config.get("regions", 16)
        if self.answers is None or not isinstance(rounds, int) or not isinstance(regions, int):
            return 0
        return count_questions(regions) * rounds

    @property
    def unit(self) -> str:
        """The unit of gains and attribution: "log-odds" or "value"; "" of the paper's function."""
        return "" if self.function is None else self.function.link

    def predict(self, sets: Tensor) -> Tensor:
        """What the model would say with only these positions left, by the learned function.

        Args:
            sets: bool [N, R, *shape] over the map; of a feature that is left in part, its part.

        Returns:
            The score (a probability, or a value) of each set, [N, R]; ``predict_error`` says how
            far it is off.
        """
        if self.function is None:
            raise InputError("only an explanation with a budget predicts: SEA(model, budget=128)")
        if sets.shape[:1] + sets.shape[2:] != (len(self), *self.shape):
            raise InputError(
                f"sets must be [{len(self)}, R, {', '.join(map(str, self.shape))}]; got "
                f"{list(sets.shape)}"
            )
        left = self.average(sets.to(self.function.weight))
        return self.function.score(left).float()

    @cached_property
    def agreement_with_sea(self) -> Tensor:
        """Spearman's rank correlations of SEA (first) and the members: [N, m + 1, m + 1]."""
        if self.texts is not None and len(self) > 1:
            return torch.cat([one.agreement_with_sea for one in self])  # over its own words
        sea = self.attribution.reshape(len(self), 1, *self.shape)
        return agreement(torch.cat([sea.to(self.maps), self.maps], dim=1))

    @property
    def agreement(self) -> Tensor:
        """Spearman's rank correlations between the members: [N, m, m]; nan for constant maps."""
        return self.agreement_with_sea[:, 1:, 1:]

    @cached_property
    def disagreement(self) -> Tensor:
        """Where members disagree, the spread of their percentile ranks (0 to 0.5): [N, *shape]."""
        return disagreement(self.maps)

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

    def mean_agreement(self) -> Tensor:
        """The mean rank correlation of all pairs of members: [N]; nan where there is no pair."""
        m = len(self.methods)
        above = torch.triu(torch.ones(m, m, dtype=torch.bool), 1)
        return self.agreement[:, above.to(self.agreement.device)].nanmean(1)

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

    def top(self, p: int | float) -> Tensor:
        """The first p features that greedy took: [N, p]."""
        return self.order[:, : self.count(p)]

    def top_mask(self, p: int | float) -> Tensor:
        """Where the first p features that greedy took are: bool [N, *shape]."""
        chosen = torch.zeros_like(self.order, dtype=torch.bool).scatter_(1, self.top(p), True)
        return self.spread(chosen)

    def member_top_masks(self, sizes: Sequence[int | float]) -> Tensor:
        """Where the top features of SEA, every member and Agg-Mean are, at several sizes.

        SEA's are greedy's first; the others' are the features with the largest mean.

        Returns:
            bool [N, m + 2, len(sizes), *shape].
        """
        counts = [self.count(size) for size in sizes]
        others = torch.cat([self.maps, self.mean_map.unsqueeze(1)], dim=1)
        # A map that is zero everywhere has no top: ties would light its first features.
        alive = (others.flatten(2).amax(2) > 0)[..., None, None]
        chosen = binarize(self.average(others), counts) & alive
        rows = torch.stack(
            [torch.stack([self.spread(s) for s in row.unbind(1)], 1) for row in chosen.unbind(1)], 1
        )
        sea = torch.stack([self.top_mask(c) for c in counts], dim=1)
        return torch.cat([sea.unsqueeze(1), rows], dim=1)

    def default_sizes(self) -> list[int]:
        """Sizes worth looking at: 1, 3, 10 and 25 % of the features, all different."""
        return sorted({self.count(share) for share in (0.01, 0.03, 0.1, 0.25)})

    def spread(self, values: Tensor) -> Tensor:
        """Give every position its feature's value: [N, n] -> [N, *shape]."""
        if self.features is None:
            return values.reshape(len(self), *self.shape)
        index = self.features.flatten(1).expand(len(self), -1).to(values.device, torch.int64)
        return values.gather(1, index).reshape(len(self), *self.shape)

    def average(self, maps: Tensor) -> Tensor:
        """Average maps over each feature's positions: [N, k, *shape] -> [N, k, n]."""
        flat = maps.flatten(2)
        if self.features is None:
            return flat
        index = self.features.flatten(1).to(maps.device, torch.int64).expand(len(self), -1)
        index = index.unsqueeze(1).expand_as(flat)
        empty = flat.new_zeros(*flat.shape[:2], self.order.shape[1])
        sums = empty.scatter_add(2, index, flat)
        return sums / empty.scatter_add(2, index, torch.ones_like(flat)).clamp_min(1)

    def half(self) -> Tensor:
        """How many features it takes to reach half of the total gain: int64 [N].

        It tells how concave the learned function is, not how strong the evidence: of noise it is
        small as well.
        """
        running = self.gains.to(torch.float64).cumsum(1)
        return (running < running[:, -1:] / 2).sum(1) + 1

    def save(self, path: str | Path) -> Path:
        """Write a ``.safetensors`` file; see ``sea_nn.explanation.files`` for what it holds."""
        return write_parts(path, {item.name: getattr(self, item.name) for item in fields(self)})

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read a file that ``save`` wrote."""
        return read_parts(path, cls)

    def plot(
        self,
        kind: PlotKind = "strip",
        path: str | Path | None = None,
        p: Sequence[int | float] | None = None,
    ) -> Figure:
        """Draw it: "strip", "overlay", "top", "gains" or "agreement"; see ``sea_nn.show.plots``."""
        # The one import from above, and only when it is called: an explanation that can draw
        # itself is what people expect, and matplotlib is slow to load.
        from sea_nn.show.plots import plot_explanation

        return plot_explanation(self, kind, path, p)

    def summary(self) -> str:
        """What was found, in a few lines of text."""
        return write_summary(self)

    def __len__(self) -> int:
        return self.order.shape[0]

    def __getitem__(self, which: int | slice) -> Explanation:
        """One input (an explanation of length 1) or a slice of them."""
        if isinstance(which, int):
            if not -len(self) <= which < len(self):
                raise NoSuchInputError(f"there are {len(self)} inputs; got index {which}")
            which = which % len(self)
            which = slice(which, which + 1)
        elif not isinstance(which, slice):
            raise KindError(f"index an explanation by an integer or a slice; got {which!r}")
        picked = range(len(self))[which]
        if not picked:
            raise InputError(f"the slice {which} holds none of the {len(self)} inputs")
        rows = torch.tensor(list(picked), device=self.order.device)
        cut: dict[str, Any] = {}
        for name in ROWS:
            tensor = getattr(self, name)
            cut[name] = None if tensor is None else tensor[rows.to(tensor.device)]
        if self.features is not None and self.features.shape[0] > 1:
            cut["features"] = self.features[rows.to(self.features.device)]
        for name in ("function", "curve", "ranking"):
            part = getattr(self, name)
            cut[name] = None if part is None else part.rows(rows)
        if self.labels is not None:
            cut["labels"] = tuple(self.labels[i] for i in picked)
        cut["checks"] = pick_checks(self.checks, picked)
        cut = cut if self.texts is None else trim_texts(self, cut, picked)
        return replace(self, **cut)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        space = "x".join(map(str, self.feature_shape))
        return (
            f"Explanation({len(self)} of kind {self.kind}, shape {self.shape}, "
            f"features {space}, methods {', '.join(self.methods)})"
        )

    def _repr_html_(self) -> str:
        from sea_nn.show.card import write_card

        return write_card(self)
