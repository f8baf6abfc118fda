import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sea_nn.errors import InputError
from sea_nn.features import scale
from sea_nn.paper import heatmaps as heatmap
from sea_nn.paper.exact import sort_features

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
