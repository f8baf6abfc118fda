"""Maps with a budget and the others are remembered apart, and joined as if measured at once."""

import shutil
import sys
import threading
from dataclasses import replace
from functools import partial

import pytest
import torch

from sea_bench.experiments import EXPERIMENTS, Experiment, Map, region_searches, run_experiment
from sea_bench.experiments import run as run_module
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.measurements import KINDS
from sea_bench.experiments.run import split_maps
from sea_bench.experiments.store import LEARNED, SOURCE, hash_source

MIXED = Experiment(
    "mixed",
    "Both sorts of maps",
    "Are they remembered apart?",
    data="fashion_sample",
    classifier="fashion",
    maps=(
        Map("VG", "member", ("saliency",)),
        Map("SEA 20", "budget", (), budget=20),
        Map("mean + answers", "mean", ("saliency", "input_x_gradient"), asked=True),
        Map("SEA 20, to break", "break", (), budget=20),
    ),
    metrics=("deletion:mean", "evaluations", "seconds", "smallest_break:mean", "gini"),
    n_inputs=3,
    blocks=2,
    against="VG",
    figures=(),
)
LABELS = tuple(one.label for one in MIXED.maps)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Runs the experiment; returns its result and the maps measured, block by block.

    The source that keys are made of is a copy, in ``tmp_path / "src"``.
    """
    shutil.copytree(SOURCE, tmp_path / "src", ignore=lambda *_: ["assets", "__pycache__"])
    monkeypatch.setattr(run_module, "hash_source", partial(hash_source, tmp_path / "src"))
    real, measured = KINDS["scores"], []

    def watch(explainer, batch):
        measured.append(tuple(one.label for one in explainer.experiment.maps))
        return real(explainer, batch)

    monkeypatch.setitem(run_module.KINDS, "scores", watch)

    def run(experiment=MIXED, cache="cache"):
        measured.clear()
        folders = {"out": tmp_path / "out", "cache": tmp_path / cache}
        return run_experiment(experiment, device="cpu", **folders), list(measured)

    return run


def change(folder, name):
    path = folder / "src" / name
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")


def test_a_change_of_the_learned_function_measures_budgets_alone(measure, tmp_path):
    others, budgets = LABELS[::2], LABELS[1::2]
    first, measured = measure()
    assert measured == [others, budgets] * 2
    assert first.scores.methods == (*LABELS, "random")
    change(tmp_path, "sea_nn/function/answers_fit.py")
    joined, measured = measure()
    assert measured == [budgets] * 2
    assert joined.n_reused == 0
    assert joined.scores.methods == first.scores.methods
    for name, values in first.scores.values.items():
        columns = [0, 2, 4] if name == "seconds" else slice(None)
        assert torch.equal(joined.scores.values[name][:, columns], values[:, columns]), name
    for name, curve in first.scores.curves.items():
        assert torch.equal(joined.scores.curves[name].values, curve.values)
    assert measure()[0].n_reused == 3
    change(tmp_path, "sea_nn/questions/halves.py")  # which "+ answers" uses as well
    assert measure()[1] == [others, budgets] * 2


def test_maps_measured_apart_have_the_scores_of_maps_measured_together(measure):
    scores = measure()[0].scores
    inputs = choose_inputs(MIXED, 3)
    whole = KINDS["scores"](Explainer(MIXED, inputs), inputs.read(range(3)))
    assert whole.methods == scores.methods
    for name in set(MIXED.metrics) - {"seconds"}:
        torch.testing.assert_close(scores.values[name], whole.values[name], rtol=1e-5, atol=1e-6)
    for name, curve in whole.curves.items():
        torch.testing.assert_close(scores.curves[name].values, curve.values)


def test_maps_whose_numbers_depend_on_each_other_stay_together():
    whole = {name for name, one in EXPERIMENTS.items() if len(split_maps(one)) == 1}
    assert {"mass_pets", "predicts_cub", "twice_objects", "time", "stability_fmnist"} <= whole
    assert whole.isdisjoint({"budgets_vit", "smallest_imagenet", "robustness_cub", "human"})
    for name in EXPERIMENTS.keys() - whole:
        others, budgets = split_maps(EXPERIMENTS[name])
        assert not any(one.budget for one in others.maps)
        assert all(one.budget for one in budgets.maps)
        assert len(others.maps) + len(budgets.maps) == len(EXPERIMENTS[name].maps)


def test_other_maps_run_nothing_of_what_their_key_leaves_out(monkeypatch):
    monkeypatch.setattr(region_searches, "CELLS", 2)
    few = {name: {"n_samples": 8} for name in ("lime", "kernel_shap")} | {"rise": {"n_masks": 8}}
    experiment = replace(EXPERIMENTS["budgets_fmnist"], options=few)
    more = ("robustness:k=50", "smallest_half:mean", "spacing@5", "gini")
    experiment = replace(experiment, metrics=(*experiment.metrics, *more))
    inputs = choose_inputs(experiment, 1)
    batch, seen = inputs.read(range(1)), []
    for part in split_maps(experiment):
        files = set()

        def note(frame, event, argument, files=files):
            files.add(frame.f_code.co_filename)

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            KINDS["scores"](Explainer(part, inputs), batch)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        seen.append({name for name in LEARNED if str(SOURCE / name) in files})
    assert seen[0] == set()
    asked = "sea_nn/questions/asked.py"  # a record: its own code runs where one is sliced or saved
    assert seen[1] == {name for name in LEARNED if name.startswith("sea_nn/")} - {asked}
    assert all((SOURCE / name).is_file() for name in LEARNED)
