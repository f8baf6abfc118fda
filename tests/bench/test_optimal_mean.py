"""The optimal convex combination, against a fine grid and where its weights are known."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sea_bench.experiments.optimal_mean import find_weights, minimize, project_simplex
from sea_nn import aggregate
from tests.helpers.functions import maps


@given(seed=st.integers(0, 99), m=st.integers(1, 4))
def test_the_minimum_is_below_a_fine_grid(seed, m):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(1, 6, m, generator=generator, dtype=torch.float64)
    quadratic, linear = root.mT @ root, torch.randn(1, m, generator=generator).double()

    def value(w):
        return float(w @ quadratic[0] @ w - 2 * linear[0] @ w)

    weights = minimize(quadratic, linear)[0]
    assert float(weights.sum()) == pytest.approx(1)
    assert (weights >= 0).all()
    steps = 12
    for parts in itertools.product(range(steps + 1), repeat=m - 1):
        if sum(parts) <= steps:
            other = torch.tensor([*parts, steps - sum(parts)]).double() / steps
            assert value(weights) <= value(other) + 1e-9


def test_projection_onto_the_simplex():
    points = torch.tensor([[2.0, 0.0], [0.2, 0.2], [0.5, 0.5]]).double()
    assert torch.allclose(
        project_simplex(points), torch.tensor([[1.0, 0], [0.5, 0.5], [0.5, 0.5]]).double()
    )


def test_weights_prefer_the_member_that_predicts_the_drops():
    heatmaps = maps(1, m=3, shape=(16,))
    removed = torch.rand(1, 60, 16, generator=torch.Generator().manual_seed(0)) < 0.3
    weights = find_weights(heatmaps, removed, 5 * (removed * heatmaps[:, 1:2]).sum(2))[0]
    assert float(weights[1] / weights.sum()) > 0.99


def test_weights_are_for_heatmaps_of_one_size():
    heatmaps = maps(2, m=2, shape=(16,))
    removed = torch.rand(2, 60, 16, generator=torch.Generator().manual_seed(0)) < 0.3
    drops = (removed * heatmaps.sum(1, keepdim=True)).sum(2)
    # A member ten times fainter says the same, so the combination must be the same up to scale.
    faint = heatmaps * torch.tensor([1.0, 0.1]).view(1, 2, 1)
    one, two = (
        aggregate(given, "mean", weights=find_weights(given, removed, drops)).attribution
        for given in (heatmaps, faint)
    )
    for plain, small in zip(one, two, strict=True):
        torch.testing.assert_close(small / small.max(), plain / plain.max(), rtol=1e-5, atol=1e-6)


def test_a_member_that_the_regions_do_not_touch_does_not_take_over():
    heatmaps = maps(1, m=2, shape=(16,))
    heatmaps[0, 1] = 0
    heatmaps[0, 1, -1] = 1  # alive, but only where nothing was removed
    removed = torch.zeros(1, 8, 16, dtype=torch.bool)
    removed[0, torch.arange(8), torch.arange(8)] = True
    drops = (removed * heatmaps[:, :1]).sum(2).flip(1)  # half foretold: it keeps some weight
    weights = find_weights(heatmaps, removed, drops)
    found = aggregate(heatmaps, "mean", weights=weights).attribution[0, :-1]
    torch.testing.assert_close(found / found.max(), heatmaps[0, 0, :-1] / heatmaps[0, 0, :-1].max())
    assert float(found.max()) > 0.1
