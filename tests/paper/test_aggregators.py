import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sea_nn import aggregate
from sea_nn.errors import InputError
from sea_nn.paper.aggregators import (
    AGGREGATORS,
    Loss,
    faithfulness_loss,
    optimal_weights,
    project_simplex,
    robustness_loss,
)
from tests.helpers.functions import maps


def test_hand_computed():
    heatmaps = torch.tensor([[[0.0, 0.5, 1.0], [0.0, 1.0, 0.25]]]).double()
    assert aggregate(heatmaps, "mean").attribution.tolist() == [[0.0, 0.75, 0.625]]
    geometric = aggregate(heatmaps, "geometric").attribution[0]
    assert geometric.tolist() == pytest.approx([0, 0.5**0.5, 0.5], abs=1e-5)
    assert aggregate(heatmaps, "borda").attribution.tolist() == [[0.0, 0.75, 0.75]]
    spread = torch.tensor([0.0, 0.25, 0.375]).double()
    expected = torch.tensor([0.0, 0.75, 0.625]).double() / (spread + spread.mean())
    torch.testing.assert_close(aggregate(heatmaps, "variance").attribution[0], expected)


@pytest.mark.parametrize("how", AGGREGATORS)
def test_the_result_is_an_ensemble_and_weights_repeat(how):
    heatmaps = maps(2, shape=(4, 5))
    result = aggregate(heatmaps, how)
    assert result.attribution.shape == (2, 4, 5)
    flat = result.attribution.flatten(1)
    assert torch.equal(flat.gather(1, result.order), result.gains)
    assert (result.gains.diff(dim=1) <= 1e-9).all()
    twice = aggregate(torch.cat([heatmaps, heatmaps[:, :1]], 1), how).attribution
    weighed = aggregate(heatmaps, how, weights=torch.tensor([2.0, 1, 1])).attribution
    torch.testing.assert_close(twice, weighed)


@given(seed=st.integers(0, 99), m=st.integers(1, 4))
def test_optimal_weights_beat_a_fine_grid(seed, m):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(1, 6, m, generator=generator, dtype=torch.float64)
    loss = Loss(root.mT @ root, torch.randn(1, m, generator=generator, dtype=torch.float64))

    def value(w):
        return float(w @ loss.quadratic[0] @ w - 2 * loss.linear[0] @ w)

    weights = optimal_weights(loss)[0]
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


def test_robust_weights_prefer_the_member_that_does_not_move():
    heatmaps = maps(1, m=2, shape=(9,))
    noisy = heatmaps.unsqueeze(1).repeat(1, 5, 1, 1)
    noisy[:, :, 1] = noisy[:, :, 1].flip(-1)
    loss = robustness_loss(heatmaps, noisy)
    assert optimal_weights(loss)[0].tolist() == pytest.approx([1, 0], abs=1e-6)
    best = aggregate(heatmaps, "optimal", loss=loss).attribution
    torch.testing.assert_close(best, heatmaps[:, 0], rtol=1e-5, atol=1e-5)


def test_faithful_weights_prefer_the_member_that_predicts_the_drops():
    generator = torch.Generator().manual_seed(0)
    heatmaps = maps(1, m=3, shape=(16,))
    removed = torch.rand(1, 60, 16, generator=generator) < 0.3
    drops = 5 * (removed * heatmaps[:, 1:2]).sum(2)
    weights = optimal_weights(faithfulness_loss(heatmaps, removed, drops))[0]
    assert weights.argmax() == 1
    assert float(weights[1]) > 0.99


def test_faithful_weights_are_for_heatmaps_of_one_size():
    generator = torch.Generator().manual_seed(0)
    heatmaps = maps(2, m=2, shape=(16,))
    removed = torch.rand(2, 60, 16, generator=generator) < 0.3
    drops = (removed * heatmaps.sum(1, keepdim=True)).sum(2)
    expected = aggregate(
        heatmaps, "optimal", loss=faithfulness_loss(heatmaps, removed, drops)
    ).attribution
    # A member ten times fainter says the same, so the combination must be the same up to scale.
    faint = heatmaps * torch.tensor([1.0, 0.1]).view(1, 2, 1)
    found = aggregate(faint, "optimal", loss=faithfulness_loss(faint, removed, drops)).attribution
    for one, two in zip(expected, found, strict=True):
        torch.testing.assert_close(two / two.max(), one / one.max(), rtol=1e-5, atol=1e-6)


def test_a_member_that_the_regions_do_not_touch_does_not_take_over():
    heatmaps = maps(1, m=2, shape=(16,))
    heatmaps[0, 1] = 0
    heatmaps[0, 1, -1] = 1  # alive, but only where nothing was removed
    removed = torch.zeros(1, 8, 16, dtype=torch.bool)
    removed[0, torch.arange(8), torch.arange(8)] = True
    drops = (removed * heatmaps[:, :1]).sum(2).flip(1)  # half foretold: it keeps some weight
    loss = faithfulness_loss(heatmaps, removed, drops)
    assert float(optimal_weights(loss)[0, 1]) > 0.1
    found = aggregate(heatmaps, "optimal", loss=loss).attribution[0, :-1]
    torch.testing.assert_close(found / found.max(), heatmaps[0, 0, :-1] / heatmaps[0, 0, :-1].max())
    assert float(found.max()) > 0.1


def test_bad_calls_are_refused():
    with pytest.raises(InputError, match="'mean', 'variance'"):
        aggregate(maps(1), "median")
    with pytest.raises(InputError, match="needs a loss"):
        aggregate(maps(1), "optimal")
    with pytest.raises(InputError, match="needs a loss"):
        aggregate(maps(1), "mean", loss=Loss(torch.eye(3)[None], torch.zeros(1, 3)))


def test_optimal_weights_are_not_for_the_caller_to_give():
    heatmaps = torch.rand(1, 2, 4).double()
    loss = robustness_loss(heatmaps, heatmaps.unsqueeze(1))
    with pytest.raises(InputError, match="finds the weights itself"):
        aggregate(heatmaps, "optimal", loss=loss, weights=torch.ones(2))
