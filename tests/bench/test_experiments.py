"""The experiments: one tiny one end to end on the shipped sample, and what must never go wrong."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from sea_bench.catalogue import EXPERIMENTS, find_experiments
from sea_bench.data import ImageSet, Item
from sea_bench.experiments import Comparison, Map, Run, measurements, run_experiment
from sea_bench.experiments import inputs as inputs_module
from sea_bench.experiments.archive import read_scores
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.maps import Explainer, count_evaluations
from sea_bench.experiments.measurements import compare_mass
from sea_bench.experiments.metrics import find_metric
from sea_bench.experiments.pages import count_published
from sea_bench.experiments.predictions import OURS
from sea_bench.experiments.store import Store, hash_weights, make_key
from sea_nn.cli import app
from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.metrics import get_metric, score_maps
from sea_nn.sea import SEA

PAIR = ("saliency", "input_x_gradient")
TINY = Comparison(
    "tiny",
    "A tiny experiment",
    "Does the harness work?",
    data="fashion_sample",
    classifier="fashion",
    maps=(
        Map("SEA", "sea", PAIR, SEAConfig(epochs=5)),
        Map("VG", "member", ("saliency",)),
        Map("Agg-Mean", "mean", PAIR),
    ),
    metrics=("aupc_windows:black", "gini"),
    n_inputs=6,
    blocks=2,
    paper={"aupc_windows:black": {"VG": 3.68}},
)


def run(folder: Path, experiment=TINY, **options):
    options = {"device": "cpu", "cache": folder / "cache", "out": folder / "out", **options}
    return run_experiment(experiment, **options)


def read(folder: Path, name: str = "tiny") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "out").glob(f"{name}*"))}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(folder)


def test_an_experiment_writes_page_numbers_and_scores(finished):
    folder, result = finished
    assert result.complete
    assert result.n_inputs == 6
    assert result.n_reused == 0
    assert list(read(folder)) == ["tiny.md"]
    names, methods, values = read_scores(folder / "out" / "archive.zip", "tiny")
    assert methods == ["SEA", "VG", "Agg-Mean", "random"]
    assert len(names) == len(set(names)) == 6
    column = values["gini"][:, methods.index("VG")]
    assert float(column.mean()) == pytest.approx(result.scores.mean("gini")["VG"], rel=1e-3)


def test_the_page_has_means_marks_the_paper_and_how_it_was_made(finished):
    folder, result = finished
    text = (folder / "out" / "tiny.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[0][2:]: line for line in text.splitlines() if line.startswith("| ")}
    assert "| 3.68 |" in rows["VG"]
    assert "| method | aupc_windows:black ↓ | paper | gini ↑ |" in text
    for name in ("aupc_windows:black", "gini"):
        mean, apart = result.scores.estimate(name), result.scores.difference(name, "SEA")
        for k, method in enumerate(result.scores.methods):
            cell = f"{float(mean.mean[k]):.3f} ± {float(mean.high[k] - mean.low[k]) / 2:.3f}"
            assert cell in rows[method]
            sign = 1 if get_metric(name).direction == "higher" else -1
            ends = sorted((sign * float(apart.low[k]), sign * float(apart.high[k])))
            mark = "▲" if ends[0] > 0 else "▼" if ends[1] < 0 else "|"
            assert rows[method].split(cell)[1].lstrip("* ").startswith(mark), (name, method)
    for fact in ("seed 0", "torch ", "CPU", "`sea bench tiny`", "- inputs: 6", "of 200 test"):
        assert fact in text
    assert "trial" not in text
    assert max(map(len, text.splitlines())) < 160


def test_only_inputs_classified_right_are_used_unless_all_are_wanted():
    right = choose_inputs(TINY, 200)
    assert len(choose_inputs(replace(TINY, correct=False), 200)) == 200
    assert 6 < len(right) < 200
    labels = [item.label for item in right.items]
    assert labels == list(right.targets)


def test_a_killed_run_goes_on_and_a_finished_one_is_remembered(finished, tmp_path, monkeypatch):
    whole, _ = finished
    real, calls = measurements.KINDS["scores"], []

    def die_in_the_second_block(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setitem(measurements.KINDS, "scores", die_in_the_second_block)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert not (tmp_path / "out").exists()
    assert run(tmp_path).n_reused == 2
    assert len(calls) == 4
    assert read(tmp_path) == read(whole)
    # The page names the machine that measured, not the one that writes.
    monkeypatch.setattr(Run, "here", "another machine")
    assert run(tmp_path).n_reused == 6
    assert len(calls) == 4
    assert read(tmp_path) == read(whole)
    run(tmp_path, fresh=True)
    assert len(calls) == 7


def test_a_changed_setting_does_not_use_what_is_remembered(finished):
    folder, _ = finished
    config = replace(TINY.maps[0], config=SEAConfig(epochs=6))
    changes = {"maps": TINY.maps[:2]}, {"maps": (config, *TINY.maps[1:])}
    for changed in (*changes, {"metrics": ("gini", "deletion:mean")}):
        other = replace(TINY, name="other", **changed)
        assert run(folder, other, count=2).n_reused == 0
        assert run(folder, other, count=2).n_reused == 2
        assert run(folder, other, count=2, seed=1).n_reused == 0
        assert run(folder, replace(other, title="Another title"), count=2).n_reused == 2
        assert run(folder, replace(other, version=2), count=2).n_reused == 0


def test_other_weights_change_the_key_and_a_damaged_file_is_measured_again(tmp_path):
    model = torch.nn.Linear(2, 2)
    before = hash_weights(model)
    with torch.no_grad():
        model.weight[0, 0] += 1e-3
    assert hash_weights(model) != before
    x = torch.zeros(3)
    assert make_key({"a": 1}, 0, x) != make_key({"a": 1}, 1, x)
    key = make_key({"a": 1}, 0, x)
    assert key != make_key({"a": 1}, 0, x + 1)
    store = Store(tmp_path)
    store.write(key, {"values": torch.ones(3)}, {})
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:20])
    assert store.read(key) is None


def test_a_trial_says_so_and_leaves_a_larger_result_alone(finished):
    folder, _ = finished
    before = read(folder)
    result = run(folder, count=2)
    assert not result.complete
    assert result.kept == folder / "out" / "tiny.md"
    assert read(folder) == before
    text = (folder / "out" / "trial" / "tiny.md").read_text(encoding="utf-8")
    assert "A trial with fewer inputs than the 6 of a published result" in " ".join(text.split())
    assert count_published(folder / "out", "tiny") == 6


def test_missing_data_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("SEA_NN_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"brain_tumor_detection"):
        run(tmp_path, EXPERIMENTS["budgets_btd"], count=1)
    result = CliRunner().invoke(app, ["bench", "human", "--inputs", "1", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "human_attention" in result.output
    assert "Traceback" not in result.output


def test_every_experiment_is_sound():
    for experiment in EXPERIMENTS.values():
        assert experiment.quick >= 1
        if not isinstance(experiment, Comparison):
            continue
        labels = [one.label for one in experiment.maps]
        assert len(set(labels)) == len(labels)
        rows = [OURS] if experiment.kind == "predictions" else labels
        if experiment.kind == "copies":
            rows = [*labels, *(f"f of {label}" for label in labels)]
        assert {experiment.against, *experiment.ours} <= set(rows)
        for name in experiment.metrics:
            assert find_metric(name).name == name
        for metric, numbers in experiment.paper.items():
            assert metric in experiment.metrics
            assert set(numbers) <= set(labels)


def test_maps_and_scores_are_those_of_library_calls(finished):
    chosen = choose_inputs(TINY, 6)
    batch = chosen.read(range(6))
    maps = Explainer(TINY, chosen).explain(batch.x, batch.target)
    how = {"methods": PAIR, "config": TINY.maps[0].config}
    found = SEA(chosen.loaded.model, **how).attribute(batch.x, batch.target)
    torch.testing.assert_close(maps["SEA"], found[:, 0])
    x = batch.x.clone().requires_grad_()
    told = chosen.loaded.model(x).gather(1, batch.target[:, None]).sum()
    gradient = torch.autograd.grad(told, x)[0].abs().sum(1)
    given = (batch.x, batch.target, {"VG": gradient}, TINY.metrics[:1])
    direct = score_maps(chosen.loaded.model, *given, bounds=chosen.bounds).values[TINY.metrics[0]]
    scores = finished[1].scores.values[TINY.metrics[0]][:, 1]
    torch.testing.assert_close(scores, direct[:, 0], rtol=1e-4, atol=1e-4)
    assert count_evaluations(TINY.maps[0], (1, 28, 28)) == 2


def test_boxes_serve_as_masks_if_they_are_neither_tiny_nor_everything(monkeypatch):
    grey, boxes = partial(Image.new, "L", (28, 28), 90), {0: ()}
    boxes |= {side: ((0.0, 0.0, side, side),) for side in (2, 7, 14, 24, 28)}
    items = tuple(Item(f"{side}", grey, 0, boxes=own) for side, own in boxes.items())
    monkeypatch.setattr(inputs_module, "load_images", lambda experiment: ImageSet(items, ("a",)))
    boxed = replace(TINY, mask="box", mask_share=(0.01, 0.5), correct=False)
    chosen = choose_inputs(boxed, 6)
    assert {item.name for item in chosen.items} == {"7", "14"}
    masks = chosen.read(range(2)).masks
    assert sorted(masks.flatten(1).sum(1).tolist()) == [49, 196]
    assert len(choose_inputs(replace(boxed, mask_share=(0, 1)), 6)) == 5


def test_equal_sharpness_asks_a_map_for_its_order_alone():
    maps = torch.tensor([[5.0, 1.0, 3.0, 1.0]])
    like = torch.tensor([[0.1, 0.6, 0.0, 0.3]])
    x, masks = torch.zeros(1, 1, 2, 2), torch.tensor([[[True, False], [False, False]]])
    given = {"SEA": like, "steep": maps**9, "flat": maps}
    given = {name: map_.view(1, 2, 2) for name, map_ in given.items()}
    names = ("relevance_mass", "mass_equal_sharpness")
    found = score_maps(None, x, None, given, [find_metric(n) for n in names], masks=masks)
    assert found.mean(names[0])["steep"] > found.mean(names[0])["flat"]
    assert found.mean(names[1])["steep"] == found.mean(names[1])["flat"] == pytest.approx(0.6)
    assert found.mean(names[1])["SEA"] == found.mean(names[0])["SEA"] == pytest.approx(0.1)


def test_time_and_steepness_are_measured(tmp_path):
    config = SEAConfig(epochs=3)
    maps = Map("SEA", "sea", PAIR, config), Map("step", "sea_step", PAIR, config), TINY.maps[1]
    timed = replace(TINY, name="timed", kind="time", maps=maps, paper={})
    timed = replace(timed, metrics=("seconds_single", "seconds_batched"))
    found = run(tmp_path, timed, count=2).scores
    assert found.methods == ("SEA", "step", "VG", "random")
    assert all(bool((values > 0).all()) for values in found.values.values())
    steep = replace(TINY, name="steep", kind="lipschitz", paper={}, pairs=200)
    both = (maps[0], Map("random", "sea_random", PAIR, config))
    steep = replace(steep, maps=both, metrics=("lipschitz", "lipschitz_sampled"))
    found = run(tmp_path, steep, count=2).scores
    assert bool((found.values["lipschitz_sampled"] <= found.values["lipschitz"]).all())


def test_names_groups_and_errors():
    assert [one.name for one in find_experiments("budgets_fmnist")] == ["budgets_fmnist"]
    counts = {"predicts": 8, "budgets": 7, "mass": 4, "smallest": 1, "twice": 2}
    assert {group: len(find_experiments(group)) for group in counts} == counts
    assert len(find_experiments("all")) == len(EXPERIMENTS)
    with pytest.raises(InputError, match="did you mean 'budgets_fmnist'"):
        find_experiments("budgets_fminst")


def test_the_list_tells_what_was_run(tmp_path):
    result = CliRunner().invoke(app, ["bench", "-o", str(tmp_path)])
    assert result.exit_code == 0
    *lines, last = result.output.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)
    assert max(map(len, lines)) <= 80
    assert str(tmp_path) in last
    line = lines[list(EXPERIMENTS).index("predicts_cub")]
    assert line.split(maxsplit=2)[1:] == ["32", "Does the function predict the model? birds"]
    (tmp_path / "trust.md").write_text("- inputs: 4, seed 0\n")
    assert " 4/16  Which method" in CliRunner().invoke(app, ["bench", "-o", str(tmp_path)]).output


def test_less_mass_on_a_pasted_object_counts_and_an_empty_region_does_not():
    plain, region = torch.ones(3, 2, 2), torch.zeros(3, 2, 2, dtype=torch.bool)
    region[:2, 0] = True
    pasted = plain.clone()
    pasted[0, 0], pasted[1, 1] = 0.5, 0.5  # less on the object; less elsewhere
    found = compare_mass(pasted, plain, region)
    assert found[:2].tolist() == [1, 0]
    assert found[2].isnan()


def test_robustness_is_measured_for_every_map_and_a_random_one(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "TOP", 78)
    how = replace(TINY, name="robust", metrics=("robustness",), kind="robustness", paper={})
    scores = run(tmp_path, how, count=2).scores
    values = scores.values["robustness"]
    assert scores.methods == ("SEA", "VG", "Agg-Mean", "random")
    assert ((values >= 0) & (values <= 1)).all()
    assert (values[:, :3].mean(0) > values[:, 3].mean()).all()
