"""The maps of a comparison for any inputs: members' own, what is made of them, SEA's by budget."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sea_bench.experiments.asking import explain, fill_all, make_score
from sea_bench.experiments.comparison import Comparison, Map
from sea_bench.experiments.inputs import Inputs
from sea_bench.experiments.rivals import greedy
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features, scale
from sea_nn.members.checks import vote
from sea_nn.members.registry import get
from sea_nn.members.run import MemberMaps, compute_maps
from sea_nn.paper.ensemble import Ensemble, aggregate, ensemble, ensemble_class
from sea_nn.paper.heatmaps import reduce_channels

WISHES = {"budget": None, "order": None, "keep": True, "break": False}
"""Ways to make a map of a budget: what its order serves, None for both wishes."""
CLASS_MAPS = ("class_sea", "class_mean", "other_class_sea")
CELLS = 8
"""Cells along each side, of greedy regions."""
COSTS = {"greedy_regions": CELLS**2 * (CELLS**2 + 1)}
"""Model evaluations an input."""


def greedy_regions(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """A search for an order of regions that asks the model: maps [N, 1, H, W] of the n cells.

    A compact form of SMDL-Attribution (Chen et al., ICLR 2024), not its code: on the cells of one
    grid, a set's value is p(class | only it is left) - p(class | only the rest is left), and every
    cell that is left is asked about at every step. The cells taken get 1, ..., 1 / n.
    """
    features = Features.of(x).on_grid((CELLS, CELLS))
    score = make_score(model, x, target, features, fill_all(x, features, "blur"))
    order = greedy(score, len(x), features.n, both=True).to(x.device)
    falling = 1 - torch.arange(features.n, device=x.device) / features.n
    flat = torch.zeros(len(x), features.n, device=x.device)
    return features.expand(flat.scatter(1, order, falling.expand(len(x), -1))).unsqueeze(1)


def count_evaluations(one: Map, shape: tuple[int, ...]) -> int:
    """Return the model evaluations that a map of one input of this shape costs."""
    members = sum(
        COSTS[name] if name in COSTS else get(name).cost(None, shape) for name in one.members
    )
    return members + one.budget


@dataclass(frozen=True)
class Explainer:
    """An experiment with its inputs, and the maps of any of them.

    The seed is that of the members' and the metrics' draws; ``class_maps`` has the maps [H, W] of
    whole classes, by label and class, where the experiment has such.
    """

    experiment: Comparison
    inputs: Inputs
    seed: int = 0
    class_maps: Mapping[str, Mapping[int, Tensor]] = field(default_factory=dict)

    def explain(self, x: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return every map of the experiment by label, [N, H, W], for any inputs [N, C, H, W]."""
        return self.explain_timed(x, target)[0]

    def explain_timed(
        self, x: Tensor, target: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return every map, and the seconds an input that each took, its members' included."""
        found = self.compute_members(x, target) if self.experiment.members else None
        maps, seconds = {}, {}
        for one in self.experiment.maps:
            started = read_clock(x)
            if one.how in WISHES:
                made = self._order(one, x, target)
            elif one.how in CLASS_MAPS:
                made = torch.stack([self.class_maps[one.label][int(k)] for k in target])
            elif found is None:
                raise InputError(f"{one.label} of {self.experiment.name} names no member")
            elif one.how == "member":
                made = select(found, one.members).to_heatmaps()[:, 0]
            else:
                made = merge(one, found).attribution
            maps[one.label] = made
            spent = read_clock(x) - started
            spent += 0 if found is None else sum(found.seconds[name] for name in one.members)
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
        names = self.experiment.members if members is None else members
        methods: list[str | Callable[..., Tensor]] = [
            greedy_regions if name == "greedy_regions" else name for name in names
        ]
        return compute_maps(self.inputs.loaded.model, x, target, methods, seed=self.seed)


def merge(one: Map, found: MemberMaps, heatmaps: Tensor | None = None) -> Ensemble:
    """Make one map of its members' maps, in the way ``one`` says.

    ``found`` are maps of its members, and maybe of others; ``heatmaps`` [N, m, H, W] take the
    place of the members' own.
    """
    found = select(found, one.members)
    heatmaps = found.to_heatmaps() if heatmaps is None else heatmaps
    if one.how in ("sea", "sea_step", "sea_random"):
        weights = vote(found)
        return ensemble(heatmaps, one.config, weights=weights, quiet=True)
    with warnings.catch_warnings():
        # A member that is constant on an input does not count there, as in SEA.
        warnings.filterwarnings("ignore", message=".*is constant, prefers no feature")
        return aggregate(heatmaps, one.how)


def select(found: MemberMaps, members: Sequence[str]) -> MemberMaps:
    """Return some members' maps alone: how they vote depends on who else takes part."""
    missed = {name: value for name, value in found.missed.items() if name in members}
    return replace(found, maps={name: found.maps[name] for name in members}, missed=missed)


def learn_class_maps(
    experiment: Comparison, by_class: Mapping[int, MemberMaps]
) -> dict[str, Tensor]:
    """Return the class-level maps that the experiment has, by "number of the map, class" [M9].

    ``by_class`` has, for each class, the members' maps of its training inputs.
    """
    classes = list(by_class)
    result: dict[str, Tensor] = {}
    wanted = (own for own in experiment.maps if own.how in CLASS_MAPS)
    for i, one in enumerate(wanted):
        shift = int(one.how == "other_class_sea")
        for place, number in enumerate(classes):
            members = by_class[classes[(place + shift) % len(classes)]].maps
            raw = (reduce_channels(members[name].float()) for name in one.members)
            stacked = torch.stack([scale(one_map) for one_map in raw], 1)
            if one.how == "class_mean":
                whole = scale(stacked.mean((0, 1)).unsqueeze(0))[0]
            else:
                whole = ensemble_class(stacked, one.config).attribution[0]
            result[f"{i} {number}"] = whole
    return result


def read_clock(x: Tensor) -> float:
    """Seconds, once the device of some inputs has finished what it was told."""
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()
