import math
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sea_nn import SEAConfig, aggregate, ensemble, ensemble_class
from sea_nn.errors import InputError
from sea_nn.paper import heatmaps as heatmap
from sea_nn.paper.dsf import attribute
from sea_nn.paper.ensemble import AGGREGATORS
from sea_nn.paper.fit import fit, make_training_data
from tests.helpers.functions import maps
from tests.reference import paper

SMALL = {"widths": (8, 6, 4), "thresholds": (2, 4, 7)}


@pytest.mark.parametrize(
    ("settings", "rtol"),
    [
        ({}, 1e-9),
        ({"heatmap_weight": 1.0, "margin_weight": 100.0, "weight_decay": 1e-3}, 1e-9),
        ({"heatmap_weight": 0.1}, 1e-9),
        ({"init": (0.1, 1.0), "epochs": 6}, 1e-7),
    ],
)
def test_the_papers_training_and_map_to_the_last_digits(settings, rtol):
    """Our training against the full network, torch's Adagrad, and Algorithm 1 as printed."""
    given_maps = maps(1)
    config = SEAConfig.paper("fmnist").replace(**SMALL, **settings)
    result = ensemble(given_maps, config)
    net, start = paper.Network(30, SMALL["widths"]), ensemble(given_maps, config.replace(epochs=0))
    theirs = [*(layer.weight for layer in net.layers), *(layer.bias for layer in net.layers)]
    for parameter, ours in zip(theirs, start.scorer.parameters(), strict=True):
        parameter.data.copy_(ours[0])
    losses = paper.train(
        net,
        given_maps[0],
        SMALL["thresholds"],
        epochs=config.epochs,
        heatmap_weight=config.heatmap_weight,
        margin_weight=config.margin_weight,
        decay=config.weight_decay,
    )
    ours = result.history[0]
    expected = torch.tensor(losses, dtype=torch.float64)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-9)
    weight = net.layers[0].weight.detach()
    if config.constant_start:
        assert float((weight - weight[0]).abs().max()) == 0  # the units never part
    expected = weight[: result.scorer.weights[0].shape[1]]
    torch.testing.assert_close(result.scorer.weights[0][0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        result.attribution[0], paper.algorithm1(net, 30), rtol=rtol, atol=1e-9
    )


@pytest.mark.parametrize(
    ("solver", "rate"), [("adagrad", 0.01), ("gradient", 0.02), ("mirror", 0.05)]
)
@pytest.mark.parametrize("train", ["all", "features"])
def test_collapsed_equals_the_full_network_under_every_solver(solver, rate, train):
    config = SEAConfig.paper("fmnist").replace(
        solver=solver, learning_rate=rate, train=train, floor_weight=1.0, epochs=12, **SMALL
    )
    given_maps = maps(2, shape=(24,))
    given_rows = make_training_data(given_maps, config, torch.ones(2, 3))
    (small, short), (full, long) = (fit(given_rows, config, collapse=c) for c in (True, False))
    torch.testing.assert_close(short, long, rtol=1e-11, atol=0)
    for own, shared in zip(full.parameters(), small.parameters(), strict=True):
        torch.testing.assert_close(own, shared.expand_as(own), rtol=1e-12, atol=0)
    torch.testing.assert_close(attribute(small)[2], attribute(full)[2], rtol=1e-8, atol=1e-9)


CONFIGS = {
    "default": SEAConfig(),
    "paper": SEAConfig.paper("fmnist").replace(**SMALL, epochs=20),
    "gradient": SEAConfig(solver="gradient", learning_rate=0.02, epochs=20),
    "network": SEAConfig(
        init=(0.2, 1.0), widths=(8, 4), epochs=8, margin_weight=1.0, thresholds=(3, 6)
    ),
    "grid": SEAConfig.paper("cub").replace(grid=(4, 3), epochs=15, thresholds=(3, 9)),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_is_its_inputs_one_by_one(name, monkeypatch):
    config, given_maps = CONFIGS[name], maps(5, shape=(6, 7))
    together = ensemble(given_maps, config)
    room = import_module("sea_nn.paper.ensemble")  # the name is the function's too
    monkeypatch.setattr(room, "ROOM", 2 * 42)
    chunked = ensemble(given_maps, config)
    for scorer in (together.scorer, chunked.scorer):
        assert not any(p.requires_grad for p in scorer.parameters())
    torch.testing.assert_close(chunked.attribution, together.attribution, rtol=1e-9, atol=1e-12)
    for i in range(5):
        alone = ensemble(given_maps[i : i + 1], config)
        torch.testing.assert_close(
            alone.attribution[0], together.attribution[i], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("name", ["default", "gradient"])
@settings(max_examples=8)
@given(seed=st.integers(0, 99))
def test_permuting_features_permutes_the_map(name, seed):
    given_maps = maps(1, shape=(25,), seed=seed)
    shuffle = torch.randperm(25, generator=torch.Generator().manual_seed(seed))
    straight = ensemble(given_maps, CONFIGS[name]).attribution
    shuffled = ensemble(given_maps[:, :, shuffle], CONFIGS[name]).attribution
    torch.testing.assert_close(shuffled, straight[:, shuffle], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["default", "paper", "gradient", "grid"])
def test_repeating_a_method_is_weighing_it(name):
    given_maps = maps(2, shape=(6, 7))
    twice = torch.cat([given_maps, given_maps[:, :1]], 1)
    repeated = ensemble(twice, CONFIGS[name])
    weighed = ensemble(given_maps, CONFIGS[name], weights=torch.tensor([2.0, 1.0, 1.0]))
    torch.testing.assert_close(repeated.attribution, weighed.attribution, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_result_is_consistent_with_itself(name):
    result = ensemble(maps(2, shape=(6, 7)), CONFIGS[name])
    n = math.prod(result.feature_shape)
    assert result.attribution.shape == (2, 6, 7)
    assert result.order.shape == result.gains.shape == (2, n)
    assert (result.gains.diff(dim=1) <= 1e-9 * result.gains[:, :1]).all()
    assert (result.gains >= 0).all()
    for order in result.order:
        assert sorted(order.tolist()) == list(range(n))
    flat = torch.zeros(2, n).double().scatter_(1, result.order, result.gains)
    painted = flat.reshape(2, *result.feature_shape)
    if name == "grid":
        painted = heatmap.upsample(painted, (6, 7))
    assert torch.equal(painted, result.attribution)
    x = torch.rand(2, n)
    assert result.scorer(x).shape == (2,)
    assert result.scorer.top(3).shape == (2, 3)
    assert f"2 inputs, {n} features" in repr(result)
    assert (result.scorer.top(1)[:, 0] == result.order[:, 0]).all()


def test_class_level_map_pools_all_heatmaps_and_weighs_methods():
    given_maps, weights = maps(4, m=2, shape=(5, 5)), torch.tensor([3.0, 1.0])
    rows = given_maps.reshape(1, 8, 5, 5)
    plain, weighed = (ensemble_class(given_maps, weights=w).attribution for w in (None, weights))
    assert torch.equal(plain, ensemble(rows).attribution)
    assert torch.equal(weighed, ensemble(rows, weights=weights.repeat(4)).attribution)
    assert not torch.allclose(plain, weighed)


def test_authors_reading_keeps_tied_features():
    given_maps = torch.zeros(1, 1, 6).double()
    given_maps[0, 0, :4] = 1.0
    shared = ensemble(given_maps, SEAConfig()).attribution[0]
    kept = ensemble(given_maps, SEAConfig(reading="authors")).attribution[0]
    assert len(set(shared[:4].tolist())) == 1
    assert len(set(kept[:4].tolist())) == 4
    assert kept[0] == shared[0]


@pytest.mark.parametrize("reading", ["paper", "authors"])
def test_the_order_of_the_columns_decides_only_ties_that_are_kept(reading):
    """A step of 1e-8 leaves all weights within 2^-30 of each other: every feature ties."""
    given_maps, turn = maps(1, m=2, shape=(60,)), torch.randperm(60)
    config = SEAConfig(
        learning_rate=1e-8, epochs=1, weight_decay=1.0, activation="power:-1", reading=reading
    )
    here, there = (ensemble(h, config) for h in (given_maps, given_maps[..., turn]))
    weight = here.scorer.weights[0][0, 0]
    assert float(weight.max() / weight.min() - 1) < 2.0**-30
    same = torch.isclose(there.attribution, here.attribution[:, turn], rtol=1e-3)
    assert bool(same.all()) == (reading == "paper")
    torch.testing.assert_close(there.gains, here.gains, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("n", [1, 2, 3, 100_000])
@pytest.mark.parametrize("m", [1, 7])
def test_any_number_of_features_and_methods(n, m):
    result = ensemble(maps(1, m=m, shape=(n,)) if n > 1 else torch.rand(1, m, 1), quiet=n == 1)
    assert result.attribution.shape == (1, n)
    assert torch.isfinite(result.attribution).all()
    assert float(result.attribution.sum()) > 0


def test_a_function_that_vanished_is_reported_with_what_helps():
    config = SEAConfig(solver="gradient", learning_rate=0.5, train="all")
    with pytest.warns(UserWarning, match="features"):
        assert float(ensemble(maps(1), config).attribution.max()) == 0
    assert float(ensemble(maps(1), config.replace(train="features")).attribution.max()) > 0


def test_aggregates_by_hand():
    heatmaps = torch.tensor([[[0.0, 0.5, 1.0], [0.0, 1.0, 0.25]]]).double()
    assert aggregate(heatmaps, "mean").attribution.tolist() == [[0.0, 0.75, 0.625]]
    geometric = aggregate(heatmaps, "geometric").attribution[0]
    assert geometric.tolist() == pytest.approx([0, 0.5**0.5, 0.5], abs=1e-5)
    assert aggregate(heatmaps, "borda").attribution.tolist() == [[0.0, 0.75, 0.75]]
    spread = torch.tensor([0.0, 0.25, 0.375]).double()
    expected = torch.tensor([0.0, 0.75, 0.625]).double() / (spread + spread.mean())
    torch.testing.assert_close(aggregate(heatmaps, "variance").attribution[0], expected)


@pytest.mark.parametrize("how", AGGREGATORS)
def test_an_aggregate_is_an_ensemble_and_weights_repeat(how):
    heatmaps = maps(2, shape=(4, 5))
    result = aggregate(heatmaps, how)
    assert result.attribution.shape == (2, 4, 5)
    flat = result.attribution.flatten(1)
    assert torch.equal(flat.gather(1, result.order), result.gains)
    assert (result.gains.diff(dim=1) <= 1e-9).all()
    twice = aggregate(torch.cat([heatmaps, heatmaps[:, :1]], 1), how).attribution
    weighed = aggregate(heatmaps, how, weights=torch.tensor([2.0, 1, 1])).attribution
    torch.testing.assert_close(twice, weighed)
    with pytest.raises(InputError, match="'mean', 'variance'"):
        aggregate(heatmaps, "median")
