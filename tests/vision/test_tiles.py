"""Large images by tiles."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation
from sea_nn.errors import InputError
from sea_nn.vision.tiles import explain_tiles


def test_a_tile_with_the_class_is_found_in_a_picture_that_the_model_cannot_take():
    class Bright(nn.Module):
        """Takes 8 x 8 pixels: are they bright?"""

        def forward(self, x):
            assert x.shape[2:] == (8, 8)
            mean = x.mean((1, 2, 3))
            return torch.stack([torch.zeros_like(mean), 20 * mean - 5], 1)

    x = 0.05 * torch.rand(1, 1, 24, 20, generator=torch.Generator().manual_seed(0))
    x[..., 10:16, 4:10] += 1
    sea = SEA(Bright(), ("input_x_gradient", "saliency"))
    e = explain_tiles(sea, x, 1, size=8)
    found = e.attribution
    assert found.shape == (1, 1, 24, 20)
    assert e.maps.shape == (1, 2, 24, 20)
    one = sea.explain(x[..., :8, :8], 1)
    assert sum(e.evaluations.values()) == 20 * sum(one.evaluations.values())  # 5 x 4 tiles
    assert float(e.score) == pytest.approx(float(sea.explain(x[..., 8:16, 4:12], 1).score), rel=0.2)
    assert float(found[..., 10:16, 4:10].sum()) > 0.8 * float(found.sum())


def test_a_tile_as_large_as_the_picture_is_its_map_times_its_score(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    x = torch.rand(2, 1, 8, 8)
    sea = SEA(model, ("saliency", "input_x_gradient"))
    e = sea.explain(x, 1)
    expected = e.attribution * e.score.view(-1, 1, 1, 1)
    tiled = explain_tiles(sea, x, 1, size=8)
    torch.testing.assert_close(tiled.attribution, expected)
    torch.testing.assert_close(tiled.score, e.score)
    assert torch.equal(
        Explanation.load(tiled.save(tmp_path / "tiled.safetensors")).order, tiled.order
    )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"size": 9, "target": 1}, "at least 9"),
        ({"size": 4, "target": None}, "one class"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(options, match):
    sea = SEA(nn.Flatten(), "saliency")
    with pytest.raises(InputError, match=match):
        explain_tiles(sea, torch.rand(1, 1, 8, 8), **options)
