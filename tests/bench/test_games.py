"""Games: tables of all answers, the best order there is, the quality of any."""

from itertools import permutations

import numpy as np
import pytest
import torch

from sea_bench.data.games import list_games, number_sets, optimum, quality, read_game
from sea_bench.experiments import submodular
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
