"""Run any experiment: choose inputs, measure them block by block, remember, write the result.

Blocks are always the same inputs in the same order, and a block that is not wholly remembered is
measured again as a whole: so a run that was interrupted ends with the files it would have had. Maps
with a budget and the others are measured and remembered apart: new code of the function learned
from answers leaves what is remembered of the others as good as it was.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.experiment import Experiment
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Batch, choose_inputs, load_images
from sea_bench.experiments.maps import CLASS_MAPS, ClassMaps, learn_class_maps
from sea_bench.experiments.measurements import KINDS, find_metric
from sea_bench.experiments.region_searches import find_method
from sea_bench.experiments.store import Store, hash_source, make_key
from sea_bench.experiments.tables import count_published, describe_making, write_csv, write_page
from sea_bench.machine import describe_machine
from sea_nn.errors import InputError
from sea_nn.explanation.provenance import hash_weights
from sea_nn.members.registry import expand_methods
from sea_nn.metrics import MetricCurve, Scores
from sea_nn.metrics.sensitivity import RANDOM
from sea_nn.vision.folders import find_cache

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Result:
    """What a run made.

    ``n_reused`` inputs were remembered from an earlier run; ``complete`` says whether these are all
    that a published result needs; ``kept`` is one of more inputs, which this did not replace.
    """

    experiment: Experiment
    scores: Scores
    n_inputs: int
    n_reused: int
    complete: bool
    files: tuple[Path, ...]
    kept: Path | None = None


def run_experiment(
    experiment: Experiment,
    *,
    limit: int | None = None,
    device: str = "auto",
    seed: int = 0,
    out: str | Path = "docs/results",
    cache: str | Path | None = None,
    fresh: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> Result:
    """Run an experiment and write NAME.md, NAME.csv and its figures.

    With a ``limit`` it is a trial: a published result in ``out`` is not replaced by a smaller one,
    which goes to ``out/trial`` then. ``seed`` is of the inputs' order, of members and metrics;
    ``cache`` is the folder for results of single inputs, by default ``$SEA_NN_CACHE/bench``,
    which are measured again if ``fresh``. ``command`` says on the page how to run this again, and
    ``progress`` is called with (text, inputs done, inputs in all).
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1 input; got {limit}")
    if seed < 0:
        raise InputError(f"seed must be a whole number from 0; got {seed}")
    tell = progress or (lambda text, done, total: None)
    where = _find_device(device)
    wanted = experiment.n_inputs if limit is None else limit
    tell("choosing inputs", 0, wanted)
    inputs = choose_inputs(experiment, wanted, where, seed, lambda text: tell(text, 0, wanted))
    explainer = Explainer(experiment, inputs, seed)
    store = Store(find_cache("bench") if cache is None else cache)
    explainer = replace(explainer, class_maps=_prepare_class_maps(explainer, store, tell))
    scores, n_reused, machines = _measure(explainer, store, fresh, tell)
    n = len(inputs)
    complete = n >= experiment.n_inputs or inputs.available == n
    target, kept = Path(out), None
    published = count_published(target, experiment.name)
    if published is not None and n < published:
        target, kept = target / "trial", target / f"{experiment.name}.md"
    target.mkdir(parents=True, exist_ok=True)
    figures: tuple[Path, ...] = ()
    if experiment.figures:
        from sea_bench.experiments.figures import draw_figures  # matplotlib, which is slow to load

        tell("drawing", n, n)
        figures = draw_figures(explainer, scores, target)
    facts = {
        "command": command or f"sea bench {experiment.name}",
        "seed": seed,
        "machine": ", and ".join(machines),
        "trial": not complete,
    }
    table = write_csv(experiment, inputs, scores, target)
    made = describe_making(experiment, inputs, scores, facts)
    page = write_page(experiment, scores, made, figures, target, trial=not complete)
    files = (page, table, *figures)
    return Result(experiment, scores, n, n_reused, complete, files, kept)


def describe_settings(explainer: Explainer) -> dict[str, Any]:
    """Return everything but the input that determines a result, as plain values."""
    experiment, inputs = explainer.experiment, explainer.inputs
    options = {k: v for k, v in experiment.options.items() if k in experiment.members}
    methods = [find_method(name) for name in experiment.members]
    entries = expand_methods(methods, options) if methods else ()
    learned = experiment.kind != "scores" or any(one.budget for one in experiment.maps)
    settings = {
        "kind": experiment.kind,
        "data": experiment.data,
        "data_options": dict(experiment.data_options),
        "classifier": experiment.classifier,
        "weights": hash_weights(inputs.loaded.model),
        "maps": [one.describe() for one in experiment.maps],
        "members": {entry.label: dict(entry.options) for entry in entries},
        "metrics": list(experiment.metrics),
        "mask": experiment.mask,
        "seed": explainer.seed,
        "blocks": experiment.blocks,
        "pairs": experiment.pairs,
        "n_train": experiment.n_train,
        "classes": list(experiment.classes) if experiment.n_train else [],
        "source": hash_source(learned=learned),
    }
    if experiment.kind in ("time", "stability"):  # which compares this machine's devices
        settings["machine"] = describe_machine(inputs.device)
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _find_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device must be auto, cpu or cuda; got {device!r}") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError("this machine has no GPU that PyTorch can use; take --device cpu")
    return found


def split_maps(experiment: Experiment) -> tuple[Experiment, ...]:
    """Return the experiment with its other maps alone, and with those with a budget alone.

    It is left whole where it has one sort of maps, or where a map's number depends on other maps.
    """
    parts = [tuple(m for m in experiment.maps if bool(m.budget) == b) for b in (False, True)]
    painted = any(name.startswith("mass_equal_sharpness") for name in experiment.metrics)
    if experiment.kind != "scores" or painted or not all(parts):
        return (experiment,)
    return tuple(replace(experiment, maps=maps) for maps in parts)


def _measure(
    explainer: Explainer, store: Store, fresh: bool, tell: Progress
) -> tuple[Scores, int, list[str]]:
    """Return all scores, how many inputs were remembered, and the machines that measured."""
    experiment, inputs = explainer.experiment, explainer.inputs
    parts = split_maps(experiment)
    explainers = [
        [replace(explainer, experiment=part, inputs=one) for part in parts]
        for one in inputs.split()
    ]
    settings = [[describe_settings(one) for one in group] for group in explainers]
    n, found, n_reused = len(inputs), list[Scores](), 0
    here = f"{describe_machine(inputs.device)} with torch {torch.__version__}"
    machines: dict[str, None] = {}
    for numbers in inputs.cut(experiment.blocks):
        start, model = numbers[0], inputs.asked[numbers[0]]
        tell(f"{experiment.name}: {inputs.items[start].name}", start, n)
        batch, by_part, reused = inputs.read(numbers), list[list[Scores]](), True
        for one, told in zip(explainers[model], settings[model], strict=True):
            keys = _make_keys(told, batch)
            known = [] if fresh else [_load(one.experiment, store, key) for key in keys]
            ready = [each for each in known if each is not None]
            if len(ready) < len(keys):
                scores, reused = KINDS[experiment.kind](one, batch), False
                for row, key in enumerate(keys):
                    _save(scores, row, store, key, here)
                # As the store gives it back, so that nothing depends on what was remembered.
                ready = [(each, here) for each in _split(scores)]
            by_part.append([each for each, _ in ready])
            machines.update(dict.fromkeys(machine for _, machine in ready))
        n_reused += reused * len(batch)
        found.extend(_join_maps(experiment, some) for some in zip(*by_part, strict=True))
    tell("done", n, n)
    return Scores.join(found), n_reused, list(machines)


def _make_keys(settings: dict[str, Any], batch: Batch) -> list[str]:
    keys = []
    for row in range(len(batch)):
        content = [batch.x[row], batch.target[row]]
        content += [part[row] for part in (batch.masks, batch.plain) if part is not None]
        keys.append(make_key(settings, batch.number + row, *content))
    return keys


def _split(scores: Scores) -> list[Scores]:
    rows = range(len(scores))
    return [
        Scores(
            scores.methods,
            scores.metrics,
            {name: values[row : row + 1] for name, values in scores.values.items()},
            {k: MetricCurve(c.axis, c.values[row : row + 1]) for k, c in scores.curves.items()},
            notes=scores.notes,
        )
        for row in rows
    ]


def _join_maps(experiment: Experiment, parts: Sequence[Scores]) -> Scores:
    """The scores of all maps in the experiment's order, from those of ``split_maps``."""
    if len(parts) == 1:
        return parts[0]
    methods = [name for part in parts for name in part.methods]
    wanted = (*(one.label for one in experiment.maps), RANDOM)
    columns = [methods.index(name) for name in wanted]

    def join(tables: Iterable[Tensor]) -> Tensor:
        return torch.cat(list(tables), 1)[:, columns]

    first, notes = parts[0], [part.notes for part in parts]
    return replace(
        first,
        methods=wanted,
        values={k: join(part.values[k] for part in parts) for k in first.values},
        curves={
            k: MetricCurve(curve.axis, join(part.curves[k].values for part in parts))
            for k, curve in first.curves.items()
        },
        notes={k: tuple(dict.fromkeys(t for n in notes for t in n.get(k, ()))) for k in notes[0]},
    )


def _save(scores: Scores, row: int, store: Store, key: str, machine: str) -> None:
    tensors: dict[str, Tensor] = {}
    for name, values in scores.values.items():
        tensors[f"values {name}"] = values[row]
    for name, curve in scores.curves.items():
        tensors[f"axis {name}"] = curve.axis
        tensors[f"curve {name}"] = curve.values[row]
    notes = {name: list(said) for name, said in scores.notes.items()}
    store.write(key, tensors, {"methods": list(scores.methods), "notes": notes, "machine": machine})


def _load(experiment: Experiment, store: Store, key: str) -> tuple[Scores, str] | None:
    """One input's scores and the machine that they were measured on."""
    found = store.read(key)
    if found is None:
        return None
    tensors, facts = found
    metrics = {name: find_metric(name) for name in experiment.metrics}
    whole = {"methods", "notes", "machine"} <= set(facts)
    if not whole or any(f"values {name}" not in tensors for name in metrics):
        return None
    scores = Scores(
        tuple(facts["methods"]),
        metrics,
        {name: tensors[f"values {name}"].unsqueeze(0) for name in metrics},
        {
            name: MetricCurve(tensors[f"axis {name}"], tensors[f"curve {name}"].unsqueeze(0))
            for name in metrics
            if f"curve {name}" in tensors
        },
        notes={name: tuple(said) for name, said in facts["notes"].items()},
    )
    return scores, facts["machine"]


def _prepare_class_maps(explainer: Explainer, store: Store, tell: Progress) -> ClassMaps:
    """Learn the maps of whole classes, where the experiment has such, or remember them."""
    experiment, inputs = explainer.experiment, explainer.inputs
    wanted = [one.label for one in experiment.maps if one.how in CLASS_MAPS]
    if not wanted:
        return {}
    images = load_images(experiment, "train")
    classes = [images.classes.index(name) for name in experiment.classes]
    key = make_key({**describe_settings(explainer), "what": "class maps"}, 0)
    found = store.read(key)
    if found is None:
        by_class = {}
        for number in classes:
            tell(f"learning the class {images.classes[number]}", 0, len(inputs))
            own = images.choose(lambda item, number=number: item.label == number)  # type: ignore[misc]
            chosen = own.sample(min(experiment.n_train, len(own)), explainer.seed)
            pictures = [inputs.loaded.preprocess(item.read()) for item in chosen]
            x = torch.stack(pictures).to(inputs.device)
            target = torch.full((len(x),), number, device=x.device)
            by_class[number] = explainer.compute_members(x, target)
        learned = learn_class_maps(experiment, by_class)
        tensors = {
            f"{i} {k}": m for i, label in enumerate(wanted) for k, m in learned[label].items()
        }
        store.write(key, tensors, {})
    else:
        tensors = found[0]
    return {
        label: {k: tensors[f"{i} {k}"].to(inputs.device) for k in classes}
        for i, label in enumerate(wanted)
    }
