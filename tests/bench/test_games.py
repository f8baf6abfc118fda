"""Games, tables, series, several inputs and texts, against slow forms; what is remembered."""

import json
from functools import partial
from itertools import permutations

import numpy as np
import pytest
import torch

from sea_bench.catalogue import EXPERIMENTS
from sea_bench.data.games import number_sets, optimum, quality, read_game
from sea_bench.data.toxic_spans import load_toxic_spans
from sea_bench.experiments import (
    Comparison,
    Experiment,
    Findings,
    Map,
    blocks,
    columns,
    measurements,
    run_experiment,
    submodular,
    texts,
)
from sea_bench.experiments.archive import read_scores
from sea_bench.experiments.blocks import split_maps
from sea_bench.experiments.columns import PLANTED, plant, tabulate_planted
from sea_bench.experiments.experiment import Compared, score_rows
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.kinds import METRICS, areas, compare_orders, order_by_methods
from sea_bench.experiments.maps import Explainer
from sea_bench.experiments.measurements import KINDS
from sea_bench.experiments.rivals import (
    rank,
    shapley,
    values_by_lime,
    values_by_shap,
)
from sea_bench.experiments.spans import plant as plant_series
from sea_nn.errors import InputError
from sea_nn.text.model import AskedText
from sea_nn.text.reading import read_text
from tests.helpers.texts import make_classifier, make_tokenizer


def write(path, table, n):
    sets = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    shuffled = np.random.default_rng(0).permutation(1 << n)
    np.savez(path, n_players=n, coalitions=sets[shuffled].astype(bool), values=table[shuffled])


def test_a_game_is_read_by_its_sets_and_not_by_the_rows_order(tmp_path):
    table = np.random.default_rng(1).uniform(0.1, 0.9, 16)
    write(tmp_path / "a.npz", table, 4)
    n, read = read_game(tmp_path / "a.npz")
    assert n == 4
    assert np.array_equal(read, table)
    write(tmp_path / "b.npz", 2 * table - 1, 4)  # from -1 to 1
    assert read_game(tmp_path / "b.npz")[1] == pytest.approx(table)


def test_the_optimum_and_the_quality_agree_with_brute_force():
    n, rng = 5, np.random.default_rng(2)
    table = rng.uniform(size=1 << n)

    def slow(order):
        total = 0.0
        for k in range(1, n):
            kept = np.isin(np.arange(n), order[:k])
            total += table[number_sets(kept)] - table[number_sets(~kept)]
        return total / (n - 1)

    every = {order: slow(order) for order in permutations(range(n))}
    for order, value in every.items():
        assert quality(table, n, order) == pytest.approx(value)
    assert optimum(table, n) == pytest.approx(max(every.values()))


def test_a_submodular_function_learns_what_is_submodular_and_not_what_is_not(monkeypatch):
    monkeypatch.setattr(submodular, "STEPS", 300)
    sets = torch.rand(500, 6, generator=torch.Generator().manual_seed(0)) < 0.5
    a, b, c = sets[:, :3].double().unbind(1)
    missed = []
    for odds in (4 * torch.maximum(a, b) + 2 * c - 3, 8 * (a == b).double() - 4):
        f, constant = submodular.learn_submodular(sets, odds.sigmoid(), 0)
        said = (constant + f(sets.double())).sigmoid()
        missed.append(float((said - odds.sigmoid()).abs().mean()))
        assert all(bool((weight >= 0).all()) for weight in f.parameters())
    assert missed[0] < 0.03 < 0.06 < missed[1]


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


def test_areas_are_the_means_of_the_curves():
    worth = torch.tensor([3.0, 2.0, 1.0])
    insertion, deletion = areas(lambda sets: sets.float() @ worth, torch.tensor([[0, 1, 2]]))
    # 0, 3, 5, 6 by trapezoids, and 6, 3, 1, 0
    torch.testing.assert_close(insertion, torch.tensor([11 / 3], dtype=torch.float64))
    torch.testing.assert_close(deletion, torch.tensor([7 / 3], dtype=torch.float64))


def test_rivals_find_the_values_of_a_sum():
    worth = torch.rand(2, 9, generator=torch.Generator().manual_seed(0)).double() / 9

    def score(sets):
        return torch.einsum("nrk,nk->nr", sets.double(), worth)

    for values in (values_by_shap(score, 2, 9, 128, 0), shapley(score, 2, 9)):
        torch.testing.assert_close(values, worth, atol=1e-6, rtol=1e-4)
    # LIME's penalty holds small values back; the large ones come first all the same.
    assert torch.equal(rank(values_by_lime(score, 2, 9, 128, 0))[:, :3], rank(worth)[:, :3])


def measure_sum(run):
    worth = torch.rand(run.count, 4, generator=torch.Generator().manual_seed(0))

    def score(sets):
        return torch.einsum("nrk,nk->nr", sets.double(), worth.double())

    rows = {
        name: dict(zip(("insertion", "deletion"), areas(score, order), strict=True))
        for name, order in (("SEA, 128", rank(worth)), ("worst", rank(-worth)))
    }
    return Findings([Compared(score_rows(rows, METRICS), "SEA, 128")], ["told"])


def test_an_experiment_of_one_function_has_a_page_and_scores(tmp_path):
    small = Experiment("small", "Small", "Which?", "none", n_inputs=12, work=measure_sum)
    result = run_experiment(small, command="sea bench small", out=tmp_path, cache=tmp_path)
    text = result.page.read_text()
    row = next(line for line in text.splitlines() if line.startswith("| worst"))
    assert row.count("▼") == 2
    assert "sea bench small" in text
    assert "- told" in text
    names, methods, values = read_scores(tmp_path / "archive.zip", "small")
    assert (len(names), methods) == (12, ["SEA, 128", "worst"])
    assert torch.allclose(values["insertion"], result.scores.values["insertion"], atol=1e-4)
    with pytest.raises(InputError, match="it has: small"):
        read_scores(tmp_path / "archive.zip", "other")


def test_planted_columns_are_found_and_compared(monkeypatch):
    monkeypatch.setattr(columns, "PLANTED", {"copies": PLANTED["copies"]})
    p = plant("sum", 3, 0)
    orders = order_by_methods(p, 0, ("integrated_gradients",))
    assert torch.equal(orders["integrated_gradients"][:, :2], torch.tensor([[0, 1]] * 3))
    table = compare_orders(p, orders, 0)
    found = table.scores.mean("insertion")
    assert found["SEA, 128"] > found["random order"]
    rows = tabulate_planted(1, 0).rows
    assert {row[0] for row in rows} == {"planted copies"}


def test_planted_motifs_are_where_the_model_looks():
    p, places = plant_series("twice", 3, 0)
    whole = torch.ones(3, 1, p.features.n, dtype=torch.bool)
    score = p.score("background", 8)
    assert (score(whole) > 0.8).all()
    assert (score(~whole) < 0.2).all()
    motifs = torch.stack([p.features.sum(place.double()) > 0 for place in places])
    for one in motifs:  # either is enough, and without both nothing is left
        assert (score(one[:, None]) > 0.8).all()
    assert (score(~motifs.any(0)[:, None]) < 0.3).all()


ABSENCES = ("mask", "delete", "pad")
TEXT = "the film was bad , not good"


@pytest.fixture(scope="module")
def item():
    marked = torch.tensor([False, True, False, True, False, False, True])
    return texts.Marked(read_text(make_tokenizer(), TEXT), marked, 1)


def test_marks_are_scored_as_scikit_learn_does():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(20):
        marked, values = random.random(12) < 0.4, random.random(12)
        marked[0], marked[1] = True, False
        order = torch.from_numpy(np.argsort(-values))
        found = texts.match_marks(order, torch.from_numpy(marked))
        chosen = np.zeros(12, bool)
        chosen[order[: marked.sum()]] = True
        assert found["AUPRC"] == pytest.approx(metrics.average_precision_score(marked, values))
        assert found["F1"] == pytest.approx(metrics.f1_score(marked, chosen))


def test_curves_of_words_by_hand(item):
    parts = make_classifier(2), make_tokenizer()
    models = {absent: partial(AskedText, *parts, absent=absent) for absent in ABSENCES}
    asks = {absent: texts.make_text_score(ask, item) for absent, ask in models.items()}
    maps = texts.compute_text_maps(models["mask"], item, budgets=(20,), seed=0)
    scores = texts.score_text_maps(asks, item, maps)
    for absent, ask in models.items():
        asked = ask(item.reading)
        for name, values in list(maps.items())[:3]:
            order, kept, lost = values.argsort(descending=True, stable=True), [], []
            for count in range(1, 7):
                left = torch.zeros(7, dtype=torch.bool)
                left[order[:count]] = True
                kept.append(_say(asked, left))
                lost.append(_say(asked, ~left))
            for what, said in (("insertion", kept), ("deletion", lost)):
                found = scores[f"{what}:{absent} {name}"]
                assert float(found) * 6 == pytest.approx(sum(said), abs=1e-4)


def _say(asked, left):
    return float(asked(left.unsqueeze(0)).double().softmax(1)[0, 1])


def test_sentences_are_cut_from_posts_with_their_marks(tmp_path):
    text = "You are bad people here. This is quite fine though."
    spans = list(range(8, 18))
    (tmp_path / "dev.csv").write_text(f'spans,text\n"{spans}","{text}"\n')
    first, second = load_toxic_spans("dev", tmp_path)
    assert first.text == "You are bad people here."
    assert first.marked == (False, False, True, True, False)
    assert first.toxic
    assert not second.toxic
    (tmp_path / "dev.csv").write_text('spans,text\n"import os","a b c d"\n')
    with pytest.raises(json.JSONDecodeError):
        load_toxic_spans("dev", tmp_path)


def test_the_study_writes_its_page_from_data_and_a_classifier(tmp_path, monkeypatch):
    folder = tmp_path / "classifier"
    classifier = make_classifier(2)
    classifier.classifier.bias.data[1] += 9  # calls everything toxic
    classifier.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    known = {"n": 1, "accuracy": 1.0}
    (folder / "card.json").write_text(json.dumps({"n_train": 0, "dev": known, "machine": "CPU"}))
    data = tmp_path / "data" / "toxic_spans"
    data.mkdir(parents=True)
    (data / "dev.csv").write_text('spans,text\n"[4, 5, 6, 7]","the film was bad"\n')
    monkeypatch.setenv("SEA_NN_DATA", str(data.parent))
    monkeypatch.setenv("SEA_NN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sea_bench.experiments.texts.find_toxic_classifier", lambda: folder)
    given = {"count": 1, "device": "cpu", "out": tmp_path}
    page = run_experiment(EXPERIMENTS["text"], **given).page.read_text()
    assert "| SEA, 512 |" in page
    assert "the film" not in page
    assert run_experiment(EXPERIMENTS["text"], **given).n_reused == 1
