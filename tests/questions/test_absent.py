"""Hiding positions: fills, in-painting, and the random draws that belong to an input."""

from __future__ import annotations

import pytest
import torch

from sea_nn.errors import InputError, KindError
from sea_nn.passes.noise import PURPOSES, normal, permute, random_map, uniform
from sea_nn.questions.absent import PERTURBATIONS, blur, pixel_bounds, positions, prepare
from sea_nn.questions.inpainting import inpaint
from tests.reference import metrics as slow


def images(count=3, channels=3, height=9, width=7, seed=0):
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


def hide_all(perturbation, x):
    hidden = torch.ones(len(x), *positions(x), dtype=torch.bool)
    return perturbation.hide(hidden, torch.arange(len(x)))


def test_black_is_the_lowest_value_of_each_channel():
    x = images() - 0.5
    assert torch.equal(hide_all(prepare(x, "black"), x), x.amin((2, 3), keepdim=True).expand_as(x))
    low, high = pixel_bounds((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    hidden = hide_all(prepare(x, "black", bounds=(low, high)), x)
    torch.testing.assert_close(hidden[1, :, 2, 3], torch.tensor([-2.0, -2.0, -2.0]))
    assert torch.equal(hide_all(prepare(x, "black", bounds=(0, 1)), x), torch.zeros_like(x))


def test_mean_is_each_inputs_own_channel_mean():
    x = images()
    hidden = hide_all(prepare(x, "mean"), x)
    torch.testing.assert_close(hidden[2, 1], x[2, 1].mean().expand(9, 7))


def test_noise_fills_the_bounds_and_belongs_to_the_input():
    x = images(4, 1, 40, 40)
    noise = hide_all(prepare(x, "noise", bounds=(-1.0, 3.0), seed=5), x)
    assert -1 <= noise.min() < -0.9
    assert 2.9 < noise.max() <= 3
    assert abs(float(noise.mean()) - 1) < 0.1
    assert not torch.equal(noise[0], noise[1])
    part = hide_all(prepare(x[2:], "noise", bounds=(-1.0, 3.0), seed=5, first=2), x[2:])
    assert torch.equal(part, noise[2:])
    assert not torch.equal(hide_all(prepare(x, "noise", seed=6), x), noise)


def test_only_hidden_positions_change_and_all_their_channels():
    x = images()
    hidden = torch.zeros(2, 9, 7, dtype=torch.bool)
    hidden[0, 1, 2] = hidden[1, 0, 0] = True
    for kind in PERTURBATIONS:
        points = prepare(x, kind).hide(hidden, torch.tensor([2, 0]))
        same = points == x[[2, 0]]
        assert same[~hidden.unsqueeze(1).expand_as(same)].all()
        assert not same[0, :, 1, 2].any() or kind == "black"


def test_values_of_your_own_can_be_the_fill():
    x = images()
    assert torch.equal(hide_all(prepare(x, torch.tensor(0.25)), x), torch.full_like(x, 0.25))
    colour = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    assert torch.equal(hide_all(prepare(x, colour), x), colour.expand_as(x))
    with pytest.raises(InputError, match="broadcast to x"):
        prepare(x, torch.zeros(2, 9, 7))


@pytest.mark.parametrize("sigma", [0.6, 2.0, 50.0])
def test_blur_equals_the_double_sum(sigma):
    x = images(1, 2, 6, 5)
    fast = blur(x, sigma)
    for channel in range(2):
        torch.testing.assert_close(
            fast[0, channel], slow.blur(x[0, channel], sigma).float(), rtol=1e-5, atol=1e-6
        )


def test_blur_keeps_a_constant_image_and_works_on_series():
    flat = torch.full((1, 2, 8, 8), 0.3)
    torch.testing.assert_close(blur(flat), flat)
    assert blur(torch.rand(2, 3, 20)).shape == (2, 3, 20)


def test_unknown_and_unfit_perturbations_are_refused():
    with pytest.raises(InputError, match="black, mean, blur"):
        prepare(images(), "white")
    with pytest.raises(KindError, match="a name"):
        prepare(images(), 3)
    with pytest.raises(InputError, match="series"):
        prepare(torch.rand(2, 5), "blur")
    with pytest.raises(InputError, match="images"):
        prepare(torch.rand(2, 5, 6), "inpaint")
    with pytest.raises(InputError, match="3 channels"):
        prepare(images(), "black", bounds=([0.0, 0.0], [1.0, 1.0]))
    with pytest.raises(InputError, match="lowest"):
        prepare(images(), "noise", bounds=(1.0, 0.0))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_inpainting_solves_the_dense_system(share):
    x = images(4, 3, 9, 7).double()
    hidden = torch.rand(4, 9, 7, generator=torch.Generator().manual_seed(1)) < share
    fast = inpaint(x, hidden, tolerance=1e-10)
    for i in range(4):
        for channel in range(3):
            exact = slow.inpaint(x[i, channel], hidden[i])
            torch.testing.assert_close(fast[i, channel], exact, rtol=0, atol=1e-8)


def test_inpainting_at_the_default_tolerance_is_close_on_large_holes():
    x = blur(images(2, 1, 40, 40), 3).double()
    x = (x - x.min()) / (x.max() - x.min())
    hidden = torch.zeros(2, 40, 40, dtype=torch.bool)
    hidden[0, 5:35, 5:35] = True
    hidden[1] = True
    hidden[1, 3, 4] = hidden[1, 30, 20] = False
    rough, fine = inpaint(x, hidden), inpaint(x, hidden, tolerance=1e-9)
    assert float((rough - fine).abs().max()) < 0.02


def test_an_inpainted_image_does_not_depend_on_those_beside_it():
    x = torch.rand(6, 3, 24, 24, generator=torch.Generator().manual_seed(5))
    hidden = torch.zeros(6, 24, 24, dtype=torch.bool)
    for number, side in enumerate((0, 1, 3, 9, 16, 23)):  # from easy to hard
        hidden[number, :side, :side] = True
    together = inpaint(x, hidden)
    alone = torch.cat([inpaint(x[i : i + 1], hidden[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


def test_inpainting_continues_a_slope_and_keeps_what_is_known():
    slope = torch.linspace(0, 1, 12).expand(1, 1, 12, 12)
    hidden = torch.zeros(1, 12, 12, dtype=torch.bool)
    hidden[0, 3:8, 4:9] = True
    filled = inpaint(slope, hidden, tolerance=1e-6)
    torch.testing.assert_close(filled, slope, rtol=0, atol=1e-4)
    assert torch.equal(filled[0, 0][~hidden[0]], slope[0, 0][~hidden[0]])


def test_inpainting_an_image_hidden_altogether_gives_its_mean_colour():
    x = images()
    filled = inpaint(x, torch.ones(3, 9, 7, dtype=torch.bool))
    torch.testing.assert_close(filled, x.mean((2, 3), keepdim=True).expand_as(x))


def test_inpainting_adds_a_little_noise_that_all_methods_share():
    x = images()
    perturbation = prepare(x, "inpaint", bounds=(0.0, 1.0))
    hidden = torch.rand(3, 9, 7, generator=torch.Generator().manual_seed(2)) < 0.4
    rows = torch.arange(3)
    once, again = perturbation.hide(hidden, rows), perturbation.hide(hidden, rows)
    assert torch.equal(once, again)
    noise = (once - inpaint(x, hidden))[hidden.unsqueeze(1).expand_as(x)]
    assert 0.007 < float(noise.std()) < 0.013


def test_draws_belong_to_the_input_the_purpose_and_the_seed():
    state = torch.get_rng_state()
    drawn = [uniform(purpose, (50, 3), seed) for purpose in PURPOSES for seed in (0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.stack(drawn).unique().numel() == 2 * 150 * len(PURPOSES)
    assert torch.equal(random_map((5, 2, 2), 3)[2:], random_map((3, 2, 2), 3, first=2))
    assert not torch.equal(random_map((1, 2, 2), 0, first=1), random_map((1, 2, 2), 1))


def test_draws_are_evenly_spread_and_unrelated():
    draws = uniform("noise", (40, 5000), seed=2).double()
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = torch.histc(draws, 20, 0, 1)
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 45  # chi square, 19 degrees
    centred = draws - draws.mean(1, keepdim=True)
    between = torch.corrcoef(draws) - torch.eye(40)
    assert float(between.abs().max()) < 0.075  # of 780 pairs, one standard error 0.014
    neighbours = (centred[:, 1:] * centred[:, :-1]).mean() / centred.var()
    assert abs(float(neighbours)) < 0.01
    gauss = normal("inpaint", (4, 50_000)).double()
    moments = [float((gauss**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)


def test_random_orders_are_permutations_with_every_position_first_alike():
    orders = permute("ties", 2000, 5)
    assert (orders.sort(1).values == torch.arange(5)).all()
    first = torch.bincount(orders[:, 0], minlength=5)
    assert first.min() > 340  # 400 expected, standard deviation 18
    pairs = torch.bincount(orders[:, 0] * 5 + orders[:, 1], minlength=25)
    assert pairs.view(5, 5)[~torch.eye(5, dtype=torch.bool)].min() > 60  # 100 expected


def test_draws_are_the_two_hashes_written_out():
    """By whole numbers of any size, one position at a time: tables of results depend on them."""

    def keys(seed: int, kind: int, index: int) -> tuple[int, int]:
        word = (seed * 0x9E3779B97F4A7C15 + kind * 0xD1B54A32D192ED03 + index + 1) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word = (word ^ (word >> shift)) * factor % 2**64
        return divmod(word ^ (word >> 31), 2**32)

    def scramble(word: int) -> int:
        word = (word ^ (word >> 16)) * 0x85EBCA6B % 2**32
        word = (word ^ (word >> 13)) * 0xC2B2AE35 % 2**32
        return word ^ (word >> 16)

    for kind, purpose in enumerate(PURPOSES):
        for seed, first in ((0, 0), (7, 12_345_678), (-3, 2), (2**70, 0)):
            found = uniform(purpose, (3, 5), seed, first)
            for row in range(3):
                start, end = keys(seed, kind, first + row)
                for place in range(5):
                    word = scramble(scramble((place * 0x9E3779B9 + start) % 2**32) ^ end)
                    assert found[row, place] == (word >> 8) * 2.0**-24
