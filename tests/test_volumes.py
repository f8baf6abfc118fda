"""Volumes end to end."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation
from sea_nn.questions.absent import blur


@pytest.fixture
def network():
    """The evidence is the brightest of eight octants' means, here the last one's."""
    pool = nn.Sequential(nn.AvgPool3d(8), nn.Flatten(), nn.Linear(8, 2))
    pool[2].weight.data = torch.zeros(2, 8)
    pool[2].weight.data[1, 7] = 8.0
    pool[2].bias.data = torch.tensor([0.0, -3.0])
    return pool


@pytest.fixture
def volumes():
    x = 0.1 * torch.rand(2, 1, 16, 16, 16, generator=torch.Generator().manual_seed(0))
    x[:, :, 8:, 8:, 8:] += 0.8
    return x


def test_a_volume_is_explained_by_blocks_where_the_model_looks(network, volumes, tmp_path):
    e = SEA(network, budget=160).explain(volumes, target=1)
    assert (e.kind, e.view, e.feature_shape) == ("volume", "slices", (4, 4, 4))
    assert e.attribution.shape == (2, 1, 16, 16, 16)
    inside = e.attribution[:, 0, 8:, 8:, 8:].sum((1, 2, 3))
    assert (inside > 0.7 * e.attribution.flatten(1).sum(1)).all()
    again = Explanation.load(e.save(tmp_path / "volume.safetensors"))
    assert torch.equal(again.features, e.features)
    assert again.view == "slices"
    e.plot("strip", tmp_path / "volume.png")


def test_blur_in_three_axes_is_blur_along_each(volumes):
    whole = blur(volumes, 2.0)
    places = torch.arange(16.0)
    weight = torch.exp(-((places[:, None] - places) / 2).square() / 2)
    weight = weight / weight.sum(1, keepdim=True)
    slow = torch.einsum("ai,bj,ck,nxijk->nxabc", weight, weight, weight, volumes)
    torch.testing.assert_close(whole, slow)
