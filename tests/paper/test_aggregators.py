import pytest
import torch

from sea_nn import aggregate
from sea_nn.errors import InputError
from sea_nn.paper.ensemble import AGGREGATORS
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


def test_bad_calls_are_refused():
    with pytest.raises(InputError, match="'mean', 'variance'"):
        aggregate(maps(1), "median")
