"""Hiding positions, by fills and in-painting; the model's answers along an order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation
from sea_nn.errors import InputError, KindError
from sea_nn.questions.absent import PERTURBATIONS, blur, pixel_bounds, prepare
from sea_nn.questions.asked import predict_curve
from sea_nn.questions.inpainting import inpaint
from sea_nn.questions.learn import choose_counts
from tests.helpers.networks import build_pooled, draw_bright
from tests.reference import metrics as slow


def images(count=3, channels=3, height=9, width=7, seed=0):
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


def hide_all(perturbation, x):
    hidden = torch.ones_like(x, dtype=torch.bool)
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
    hidden = torch.zeros(2, 1, 9, 7, dtype=torch.bool)
    hidden[0, 0, 1, 2] = hidden[1, 0, 0, 0] = True
    for kind in PERTURBATIONS:
        points = prepare(x, kind).hide(hidden, torch.tensor([2, 0]))
        same = points == x[[2, 0]]
        assert same[~hidden.expand_as(same)].all()
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


def test_blur_in_three_axes_is_blur_along_each():
    x, places = torch.rand(2, 1, 9, 9, 9), torch.arange(9.0)
    weight = torch.exp(-((places[:, None] - places) / 2).square() / 2)
    weight = weight / weight.sum(1, keepdim=True)
    slow = torch.einsum("ai,bj,ck,nxijk->nxabc", weight, weight, weight, x)
    torch.testing.assert_close(blur(x, 2.0), slow)


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
    colour = inpaint(x, torch.ones_like(hidden))  # all of it hidden
    torch.testing.assert_close(colour, x.mean((2, 3), keepdim=True).expand_as(x))
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


def test_inpainting_adds_a_little_noise_that_all_methods_share():
    x = images()
    perturbation = prepare(x, "inpaint", bounds=(0.0, 1.0))
    hidden = torch.rand(3, 1, 9, 7, generator=torch.Generator().manual_seed(2)) < 0.4
    rows = torch.arange(3)
    once, again = perturbation.hide(hidden, rows), perturbation.hide(hidden, rows)
    assert torch.equal(once, again)
    noise = (once - inpaint(x, hidden[:, 0]))[hidden.expand_as(x)]
    assert 0.007 < float(noise.std()) < 0.013


model, x = build_pooled(), draw_bright()


@pytest.fixture(scope="module")
def explanation():
    return SEA(model, budget=150).explain(x, target=[0, 1], labels=["a", "b", "c"])


def test_points_are_what_the_model_says(explanation):
    e = explanation
    assert e.curve.counts.tolist() == [0, 4, 8, 16, 32, 64]
    for k, p in enumerate(e.curve.counts.tolist()):
        kept = e.top_mask(p)[:, None]
        for part, left in ((e.curve.left, kept), (e.curve.removed, ~kept)):
            said = model(torch.where(left, x, blur(x))).softmax(1)
            torch.testing.assert_close(part[:, k], said[[0, 1], [0, 1]], atol=1e-5, rtol=0)


def test_line_of_the_function_meets_the_model_at_both_ends(explanation):
    e = explanation
    left, removed = predict_curve(e.function, e.order)
    assert left.shape == removed.shape == (2, 65)
    for end in (0, -1):
        assert torch.allclose(left[:, end].float(), e.curve.left[:, end], atol=0.02)
        assert torch.allclose(removed[:, end].float(), e.curve.removed[:, end], atol=0.02)
    some = torch.stack([e.top_mask(p) for p in (3, 20)], 1)
    torch.testing.assert_close(e.predict(some), left[:, [3, 20]].float())


def test_points_cost_at_most_a_twelfth_of_the_questions():
    for questions in (3, 23, 24, 100, 508, 5000):
        for n in (1, 2, 5, 64, 256):
            counts = choose_counts(questions, n)
            assert 2 * len(counts) <= questions / 12
            assert all(0 < p < n for p in counts)


def test_where_every_set_was_asked_nothing_more_is():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(2))
    e = SEA(model, ("saliency",), budget=60).explain(x, target=1)
    assert sum(e.provenance.evaluations.values()) / 2 <= 2 + 32
    for k, p in enumerate(e.curve.counts.tolist()):
        said = model(torch.where(e.top_mask(p), x, 0)).softmax(1)[:, 1]
        torch.testing.assert_close(e.curve.left[:, k], said, atol=1e-5, rtol=0)


def test_curves_and_rankings_are_saved_and_sliced(explanation, tmp_path):
    e = Explanation.load(explanation.save(tmp_path / "e.safetensors"))
    for name in ("counts", "left", "removed"):
        assert torch.equal(getattr(e.curve, name), getattr(explanation.curve, name))
    assert torch.equal(e[1].curve.left, e.curve.left[1:])
    assert torch.equal(e.ranking.classes, explanation.ranking.classes)
    assert e.ranking.names == explanation.ranking.names
    assert e[1].ranking.names == e.ranking.names[1:]
    assert (
        SEA(nn.Flatten(), ("saliency",), output="logits").explain(torch.rand(1, 1, 4, 4)).curve
        is None
    )


def test_ranking_is_the_models_own(explanation):
    probabilities = model(x).softmax(1)
    for i, names in enumerate(explanation.ranking.names):
        best = probabilities[i].argsort(descending=True).tolist()
        assert list(names) == [["a", "b", "c"][k] for k in best]
        torch.testing.assert_close(explanation.ranking.scores[i], probabilities[i][best])
    value = SEA(model, ("saliency",), output="value").explain(x, target=0)
    assert value.ranking is None


def test_parts_that_do_not_fit_are_refused(explanation):
    e = explanation
    with pytest.raises(InputError, match=r"curve\.left must be"):
        replace(e, curve=replace(e.curve, left=e.curve.left[:1]))
    with pytest.raises(InputError, match=r"ranking\.scores must be"):
        replace(e, ranking=replace(e.ranking, classes=e.ranking.classes[:, :1]))
