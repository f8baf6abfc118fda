"""Comparisons measured: inputs in blocks, scores remembered one by one.

Blocks are always the same inputs in the same order, and a block that is not wholly remembered is
measured again as a whole: so a run that was interrupted ends with the files it would have had. Maps
with a budget and the others are measured and remembered apart: where the learned function changes
(``LEARNED_VERSION``), what is remembered of the others counts as before.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.comparison import Comparison
from sea_bench.experiments.experiment import LEARNED_VERSION, Compared, Findings, Run
from sea_bench.experiments.inputs import choose_inputs, load_images
from sea_bench.experiments.maps import CLASS_MAPS, Explainer, learn_class_maps
from sea_bench.experiments.measurements import measure
from sea_bench.experiments.metrics import find_metric
from sea_bench.experiments.store import hash_weights
from sea_bench.training import stack_items
from sea_nn.errors import InputError
from sea_nn.metrics import Scores
from sea_nn.metrics.scoring import RANDOM

SEPARATE = ("scores", "robustness", "dependence")
"""The kinds of comparisons whose numbers of one map do not depend on the others."""


def compare_maps(experiment: Comparison, run: Run) -> Findings:
    """Choose inputs and measure them block by block."""
    maps = tuple(one for one in experiment.maps if one.budget or not run.ours)
    if not maps:
        raise InputError(f"{experiment.name} has no map with a budget, so --ours leaves nothing")
    part = replace(experiment, maps=maps)
    run.tell("choosing inputs; the classifier is trained, if there is none", 0, run.count)
    inputs = choose_inputs(part, run.count, run.device, run.seed)
    explainer = Explainer(part, inputs, run.seed)
    explainer = replace(explainer, class_maps=prepare_class_maps(explainer, run))
    scores = _measure(explainer, run)
    told = zip(inputs.items, inputs.targets, strict=True)
    names = [(item.name, inputs.loaded.labels[target]) for item, target in told]
    which = "those classified right" if experiment.correct else "right and wrong ones alike"
    notes = [*inputs.facts, f"inputs are {which}, in a random order"]
    notes += [f"classes: {', '.join(experiment.classes)}"] if experiment.classes else []
    notes += experiment.notes
    notes += [f"the paper measured on: {experiment.paper_data}"] if experiment.paper_data else []
    own = {name: getattr(experiment, name) for name in ("ours", "aside", "paper")}
    compared = Compared(scores, experiment.against, names=names, **own)
    return Findings([compared], notes, len(inputs))


def prepare_class_maps(explainer: Explainer, run: Run) -> dict[str, dict[int, Tensor]]:
    """Learn the maps of whole classes, where the comparison has such, or remember them."""
    experiment, inputs = explainer.experiment, explainer.inputs
    wanted = [one.label for one in experiment.maps if one.how in CLASS_MAPS]
    if not wanted:
        return {}
    images = load_images(experiment, "train")
    classes = [images.classes.index(name) for name in experiment.classes]

    def learn() -> dict[str, Tensor]:
        by_class = {}
        for number in classes:
            run.tell(f"learning the class {images.classes[number]}", 0, len(inputs))
            own = images.choose(lambda item: item.label == number)  # noqa: B023
            chosen = own.sample(min(experiment.n_train, len(own)), explainer.seed)
            x, _ = stack_items(chosen, inputs.loaded.preprocess, inputs.device)
            target = torch.full((len(x),), number, device=x.device)
            by_class[number] = explainer.compute_members(x, target)
        return learn_class_maps(experiment, by_class)

    settings = {**describe_settings(explainer, run), "what": "class maps"}
    tensors = run.remember(settings, 0, (), learn)
    run.reused["inputs"] = 0  # these are no inputs
    return {
        label: {k: tensors[f"{i} {k}"].to(inputs.device) for k in classes}
        for i, label in enumerate(wanted)
    }


def split_maps(experiment: Comparison) -> tuple[Comparison, ...]:
    """Return the comparison with its other maps alone, and with those with a budget alone.

    It is left whole where it has one sort of maps, or where a map's number depends on other maps.
    """
    parts = [tuple(m for m in experiment.maps if bool(m.budget) == b) for b in (False, True)]
    painted = any(name.startswith("mass_equal_sharpness") for name in experiment.metrics)
    if experiment.kind not in SEPARATE or painted or not all(parts):
        return (experiment,)
    return tuple(replace(experiment, maps=maps) for maps in parts)


def _measure(explainer: Explainer, run: Run) -> Scores:
    """Measure all scores, or remember them."""
    experiment, inputs = explainer.experiment, explainer.inputs
    explainers = [replace(explainer, experiment=part) for part in split_maps(experiment)]
    settings = [describe_settings(one, run) for one in explainers]
    found = list[Scores]()
    for start in range(0, len(inputs), experiment.blocks):
        run.tell(f"{experiment.name}: {inputs.items[start].name}", start, len(inputs))
        batch = inputs.read(range(start, min(start + experiment.blocks, len(inputs))))
        by_part, reused = list[list[Scores]](), True
        for one, told in zip(explainers, settings, strict=True):
            content = map(batch.list_content, range(len(batch)))
            keys = [run.make_key(told, start + row, *own) for row, own in enumerate(content)]
            ready = [] if run.fresh else _load(run, keys)
            if len(ready) < len(keys):
                scores, reused = measure(one, batch), False
                for row, key in enumerate(keys):
                    _save(scores, row, run, key)
                # As the store gives it back, so that nothing depends on what was remembered.
                ready = _load(run, keys)
            by_part.append([each for each, _ in ready])
            run.machines.update(dict.fromkeys((machine for _, machine in ready), 1))
        run.reused["inputs"] += reused * len(batch)
        found.extend(_join_maps(experiment, some) for some in zip(*by_part, strict=True))
    return Scores.join(found)


def describe_settings(explainer: Explainer, run: Run) -> dict[str, Any]:
    """Return everything but the input that determines a result, as plain values."""
    experiment, inputs = explainer.experiment, explainer.inputs
    learned = experiment.kind not in SEPARATE or any(one.budget for one in experiment.maps)
    return {
        "kind": experiment.kind,
        "data": experiment.data,
        "data_options": {},
        "classifier": experiment.classifier,
        "weights": hash_weights(inputs.loaded.model),
        "maps": [asdict(one) for one in experiment.maps],
        "options": {},
        "metrics": list(experiment.metrics),
        "mask": experiment.mask,
        "blocks": experiment.blocks,
        "pairs": experiment.pairs,
        "n_train": experiment.n_train,
        "classes": list(experiment.classes) if experiment.n_train else [],
        "learned": LEARNED_VERSION if learned else 0,
        "machine": run.here if experiment.kind == "time" else "",
    }


def _join_maps(experiment: Comparison, parts: Sequence[Scores]) -> Scores:
    """The scores of all maps in the experiment's order, from those of ``split_maps``."""
    if len(parts) == 1:
        return parts[0]
    methods = [name for part in parts for name in part.methods]
    wanted = (*(one.label for one in experiment.maps), RANDOM)
    columns = [methods.index(name) for name in wanted]
    values, notes = {}, dict[str, tuple[str, ...]]()
    for name in parts[0].metrics:
        values[name] = torch.cat([part.values[name] for part in parts], 1)[:, columns]
        said = dict.fromkeys(note for part in parts for note in part.notes.get(name, ()))
        notes |= {name: tuple(said)} if name in parts[0].notes else {}
    return replace(parts[0], methods=wanted, values=values, curves={}, notes=notes)


def _save(scores: Scores, row: int, run: Run, key: str) -> None:
    tensors = {f"values {name}": values[row] for name, values in scores.values.items()}
    notes = {name: list(said) for name, said in scores.notes.items()}
    facts = {"methods": list(scores.methods), "metrics": list(scores.metrics), "notes": notes}
    run.store.write(key, tensors, {**facts, "machine": run.here})


def _load(run: Run, keys: Sequence[str]) -> list[tuple[Scores, str]]:
    """The scores of inputs that are remembered, and the machines that measured them."""
    ready = []
    for tensors, facts in filter(None, map(run.store.read, keys)):
        metrics = {name: find_metric(name) for name in facts["metrics"]}
        values = {name: tensors[f"values {name}"][None] for name in metrics}
        notes = {name: tuple(said) for name, said in facts["notes"].items()}
        scores = Scores(tuple(facts["methods"]), metrics, values, notes=notes)
        ready.append((scores, facts["machine"]))
    return ready
