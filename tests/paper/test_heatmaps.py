import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import avg_pool2d

from sea_nn import SEA, SEAConfig, ensemble
from sea_nn.errors import InputError
from sea_nn.features import scale
from sea_nn.paper import heatmaps as heatmap
from sea_nn.paper import mean_agreement, sharpen, spearman
from sea_nn.paper.agreement import agreement, disagreement, rank
from sea_nn.paper.exact import sort_features
from tests.helpers.functions import maps

sides = st.integers(1, 9)


def random(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_channels_are_summed_in_absolute_value():
    raw = torch.tensor([[[1.0, -2.0]], [[-3.0, 4.0]]]).reshape(1, 2, 1, 2)
    assert heatmap.reduce_channels(raw).tolist() == [[[4.0, 6.0]]]
    assert heatmap.reduce_channels(raw, None).shape == raw.shape


def test_scaling_reaches_both_ends_for_each_map_alone():
    maps = random(3, 2, 4, 5) * torch.tensor([1.0, 1e9, 1e-9]).reshape(3, 1, 1, 1)
    scaled = scale(maps, batch_axes=2)
    assert torch.equal(scaled.amin((2, 3)), torch.zeros(3, 2, dtype=torch.float64))
    torch.testing.assert_close(scaled.amax((2, 3)), torch.ones(3, 2, dtype=torch.float64))
    assert torch.equal(scale(torch.full((1, 4), 7.0)), torch.zeros(1, 4))


@given(n=st.integers(1, 30), seed=st.integers(0, 99), data=st.data())
def test_binarise_keeps_the_largest_lowest_index_first(n, seed, data):
    values = (random(2, n, seed=seed) * 4).round() / 4  # many ties
    counts = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=3))
    sets = heatmap.binarize(values, counts)
    for row in range(2):
        order = sorted(range(n), key=lambda v: (-float(values[row, v]), v))
        for k, chosen in zip(counts, sets[row], strict=True):
            assert chosen.nonzero().flatten().tolist() == sorted(order[:k])


def test_thresholds_are_at_most_all_features():
    with pytest.warns(UserWarning, match="clipped to 4"):
        assert heatmap.clip_thresholds([2, 9], 4).tolist() == [2, 4]


def test_keys_order_as_the_tie_rule_says():
    values = torch.tensor([[0.5, 1.0, 1.0 - 1e-13, 0.0, 1.0 + 1e-12, 0.5 + 1e-6]]).double()
    order, (groups,) = sort_features(values, 6)
    assert order[0].tolist() == [1, 2, 4, 5, 0, 3]
    assert groups[0] == groups[1] == groups[2] != groups[3] != groups[4]
    with pytest.raises(InputError, match="at most"):
        sort_features(torch.zeros(1, 1).expand(1, 1 << 23), 1)


@given(h=sides, w=sides, rows=sides, columns=sides)
def test_pooling_averages_a_partition_of_the_image(h, w, rows, columns):
    image = random(h, w, seed=h * 10 + w)
    pooled = heatmap.pool(image, (rows, columns))
    rows, columns = min(rows, h), min(columns, w)
    assert pooled.shape == (rows, columns)
    for r in range(rows):
        for c in range(columns):
            cell = [
                float(image[i, j])
                for i in range(h)
                for j in range(w)
                if i * rows // h == r and j * columns // w == c
            ]
            assert cell
            assert float(pooled[r, c]) == pytest.approx(sum(cell) / len(cell))


@given(h=sides, w=sides, rows=sides, columns=sides)
def test_nearest_upsampling_inverts_pooling(h, w, rows, columns):
    cells = random(min(rows, h), min(columns, w))
    image = heatmap.upsample(cells, (h, w))
    torch.testing.assert_close(heatmap.pool(image, cells.shape), cells)


def test_binary_pooling_follows_the_papers_rule():
    sets = torch.zeros(6, 6, dtype=torch.bool)
    sets[0, :3] = True  # three in the first cell
    sets[0, 3] = True  # one in the second: below the mean of 4/4 = 1? equal to it
    assert heatmap.pool_sets(sets, (2, 2)).tolist() == [[True, False], [False, False]]
    assert heatmap.pool_sets(sets, (2, 2), at_least=True).tolist() == [[True, True], [False, False]]


def test_a_sum_over_channels_does_not_overflow():
    half = torch.full((1, 3, 2, 2), 60000.0, dtype=torch.float16)
    assert heatmap.reduce_channels(half).tolist() == [[[180000.0] * 2] * 2]
    assert heatmap.reduce_channels(torch.full((1, 1, 2), -128, dtype=torch.int8)).min() == 128


CONFIGS = {
    "mirror": SEAConfig(),
    "adagrad": SEAConfig.paper("fmnist").replace(thresholds=(2, 5), epochs=20),
    "gradient": SEAConfig(solver="gradient", learning_rate=0.02, train="all", epochs=20),
    "network": SEAConfig(init=(0.1, 1.0), widths=(6, 4), epochs=6),
    "log": SEAConfig(activation="log1p", epochs=20),
}


def mask(n, *members):
    return torch.tensor([v in members for v in range(n)])


@pytest.mark.parametrize("name", CONFIGS)
def test_required_features_gain_epsilon_in_every_context(name):
    """Brute force over all 2^(n-1) contexts, for the two worst features at twice their gain."""
    n, config = 7, CONFIGS[name]
    given = maps(2, shape=(n,), seed=4)
    free = ensemble(given, config)
    worst = free.order[:, -2:]
    required = torch.zeros(2, n, dtype=torch.bool).scatter_(1, worst, True)
    epsilon = 2 * float(free.gains[:, -1].max())
    bound = ensemble(given, config, required=required, epsilon=epsilon)
    contexts = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).expand(2, -1, n)
    values = bound.scorer(contexts)
    for i in range(2):
        for v in worst[i].tolist():
            with_v = contexts[0, :, v] == 1
            gains = values[i, with_v] - values[i, ~with_v]
            assert float(gains.min()) >= epsilon * (1 - 1e-9)
            assert float(bound.attribution[i, v]) >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize("name", CONFIGS)
def test_forbidden_features_are_exactly_zero(name):
    given = maps(2, shape=(9,), seed=1)
    best = int(ensemble(given, CONFIGS[name]).order[0, 0])
    result = ensemble(given, CONFIGS[name], forbidden=mask(9, best))
    assert (result.attribution[:, best] == 0).all()
    alone = torch.zeros(2, 9)
    alone[:, best] = 1
    assert torch.equal(result.scorer(alone), result.scorer(torch.zeros(2, 9)))
    assert (result.attribution.amax(1) > 0).all()


def test_constraints_that_already_hold_change_nothing():
    given = maps(1, shape=(9,))
    free = ensemble(given)
    bound = ensemble(given, required=mask(9, int(free.order[0, 0])), epsilon=1e-9)
    assert torch.equal(free.attribution, bound.attribution)


def test_on_a_grid_a_cell_is_bound_by_any_of_its_pixels():
    config = SEAConfig(grid=(3, 3), epochs=10)
    pixels = torch.zeros(6, 6, dtype=torch.bool)
    pixels[0, 0] = True
    result = ensemble(maps(1, shape=(6, 6)), config, forbidden=pixels)
    assert (result.attribution[0, :2, :2] == 0).all()
    assert (result.attribution[0, 2:, 2:] > 0).all()
    other = torch.zeros(6, 6, dtype=torch.bool)
    other[1, 1] = True
    with pytest.raises(InputError, match="share a cell"):
        ensemble(maps(1, shape=(6, 6)), config, forbidden=pixels, required=other)


def test_impossible_or_malformed_constraints_are_refused():
    given = maps(1, shape=(5,))
    with pytest.raises(InputError, match="saturates"):
        ensemble(given, SEAConfig(activation="power:-1"), required=mask(5, 0), epsilon=1e6)
    with pytest.raises(InputError, match="both required and forbidden"):
        ensemble(given, required=mask(5, 0), forbidden=mask(5, 0, 1))
    with pytest.raises(InputError, match="bool mask of shape"):
        ensemble(given, required=torch.tensor([0]))
    with pytest.raises(InputError, match="above 0"):
        ensemble(given, required=mask(5, 0), epsilon=0.0)


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
