"""One run of an experiment: what every measure and every figure needs, in one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.maps import CLASS_MAPS, ClassMaps, Removal, draw_squares, merge
from sea_bench.experiments.rivals import find_method
from sea_bench.experiments.subjects import Subjects
from sea_nn.ensembling.ensemble import Ensemble
from sea_nn.ensembling.heatmaps import to_heatmap
from sea_nn.members.compute import compute_maps
from sea_nn.metrics import measure_drops
from sea_nn.questions.answers import Ask
from sea_nn.questions.ask import make_ask


@dataclass(frozen=True)
class Run:
    """An experiment with its inputs, and the maps of any of them.

    Attributes:
        experiment: what is run.
        subjects: its inputs and its classifier.
        seed: of the members' and the metrics' draws.
        class_maps: the maps of whole classes, where the experiment has such.
    """

    experiment: Experiment
    subjects: Subjects
    seed: int = 0
    class_maps: ClassMaps = field(default_factory=dict)

    def explain(self, x: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return every map of the experiment by label, [N, H, W], for any inputs [N, C, H, W]."""
        maps = self.experiment.maps
        heatmaps = self.compute_heatmaps(x, target)
        removal = self._remove_squares(maps, x, target)
        found = {}
        for one in maps:
            if one.how == "member":
                found[one.label] = heatmaps[one.members[0]]
            elif one.how in CLASS_MAPS:
                found[one.label] = torch.stack([self.class_maps[one.label][int(k)] for k in target])
            else:
                stacked = torch.stack([heatmaps[name] for name in one.members], 1)
                ask = self._find_ask(one, x, target)
                found[one.label] = merge(one, stacked, ask, removal).attribution
        return found

    def merge(
        self, one: Map, stacked: Tensor, x: Tensor, target: Tensor, keep_scorer: bool = False
    ) -> Ensemble:
        """Make one map of the heatmaps [N, m, H, W] of its members, asking the model if it does."""
        ask, removal = self._find_ask(one, x, target), self._remove_squares((one,), x, target)
        return merge(one, stacked, ask, removal, keep_scorer=keep_scorer)

    def compute_heatmaps(
        self, x: Tensor, target: Tensor, members: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Return the heatmap of every member: absolute, channels summed, in [0, 1], [N, H, W]."""
        members = self.experiment.members if members is None else members
        options = {k: v for k, v in self.experiment.options.items() if k in members}
        model = self.subjects.loaded.model
        methods = [find_method(name) for name in members]
        found = compute_maps(model, x, target, methods, options=options, seed=self.seed)
        return {name: to_heatmap(raw) for name, raw in found.maps.items()}

    def _find_ask(self, one: Map, x: Tensor, target: Tensor) -> Ask | None:
        """A way to ask the model about sets of these very inputs, if the map asks."""
        if not one.asks or one.config is None:
            return None
        return make_ask(self.subjects.loaded.model, x, target, absent=one.config.absent)

    def _remove_squares(self, maps: Sequence[Map], x: Tensor, target: Tensor) -> Removal | None:
        """What hiding random squares of these inputs does, if any of the maps wants to know."""
        if all(one.how != "optimal" for one in maps):
            return None
        squares = draw_squares(tuple(x.shape[2:]), self.seed, x.device)
        squares = squares.expand(len(x), *squares.shape)
        model, bounds = self.subjects.loaded.model, self.subjects.bounds
        return squares, measure_drops(model, x, target, squares, bounds=bounds)
