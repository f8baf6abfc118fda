"""Games with all answers known; measurements that are remembered apart."""

from itertools import permutations

import numpy as np
import pytest
import torch

from sea_bench.catalogue import EXPERIMENTS
from sea_bench.data.games import list_games, number_sets, optimum, quality, read_game
from sea_bench.experiments import Comparison, Map, blocks, measurements, run_experiment, submodular
from sea_bench.experiments.blocks import split_maps
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.maps import Explainer
from sea_bench.experiments.measurements import KINDS
from sea_bench.experiments.rivals import shapley, values_by_permutations, values_by_svarm
from sea_nn.errors import InputError


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


def test_what_is_no_game_is_refused_with_the_reason(tmp_path):
    np.savez(tmp_path / "a.npz", values=np.zeros(4))
    with pytest.raises(KeyError, match="n_players"):
        read_game(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", n_players=2, coalitions=np.zeros((4, 2), bool), values=np.ones(4))
    with pytest.raises(InputError, match="twice"):
        read_game(tmp_path / "b.npz")
    with pytest.raises(InputError, match="chess is missing"):
        list_games("chess", tmp_path)
    with pytest.raises(InputError, match="shapiq"):
        list_games("vit_16", tmp_path)


@pytest.mark.parametrize("values", [values_by_permutations, values_by_svarm])
def test_sampled_values_come_near_to_shapley_values(values):
    worth = torch.rand(6, generator=torch.Generator().manual_seed(0)).double()

    def score(sets):
        return sets.double() @ worth + (sets[..., 0] & sets[..., 1]).double()

    exact = shapley(score, 1, 6)
    assert torch.allclose(values(score, 1, 6, 20_000, 0), exact, atol=0.1)
    assert values(score, 1, 6, 20, 0).isfinite().all()


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
