"""Ranks and correlations of maps, agreement beyond chance, maps at equal sharpness."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import avg_pool2d

from sea_nn import SEA, SEAConfig, ensemble
from sea_nn.paper import mean_agreement, sharpen, spearman
from sea_nn.paper.agreement import agreement, disagreement, multiples_of_mean, rank


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def smooth(maps, kernel=7):
    return avg_pool2d(maps, kernel, 1, kernel // 2, count_include_pad=False)


@pytest.mark.parametrize("change", [lambda m: m, smooth, lambda m: m.flatten(2)])
def test_random_maps_stay_within_chance_however_smooth(change):
    mean, chance = mean_agreement(change(noise(100, 3, 20, 20)))
    assert 0.9 < float((mean <= chance).double().mean()) <= 1
    assert float((mean.square().mean() / (chance / 2).square().mean()).sqrt()) == pytest.approx(
        1, abs=0.2
    )


def test_members_that_share_something_agree_beyond_chance():
    shared = noise(10, 1, 20, 20) + noise(10, 3, 20, 20, seed=1)
    mean, chance = mean_agreement(shared)
    assert (mean > chance).all()
    pairs = [(0, 1), (0, 2), (1, 2)]
    rows = shared.flatten(2)
    expected = torch.stack([spearman(rows[:, a], rows[:, b]) for a, b in pairs]).mean(0)
    torch.testing.assert_close(mean, expected)


def test_flat_members_are_left_out_of_the_agreement():
    maps = noise(1, 3, 12)
    with_flat = torch.cat([maps, torch.zeros(1, 1, 12)], 1)
    for a, b in zip(mean_agreement(maps), mean_agreement(with_flat), strict=True):
        torch.testing.assert_close(a, b)
    assert mean_agreement(maps[:, :1])[0].isnan().all()


def test_checks_say_where_members_hardly_agree():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 3))
    x = noise(2, 1, 16, 16, seed=3)

    def member(seed):  # agree on the first input alone
        return lambda model, x, target: torch.cat([x[:1], noise(*x.shape, seed=seed)])[: len(x)]

    methods = tuple(member(seed) for seed in (1, 2, 3))
    e = SEA(model, methods, SEAConfig()).explain(x)
    assert [c.subject for c in e.checks if "hardly agree" in c.message] == ["input 1"]
    parts = [sum("hardly agree" in c.message for c in part.checks) for part in (e, e[0], e[1])]
    assert parts == [1, 0, 1]  # a part has the checks of its own inputs


def test_a_sharpened_map_has_its_own_order_and_the_others_values():
    maps = noise(2, 25)
    like = ensemble(noise(2, 3, 25, seed=1)).attribution
    painted = sharpen(maps, like)
    assert torch.equal(painted.sort().values, like.sort().values)
    assert torch.equal(painted.argsort(), maps.argsort())
    assert torch.equal(sharpen(like, like), like)
    flat = sharpen(torch.ones(2, 25), like)
    torch.testing.assert_close(flat, like.mean(1, keepdim=True).expand(2, 25))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_rank_counts_those_below_and_half_of_those_alike(values):
    slow = [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]
    rows = torch.tensor([values, [7, *values[1:]]], dtype=torch.float32)
    assert rank(rows)[0].tolist() == slow  # each row alone


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=15))
def test_spearman_is_the_correlation_of_ranks(pairs):
    a, b = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    ours = float(spearman(a, b))
    if a.unique().numel() == 1 or b.unique().numel() == 1:
        assert np.isnan(ours)
        return
    expected = np.corrcoef(rank(a).numpy(), rank(b).numpy())[0, 1]
    assert ours == pytest.approx(expected, abs=1e-12)


def test_constant_map_agrees_with_nothing():
    maps = torch.stack([torch.arange(4.0), torch.ones(4)]).unsqueeze(0)
    assert agreement(maps).isnan().tolist() == [[[False, True], [True, True]]]


def test_disagreement_runs_from_none_to_a_half():
    up = torch.arange(5.0)
    same = disagreement(torch.stack([up, 2 * up, up.exp()]).unsqueeze(0))
    opposed = disagreement(torch.stack([up, -up]).unsqueeze(0))
    assert float(same.abs().max()) == pytest.approx(0, abs=1e-6)
    assert opposed[0].tolist() == pytest.approx([0.5, 0.25, 0, 0.25, 0.5])


def test_multiples_of_mean_forget_each_map_scale():
    maps = torch.rand(2, 3, 7, generator=torch.Generator().manual_seed(2))
    shares = multiples_of_mean(maps, batch_axes=2)
    assert torch.allclose(shares.mean(-1), torch.ones(2, 3))
    assert torch.allclose(shares, multiples_of_mean(maps * 1e-3, batch_axes=2))
    assert multiples_of_mean(torch.zeros(1, 4)).tolist() == [[0, 0, 0, 0]]
