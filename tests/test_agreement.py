"""Whether members agree more than chance, and maps at equal sharpness."""

import pytest
import torch
from torch.nn.functional import avg_pool2d

from sea_nn import ensemble
from sea_nn.ensembling import mean_agreement, sharpen, spearman
from sea_nn.members.checks import examine


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


def test_smooth_maps_agree_by_chance_more_than_rough_ones():
    rough, soft = (mean_agreement(m)[1] for m in (noise(9, 3, 20, 20), smooth(noise(9, 3, 20, 20))))
    assert (soft > 2 * rough).all()


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

    def member(seed, share):
        return lambda model, x, target: noise(*x.shape, seed=seed) + share * x

    for share, expected in ((0.0, ["warn"]), (3.0, [])):
        methods = {"a": member(1, share), "b": member(2, share), "c": member(3, share)}
        checks = examine(model, x, methods=tuple(methods.values()))
        found = [c for c in checks if c.subject == "members"]
        assert [c.level for c in found] == expected
    assert "hardly agree on every input" in next(
        c.message
        for c in examine(model, x, methods=(member(1, 0.0), member(2, 0.0)))
        if c.subject == "members"
    )


def test_a_sharpened_map_has_its_own_order_and_the_others_values():
    maps = noise(2, 25)
    like = ensemble(noise(2, 3, 25, seed=1)).attribution
    painted = sharpen(maps, like)
    assert torch.equal(painted.sort().values, like.sort().values)
    assert torch.equal(painted.argsort(), maps.argsort())
    assert torch.equal(sharpen(like, like), like)
    flat = sharpen(torch.ones(2, 25), like)
    torch.testing.assert_close(flat, like.mean(1, keepdim=True).expand(2, 25))
