"""Members that hide parts of the input equal Captum, the formula, or brute force."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, MemberError
from sea_nn.features import Features, segment
from sea_nn.features.segments import superpixels
from tests.helpers.by_hand import build_table, ours, pick, same


@pytest.fixture
def image() -> tuple[nn.Module, Tensor, Tensor]:
    return pick("image")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 17}, "stride <= window <= input"),
        ({"window": 4, "stride": 5}, "stride <= window <= input"),
        ({"window": 0}, "window must be a whole number >= 1"),
    ],
)
def test_occlusion_windows_that_cannot_be(image, options, message):
    with pytest.raises(InputError, match=message):
        ours(*image, "occlusion", **options)


def test_rise_is_the_mean_of_the_masks_weighed_by_the_probability():
    seen = []

    def model(x):  # of ones, so that what it sees is the mask
        if len(x) > 1 or len(seen):
            seen.append(x[:, 0].clone())
        return torch.stack([x[:, :, :8].mean((1, 2, 3)) * 9, x[:, :, 8:].mean((1, 2, 3)) * 9], 1)

    x = torch.ones(1, 2, 16, 12, dtype=torch.float64)
    maps = ours(model, x, 1, "rise", n_masks=300, limit=64)
    masks = torch.cat(seen)
    assert masks.shape == (300, 16, 12)
    assert masks.min() >= 0
    assert masks.max() <= 1
    assert abs(float(masks.mean()) - 0.5) < 0.03
    probability = model(masks.unsqueeze(1).expand(-1, 2, -1, -1)).softmax(1)[:, 1]
    expected = (probability[:, None, None] * masks).sum(0) / (300 * 0.5)
    assert torch.allclose(maps[0, 0], expected)
    assert maps[0, 0, 8:].mean() > maps[0, 0, :8].mean()


def test_rise_does_not_depend_on_the_chunks_and_hides_with_the_baseline(image):
    whole = ours(*image, "rise", n_masks=50, baselines=0.5)
    assert same(ours(*image, "rise", n_masks=50, baselines=0.5, limit=2), whole, 1e-12)
    assert not torch.allclose(ours(*image, "rise", n_masks=50), whole)
    with pytest.raises(MemberError, match=r"images \[N, C, H, W\].*sea methods"):
        ours(build_table(), torch.randn(1, 6, dtype=torch.float64), 0, "rise")


def test_kernel_shap_of_few_features_is_exact():
    model, x = build_table(), torch.randn(2, 6).double()

    def value(i, chosen):
        kept = torch.zeros(1, 6, dtype=torch.float64)
        kept[0, list(chosen)] = x[i, list(chosen)]
        return model(kept)[0, 1].item()

    expected = torch.zeros(2, 6, dtype=torch.float64)
    for i, v in itertools.product(range(2), range(6)):
        others = [u for u in range(6) if u != v]
        for size in range(6):
            weight = math.factorial(size) * math.factorial(5 - size) / math.factorial(6)
            for chosen in itertools.combinations(others, size):
                expected[i, v] += weight * (value(i, (*chosen, v)) - value(i, chosen))
    assert same(ours(model, x, 1, "kernel_shap"), expected, 1e-4)


def test_superpixels_follow_the_picture():
    picture = torch.zeros(3, 32, 32)
    picture[0, :, 16:] = 200.0
    labels = superpixels(picture, n_segments=4)
    assert labels.shape == (32, 32)
    assert sorted(labels.unique().tolist()) == list(range(int(labels.max()) + 1))
    assert not set(labels[:, :15].unique().tolist()) & set(labels[:, 17:].unique().tolist())
    assert superpixels(torch.zeros(1, 8, 8)).shape == (8, 8)


def test_superpixels_do_not_melt_on_noise():
    noise = torch.randn(3, 48, 48, generator=torch.Generator().manual_seed(0))
    assert 8 <= int(superpixels(noise, n_segments=16).max()) + 1 <= 32
    assert 8 <= int(superpixels(noise[:1], n_segments=16).max()) + 1 <= 32


def test_segments_of_each_kind_of_input():
    x, many = torch.zeros(2, 3), torch.zeros(1, 5000)
    assert torch.equal(segment(x, Features.of(x))[1], torch.arange(3))
    shared = segment(x, Features.of(x, feature_mask=torch.tensor([7, 7, 9])))
    assert [s.tolist() for s in shared] == [[0, 0, 1], [0, 0, 1]]
    with pytest.raises(MemberError, match="group features with feature_mask="):
        segment(many, Features.of(many))


def test_lime_and_kernel_shap_make_superpixels_by_themselves(image):
    for name in ("lime", "kernel_shap"):
        maps = ours(*image, name, n_samples=40, n_segments=9)
        assert torch.equal(maps[:, 0], maps[:, 2])  # a segment spans the channels
        assert 1 < len(maps[0].unique()) <= 16
