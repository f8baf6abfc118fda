"""One idea of features: kinds, groups, and how sets, sums and gains go between maps and inputs."""

from __future__ import annotations

import pytest
import torch

from sea_nn.errors import InputError
from sea_nn.features import KINDS, Features, Kind, find_kind, group_columns, number_cells

SHAPES = {"table": (2, 5), "series": (2, 3, 7), "image": (2, 3, 6, 5), "volume": (2, 1, 4, 5, 6)}


@pytest.mark.parametrize("name", SHAPES)
def test_a_kind_says_what_a_map_is_and_what_belongs_to_a_position(name):
    x = torch.rand(SHAPES[name])
    features = Features.of(x)
    assert features.kind is KINDS[name]
    assert features.shape == (x.shape[2:] if name in ("image", "volume") else x.shape[1:])
    mask = torch.rand(2, *features.shape) > 0.5
    assert features.kind.over_input(mask).expand_as(x).shape == x.shape


@pytest.mark.parametrize("name", SHAPES)
def test_sums_and_spread_values_are_those_of_every_feature(name):
    x = torch.rand(SHAPES[name])
    shape = Features.of(x).shape
    mask = torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(0))
    features = Features.of(x, feature_mask=mask)
    heat = torch.rand(2, *shape, dtype=torch.float64)
    by_hand = torch.stack([heat[:, mask == k].sum(1) for k in range(3)], 1)
    torch.testing.assert_close(features.sum(heat), by_hand)
    assert features.count().tolist() == [int((mask == k).sum()) for k in range(3)]
    gains = torch.rand(2, 3, dtype=torch.float64)
    spread = features.expand(gains)
    assert all(torch.equal(spread[0][mask == k].unique(), gains[0, k : k + 1]) for k in range(3))


def test_cells_of_any_number_of_axes_partition_the_map():
    numbers = number_cells((2, 3, 2), (4, 7, 5))
    assert numbers.shape == (4, 7, 5)
    assert numbers.unique().tolist() == list(range(12))
    assert int(numbers[3, 6, 4]) == 11
    volume = Features.of(torch.zeros(1, 1, 16, 16, 16)).to_ask_about()
    assert volume.layout == (4, 4, 4)
    assert volume.count().tolist() == [64] * 64


def test_few_positions_are_asked_about_one_by_one_and_many_in_64_groups():
    assert Features.of(torch.zeros(1, 64)).to_ask_about().n == 64
    assert Features.of(torch.zeros(1, 200)).to_ask_about().n == 64
    assert Features.of(torch.zeros(1, 3, 100)).to_ask_about().layout == (3, 21)
    assert Features.of(torch.zeros(1, 3, 32, 32)).to_ask_about().layout == (8, 8)
    assert Features.of(torch.zeros(1, 3, 32, 32)).to_ask_about((4, 2)).n == 8


def test_a_grid_of_the_wrong_number_of_axes_is_refused():
    with pytest.raises(InputError, match="each axis"):
        Features.of(torch.zeros(1, 3, 8, 8)).on_grid((2, 2, 2))
    with pytest.raises(InputError, match="have 3 axes"):
        Features.of(torch.zeros(1, 3, 8, 8), kind=KINDS["series"])
    with pytest.raises(InputError, match="view"):
        Kind("nodes", 3, view="graph")
    with pytest.raises(InputError, match="axis from 1 to 2"):
        Kind("nodes", 3, channels=3)


def test_one_hot_codes_and_correlated_columns_are_found():
    generator = torch.Generator().manual_seed(0)
    code = torch.eye(3)[torch.randint(0, 3, (50,), generator=generator)]
    number = torch.randn(50, 1, generator=generator)
    flag = (torch.rand(50, 1, generator=generator) > 0.5).float()
    rows = torch.cat([number, code, flag, -2 * number, torch.randn(50, 1, generator=generator)], 1)
    assert group_columns(rows).tolist() == [0, 1, 1, 1, 2, 3, 4]
    assert group_columns(rows, correlated=0.95).tolist() == [0, 1, 1, 1, 2, 0, 3]
    with pytest.raises(InputError, match="two rows"):
        group_columns(rows[:1])
    with pytest.raises(InputError, match="above 0"):
        group_columns(rows, correlated=2)


def test_inputs_of_many_axes_have_no_name_but_a_kind():
    assert find_kind(torch.zeros(1, 1, 1, 1, 1, 1)).name == "values"
