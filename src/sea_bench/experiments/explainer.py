"""The maps of a comparison for any inputs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sea_bench.experiments.asking import explain
from sea_bench.experiments.comparison import Comparison, Map
from sea_bench.experiments.inputs import Inputs
from sea_bench.experiments.maps import CLASS_MAPS, ClassMaps, merge
from sea_bench.experiments.region_searches import find_method
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.members.checks import vote
from sea_nn.members.run import MemberMaps, compute_maps, to_heatmaps
from sea_nn.paper.ensemble import Ensemble

WISHES = {"budget": None, "order": None, "keep": True, "break": False}
"""Ways to make a map of a budget: what its order serves, None for both wishes."""


@dataclass(frozen=True)
class Explainer:
    """An experiment with its inputs, and the maps of any of them.

    The seed is that of the members' and the metrics' draws; ``class_maps`` has the maps of whole
    classes, where the experiment has such.
    """

    experiment: Comparison
    inputs: Inputs
    seed: int = 0
    class_maps: ClassMaps = field(default_factory=dict)

    def explain(self, x: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return every map of the experiment by label, [N, H, W], for any inputs [N, C, H, W]."""
        return self.explain_timed(x, target)[0]

    def explain_timed(
        self, x: Tensor, target: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return every map, and the seconds an input that each took, its members' included."""
        found = self.compute_members(x, target) if self.experiment.members else None
        took = {} if found is None else found.seconds
        maps, seconds = {}, {}
        for one in self.experiment.maps:
            started = _read_clock(x)
            if one.how in WISHES:
                made = self._order(one, x, target)
            elif one.how in CLASS_MAPS:
                made = torch.stack([self.class_maps[one.label][int(k)] for k in target])
            elif found is None:
                raise InputError(f"{one.label} of {self.experiment.name} names no member")
            elif one.how == "member":
                made = to_heatmaps(select(found, one.members))[:, 0]
            else:
                made = self.merge(one, found).attribution
            maps[one.label] = made
            spent = _read_clock(x) - started + sum(took[name] for name in one.members)
            seconds[one.label] = spent / len(x)
        return maps, seconds

    def spend(self, budget: int, x: Tensor, target: Tensor) -> Explanation:
        """Explain inputs as a user does who gives SEA so many evaluations an input."""
        return explain(self.inputs.loaded.model, x, target, budget=budget, seed=self.seed)

    def _order(self, one: Map, x: Tensor, target: Tensor) -> Tensor:
        """The map of a budget, or the order of its sets for one wish, [N, H, W]."""
        found, wish = self.spend(one.budget, x, target), WISHES[one.how]
        if one.how == "budget":
            return found.attribution[:, 0]
        order = found.top(1.0, keep=wish)
        falling = torch.linspace(1, 0, order.shape[1], device=order.device).expand(order.shape)
        return found.spread(torch.zeros_like(falling).scatter(1, order, falling))

    def compute_members(
        self, x: Tensor, target: Tensor, members: Sequence[str] | None = None
    ) -> MemberMaps:
        """Return the maps of some members, or of all that any map of the experiment needs."""
        members = self.experiment.members if members is None else members
        return compute_maps(
            self.inputs.loaded.model,
            x,
            target,
            [find_method(name) for name in members],
            options={k: v for k, v in self.experiment.options.items() if k in members},
            seed=self.seed,
        )

    def merge(
        self,
        one: Map,
        found: MemberMaps,
        heatmaps: Tensor | None = None,
        keep_scorer: bool = False,
    ) -> Ensemble:
        """Make one map of its members' maps.

        ``found`` are maps of its members, and maybe of others; ``heatmaps`` [N, m, H, W] take the
        place of the members' own.
        """
        found = select(found, one.members)
        heatmaps = to_heatmaps(found) if heatmaps is None else heatmaps
        return merge(one, heatmaps, vote(found), keep_scorer)


def select(found: MemberMaps, members: Sequence[str]) -> MemberMaps:
    """Return some members' maps alone: how they vote depends on who else takes part."""
    missed = {name: value for name, value in found.missed.items() if name in members}
    return replace(found, maps={name: found.maps[name] for name in members}, missed=missed)


def _read_clock(x: Tensor) -> float:
    """Seconds, once the device has finished what it was told."""
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()
