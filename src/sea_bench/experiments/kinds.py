"""What experiments on tables, series, volumes and several inputs share.

A problem is a model with inputs to explain; every method gives an order of its features, and every
order is scored by what the model itself says of its first features, kept (insertion) and removed
(deletion).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sea_bench.experiments.asking import ScoreSets, explain, fill_all, make_score
from sea_bench.experiments.experiment import Compared, quantity, score_rows
from sea_bench.experiments.pages import write_interval
from sea_bench.experiments.rivals import (
    greedy,
    random_order,
    rank,
    shapley,
    values_by_lime,
    values_by_shap,
)
from sea_nn.features import Features
from sea_nn.members.run import compute_maps

BUDGETS = (128, 512)
GREEDY_DRAWS = 8  # rows that stand in for what is absent while greed asks
MOST_EXACT = 10  # features up to which every set is asked about
METRICS = (
    quantity("insertion", "higher", "The model's mean score with only the first 0, 1, … n left."),
    quantity("deletion", "lower", "The model's mean score with the first 0, 1, … n removed."),
)


@dataclass(frozen=True)
class Problem:
    """A model, inputs to explain, and inputs to draw from.

    Attributes:
        name: of its table.
        model: from rows to outputs; of several inputs, which rows hold side by side, their
            ``Several.wrap``.
        x: the rows to explain, [N, ...].
        target: the classes to explain, [N].
        background: other rows, which methods may draw from.
        features: what is explained.
        output: what the model's outputs are.
        scoring: rows that score, and that no method sees; empty: the background's.
        given: what SEA is given in place of ``model``, ``x`` and ``background``, where these are
            packed, under the names "model", "x" and "background"; and further arguments.
        about: how well the model does, for the page.
    """

    name: str
    model: Callable[[Tensor], Tensor]
    x: Tensor
    target: Tensor
    background: Tensor
    features: Features
    output: str = "logits"
    scoring: Tensor | None = None
    given: Mapping[str, Any] | None = None
    about: str = ""

    def score(self, way: str = "background", draws: int = 64) -> ScoreSets:
        """What the model says of sets of features, what is not left being absent in this way."""
        rows = self.background if self.scoring is None else self.scoring
        fills = fill_all(self.x, self.features, way, rows, draws)
        return make_score(self.model, self.x, self.target, self.features, fills, self.output)

    def spend(self, budget: int, seed: int, background: bool = True, **how: Any) -> Any:
        """SEA's explanation as users have it."""
        own = dict(self.given or {})
        model, x = own.pop("model", self.model), own.pop("x", self.x)
        others = own.pop("background", self.background)
        given = {**own, **({"background": others} if background else {})}
        options = {"budget": budget, "output": self.output, "seed": seed, **how}
        return explain(model, x, self.target, given=given, **options)

    def explain_by_members(self, members: Sequence[str], seed: int) -> dict[str, Tensor]:
        """Members' values of the features, float64 [N, n] each, from the background's mean."""
        kind, sums = self.features.kind, dict[str, Tensor]()
        call: dict[str, Any] = {"output": self.output, "seed": seed}
        call |= {"features": Features.of(self.x, kind=kind), "baselines": self.background.mean(0)}
        found = compute_maps(self.model, self.x, self.target, list(members), **call)
        for name, raw in found.maps.items():
            map_ = raw if kind.channels is None else raw.expand_as(self.x).sum(kind.channels)
            sums[name] = self.features.sum(map_.double())
        return sums


def order_by_methods(p: Problem, seed: int, members: Sequence[str]) -> dict[str, Tensor]:
    """The features' orders by SEA, its members, other members, and rivals that ask: [N, n] each."""
    orders: dict[str, Tensor] = {}
    count, n = len(p.x), p.features.n
    ask = p.score("background_mean", draws=1)
    for budget in BUDGETS:
        e = p.spend(budget, seed)
        orders[f"SEA, {budget}"] = e.order
        if budget == BUDGETS[0]:
            heat = e.maps.mean(1)
            orders["its members alone"] = rank(p.features.sum(heat) / p.features.count())
    for budget in BUDGETS:
        orders[f"Kernel SHAP, {budget}"] = rank(values_by_shap(ask, count, n, budget, seed))
        orders[f"LIME, {budget}"] = rank(values_by_lime(ask, count, n, budget, seed))
    for name, values in p.explain_by_members(members, seed).items() if members else ():
        orders[name] = rank(values)
    if n <= MOST_EXACT:
        orders["Shapley, all sets"] = rank(shapley(p.score(), count, n))
    return orders


def compare_orders(
    p: Problem, orders: Mapping[str, Tensor], seed: int, way: str = "background", draws: int = 64
) -> Compared:
    """The table of a problem: insertion and deletion of every order, greed's and a random one's."""
    score, count, n = p.score(way, draws), len(p.x), p.features.n
    every = {
        **orders,
        "greedy on the model": greedy(p.score(way, min(draws, GREEDY_DRAWS)), count, n),
        "random order": random_order(count, n, seed),
    }
    names = [metric.name for metric in METRICS]
    rows = {k: dict(zip(names, areas(score, order), strict=True)) for k, order in every.items()}
    title = p.name if way == "background" else f"{p.name}, absent by {way.replace('_', ' ')}"
    unit = " The score is a value." if p.output == "value" else ""
    about = f"{p.about[:1].upper()}{p.about[1:]}." if p.about else ""
    return Compared(score_rows(rows, METRICS), "SEA, 128", title, f"{about}{unit}".strip())


def areas(score: ScoreSets, order: Tensor) -> tuple[Tensor, Tensor]:
    """Insertion (higher is better) and deletion (lower is better) of orders [N, n], [N] each.

    Features go in, or out, one by one from the first; the mean of the score by trapezoids.
    """
    n = order.shape[1]
    place = order.argsort(1)
    kept = place[:, None] < torch.arange(n + 1)[:, None]
    weight = torch.ones(n + 1, dtype=torch.float64)
    weight[0] = weight[-1] = 0.5
    both = [score(sets).double() @ weight / n for sets in (kept, ~kept)]
    return both[0], both[1]


def first_on(truth: Tensor, order: Tensor) -> str:
    """How often an order's first feature is one of those that matter, bool [N, n]; its interval."""
    return write_interval(truth.gather(1, order[:, :1])[:, 0].double())


def train(
    build: Callable[[], nn.Module],
    inputs: Mapping[str, Tensor],
    labels: Tensor,
    seed: int,
    epochs: int,
    move: Callable[[Mapping[str, Tensor], torch.Generator], Mapping[str, Tensor]] = lambda x, _: x,
) -> nn.Module:
    """A network of named inputs, trained on classes or values; ``move`` changes batches a little.

    Its first weights are of this seed; the global generator is left as it is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build().train()
    generator = torch.Generator().manual_seed(seed)
    batches = epochs * -(-len(labels) // 16)
    adam = torch.optim.AdamW(model.parameters(), lr=0.005, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 0.005, total_steps=batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels), generator=generator).split(16):
            said = model(**move({name: x[rows] for name, x in inputs.items()}, generator))
            adam.zero_grad()
            if labels.is_floating_point():
                loss = (said[:, 0] - labels[rows]).square().mean()
            else:
                loss = nn.functional.cross_entropy(said, labels[rows], label_smoothing=0.05)
            loss.backward()
            adam.step()
            schedule.step()
    return model.eval()


class Standardise(nn.Module):
    """Columns or channels in units of the training inputs' spread."""

    mean: Tensor
    scale: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        own = (0,) if x.ndim == 2 else (0, 2)  # a series' channels, not its steps
        self.register_buffer("mean", x.mean(own, keepdim=True)[0])
        self.register_buffer("scale", x.std(own, keepdim=True)[0].clamp_min(1e-6))

    def forward(self, input: Tensor) -> Tensor:
        """Standardise rows [N, F] or series [N, C, T]."""
        return (input - self.mean) / self.scale
