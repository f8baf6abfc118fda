"""Maps with a budget and the others are remembered apart, and joined as if measured at once."""

import pytest
import torch

from sea_bench.catalogue import EXPERIMENTS
from sea_bench.experiments import Comparison, Map, blocks, measurements, run_experiment
from sea_bench.experiments.blocks import split_maps
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.maps import Explainer
from sea_bench.experiments.measurements import KINDS

MIXED = Comparison(
    *("mixed", "Both sorts of maps", "Are they remembered apart?", "fashion_sample"),
    maps=(
        Map("VG", "member", ("saliency",)),
        Map("SEA 20", "budget", (), budget=20),
        Map("mean", "mean", ("saliency", "input_x_gradient")),
        Map("SEA 20, to break", "break", (), budget=20),
    ),
    metrics=("deletion:mean", "evaluations", "seconds", "smallest_break:mean", "gini"),
    n_inputs=3,
    blocks=2,
    against="VG",
)
LABELS = tuple(one.label for one in MIXED.maps)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Runs the experiment; returns its result and the maps measured, block by block."""
    real, measured = KINDS["scores"], []

    def watch(explainer, batch):
        measured.append(tuple(one.label for one in explainer.experiment.maps))
        return real(explainer, batch)

    monkeypatch.setitem(measurements.KINDS, "scores", watch)

    def run(experiment=MIXED, cache="cache"):
        measured.clear()
        folders = {"out": tmp_path / "out", "cache": tmp_path / cache}
        return run_experiment(experiment, device="cpu", **folders), list(measured)

    return run


def test_a_change_of_the_learned_function_measures_budgets_alone(measure, monkeypatch):
    others, budgets = LABELS[::2], LABELS[1::2]
    first, measured = measure()
    assert measured == [others, budgets] * 2
    assert first.scores.methods == (*LABELS, "random")
    monkeypatch.setattr(blocks, "LEARNED_VERSION", 1000)
    joined, measured = measure()
    assert measured == [budgets] * 2
    assert joined.n_reused == 0
    assert joined.scores.methods == first.scores.methods
    for name, values in first.scores.values.items():
        columns = [0, 2, 4] if name == "seconds" else slice(None)
        assert torch.equal(joined.scores.values[name][:, columns], values[:, columns]), name
    assert measure()[0].n_reused == 3
    inputs = choose_inputs(MIXED, 3)
    whole = KINDS["scores"](Explainer(MIXED, inputs), inputs.read(range(3)))
    assert whole.methods == first.scores.methods
    for name in set(MIXED.metrics) - {"seconds"}:
        expected = whole.values[name]
        torch.testing.assert_close(first.scores.values[name], expected, rtol=1e-5, atol=1e-6)


def test_maps_whose_numbers_depend_on_each_other_stay_together():
    maps = {name: one for name, one in EXPERIMENTS.items() if isinstance(one, Comparison)}
    whole = {name for name, one in maps.items() if len(split_maps(one)) == 1}
    assert {"mass_pets", "predicts_cub", "twice_objects", "time"} <= whole
    assert whole.isdisjoint({"budgets_vit", "smallest_imagenet", "robustness_cub", "human"})
    for name in maps.keys() - whole:
        others, budgets = split_maps(maps[name])
        assert not any(one.budget for one in others.maps)
        assert all(one.budget for one in budgets.maps)
        assert len(others.maps) + len(budgets.maps) == len(maps[name].maps)
