"""One call computes all maps, packs the work, explains failures and leaves the model alone."""

import captum.attr as captum
import pytest
import torch
from torch import nn

from sea_nn.errors import InputError, KindError, MemberError
from sea_nn.members.checks import vote
from sea_nn.members.registry import expand_methods, get, names
from sea_nn.members.run import compute_maps
from sea_nn.vision.shipped import load_cnn, load_sample
from tests.helpers.networks import build, count, images, linear
from tests.model.test_opening import snapshot

MEMBERS = tuple(name for name in names() if "attention" not in get(name).needs)
SMALL = {
    "smooth_ig": {"n_samples": 2, "n_steps": 4},
    "integrated_gradients": {"n_steps": 4},
    "smoothgrad": {"n_samples": 4},
    "gradient_shap": {"n_samples": 4},
    "rise": {"n_masks": 12, "cells": 3},
    "lime": {"n_samples": 20, "n_segments": 6},
    "kernel_shap": {"n_samples": 20, "n_segments": 6},
}


def test_every_member_explains_an_image_and_the_caller_gets_everything_back():
    model, fired = build(), []
    model.train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model[6].register_forward_hook(lambda *_: fired.append(1))
    model(images()).sum().backward()
    before, random = snapshot(model), torch.get_rng_state()
    x = images().permute(0, 1, 3, 2).requires_grad_(True)  # not contiguous
    kept = x.detach().clone()

    result = compute_maps(model, x, methods=MEMBERS, options=SMALL)

    assert set(result.maps) == set(MEMBERS)
    for name, maps in result.maps.items():
        expected = (2, 1, 12, 12) if name in ("grad_cam", "rise") else (2, 3, 12, 12)
        assert maps.shape == expected
        assert maps.is_contiguous()
        assert not maps.requires_grad
        assert bool(maps.isfinite().all())
        if not get(name).signed:
            assert maps.min() >= 0
    assert snapshot(model) == before
    assert torch.equal(x, kept)
    assert x.requires_grad
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(result.target, result.outputs.argmax(1))


def test_an_inputs_maps_do_not_depend_on_its_batch_or_the_chunks():
    model, x = build().double(), images(3).double()
    target = torch.tensor([0, 1, 2])
    batch = compute_maps(model, x, target, MEMBERS, options=SMALL).maps
    pieces = compute_maps(model, x, target, MEMBERS, options=SMALL, limit=2).maps
    for i in range(3):
        alone = compute_maps(model, x[i : i + 1], int(target[i]), MEMBERS, options=SMALL).maps
        for name in MEMBERS:
            assert torch.allclose(batch[name][i], alone[name][0], atol=1e-9), name
            assert torch.allclose(batch[name][i], pieces[name][i], atol=1e-9), name


def test_the_seed_decides_every_draw():
    options = {name: own for name, own in SMALL.items() if name != "integrated_gradients"}
    chosen = [*options, "presence_gradient"]
    first = compute_maps(build(), images(), methods=chosen, options=options, seed=1).maps
    again = compute_maps(build(), images(), methods=chosen, options=options, seed=1).maps
    other = compute_maps(build(), images(), methods=chosen, options=options, seed=2).maps
    for name in chosen:
        assert torch.equal(first[name], again[name])
        assert not torch.allclose(first[name], other[name])


@pytest.mark.parametrize("name", MEMBERS)
def test_the_cost_is_what_a_member_really_asks(name):
    options = {name: SMALL[name]} if name in SMALL else {}
    x = images(2)
    counting, sizes = count(build())
    result = compute_maps(counting, x, methods=name, options=options, limit=5)
    (entry,) = expand_methods(name, options)
    cost = 2 * entry.member.cost(entry.options, (3, 12, 12))
    assert result.evaluations[name] == cost
    # Besides: the prediction of 2, and one each to see that a twin is closed, to measure memory and
    # to find Grad-CAM's layer, or the logits of a copy that works out of place.
    assert cost + 2 <= sum(sizes) <= cost + 7
    assert max(sizes) <= 6


def test_members_share_work_where_the_maps_stay_the_same():
    chosen = ["guided_grad_cam", "grad_cam", "guided_backprop", "input_x_gradient", "saliency"]
    result = compute_maps(build(), images(2), methods=chosen)
    assert list(result.evaluations.values()) == [4, 0, 0, 2, 0]
    for name in chosen:
        alone = compute_maps(build(), images(2), methods=name).maps[name]
        assert torch.equal(result.maps[name], alone)
    result.maps["saliency"].zero_()
    assert result.maps["input_x_gradient"].any()


def test_progress_runs_to_the_end_over_all_members():
    calls: list[tuple[str, int, int]] = []
    chosen = ("saliency", "integrated_gradients", "input_x_gradient", "occlusion")
    compute_maps(
        *(build(), images(2), None, chosen),
        progress=lambda *call: calls.append(call),
        limit=16,
    )
    entries = expand_methods(chosen)
    total = 2 * sum(entry.member.cost(entry.options, (3, 12, 12)) for entry in entries)
    done = [call[1] for call in calls]
    assert {call[2] for call in calls} == {total}
    assert done == sorted(done)
    assert done[-1] == total
    assert list(dict.fromkeys(call[0] for call in calls)) == list(chosen)
    assert len(calls) > 10


def test_failures_are_skipped_with_their_reasons():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 144, 3))
    chosen = ("grad_cam", "saliency", "guided_backprop")
    result = compute_maps(model, images(), methods=chosen, on_error="skip")
    assert list(result.maps) == ["saliency"]
    assert "no convolution" in result.failed["grad_cam"]
    assert "smooth_ig" in result.failed["guided_backprop"]
    with pytest.raises(MemberError, match=r"no member could explain.*grad_cam: .*no convolution"):
        compute_maps(model, images(), methods="grad_cam", on_error="skip")
    with pytest.raises(MemberError, match="no convolution"):
        compute_maps(model, images(), methods=chosen)


def test_a_map_left_out_for_its_infinite_values_has_no_vote():
    x = load_sample().images[:2].half()
    result = compute_maps(load_cnn().half(), x, 0, ("saliency", "deeplift"), on_error="skip")
    assert "infinite" in result.failed["deeplift"]
    assert vote(result).shape == (2, 1)


def test_a_plain_function_is_a_model_for_members_that_only_ask_it():
    model = build().eval()
    reference = compute_maps(model, images(), methods=MEMBERS, options=SMALL).maps
    inner = {"deeplift", "guided_backprop", "deconvolution", "grad_cam", "guided_grad_cam"}
    result = compute_maps(
        *(lambda x: model(x), images(), None, MEMBERS), options=SMALL, on_error="skip"
    )
    assert set(result.failed) == inner
    assert all("needs a torch.nn.Module" in why for why in result.failed.values())
    for name, maps in result.maps.items():
        assert torch.allclose(maps, reference[name], atol=1e-5), name


class Weighing(nn.Module):
    """Takes one argument that follows the inputs, and one that is the same for all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, x, shift, weights):
        return torch.tanh(self.layer(x) + shift[:, None]) * weights.std() * weights.sum()


@pytest.mark.parametrize("n_inputs", [1, 2, 3])
def test_noisy_copies_have_their_inputs_arguments_and_baselines(n_inputs):
    model, x = Weighing(), torch.rand(n_inputs, 4, generator=torch.Generator().manual_seed(0))
    base = torch.rand(n_inputs, 4, requires_grad=True)  # of a caller who learns it
    # As many weights as there are noisy copies: they are still the same for all.
    shift, weights = torch.arange(n_inputs) / 3, torch.arange(5.0 * n_inputs)
    smooth = ("smooth_ig", {"n_samples": 5, "stdev": 0.0})
    found = compute_maps(
        model,
        x,
        1,
        ("integrated_gradients", smooth),
        baselines=base,
        args=(shift, weights),
    ).maps
    expected = captum.IntegratedGradients(lambda x, shift: model(x, shift, weights)).attribute(
        x, base.detach(), target=1, additional_forward_args=shift
    )
    for name, maps in found.items():
        assert torch.allclose(maps, expected.float(), rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"x": torch.zeros(0, 3, 12, 12)}, InputError, r"at least one input.*\[0, 3, 12, 12\]"),
        ({"x": torch.zeros(12)}, InputError, r"x\.unsqueeze\(0\)"),
        ({"x": torch.zeros(1, 4, dtype=torch.long)}, KindError, "explain the embeddings"),
        ({"x": [[1.0]]}, KindError, "got list"),
        ({"x": torch.full((1, 3, 12, 12), torch.nan)}, InputError, "clean the input"),
        ({"x": torch.zeros(1, 3, 5, 5)}, InputError, r"could not run on x.*\[1, 3, 5, 5\]"),
        ({"x": images().double()}, InputError, r"could not run on x, torch.float64"),
        ({"target": 3}, InputError, "valid targets are 0 to 2"),
        ({"methods": ()}, InputError, "methods is empty.*saliency.*paper"),
        ({"methods": ""}, InputError, "methods is empty"),
        ({"methods": "salency"}, InputError, "did you mean 'saliency'.*Members: saliency"),
        ({"methods": [("rise", 3)]}, KindError, "pair"),
        ({"methods": 3}, KindError, "got 3"),
        ({"methods": [None]}, KindError, "got None"),
        ({"methods": [("rise", {"masks": 3})]}, InputError, "no option 'masks'.*n_masks, cells"),
        ({"options": {"rise": {}}}, InputError, "'rise', which is not among the methods"),
        (
            {"methods": [("smoothgrad", {"noise": -1})]},
            InputError,
            "noise must be a finite number >= 0; got -1",
        ),
        ({"methods": [("rise", {"keep": 0})]}, InputError, "keep must be a finite number above 0"),
        ({"methods": "papr"}, InputError, "did you mean 'paper'"),
        ({"options": {"smooth_ig": {"n_steps": "abc"}}}, InputError, "n_steps must be a whole"),
        ({"options": {"smooth_ig": {"per_point": "maybe"}}}, InputError, "true or false"),
        ({"methods": [("lime", {"n_segments": 0})]}, InputError, "n_segments must be a whole"),
        ({"methods": [("grad_cam", {"layer": 3})]}, MemberError, "never runs layer 3"),
        ({"limit": 0}, InputError, "internal_batch_size"),
        ({"autocast": True}, InputError, "autocast is for GPUs"),
        ({"baselines": torch.zeros(5, 3, 12, 12)}, InputError, "broadcast to the input"),
        ({"methods": [lambda m, x, t: x.sum()]}, MemberError, r"member_1.*shape \[2, 3, 12, 12\]"),
        ({"methods": [lambda m, x, t: x / 0]}, MemberError, "NaN or infinite"),
        ({"methods": [lambda m, x, t: None]}, MemberError, "must return a tensor of maps"),
    ],
)
def test_wrong_calls_are_explained(call, error, message):
    with pytest.raises(error, match=message):
        compute_maps(build(), **{"x": images(), **call})


def test_a_model_that_cannot_be_differentiated_says_so():
    model = build()
    for detached in (lambda x: model(x).detach(), lambda x: model(x.detach() * 1)):
        with pytest.raises(MemberError, match=r"(no gradient|does not depend).*occlusion"):
            compute_maps(detached, images(), methods="saliency")
        assert compute_maps(detached, images(), methods="occlusion").maps


def test_a_recurrent_model_and_a_series():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.lstm, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.lstm(x.transpose(1, 2))[0][:, -1])

    chosen = ("saliency", "integrated_gradients", "occlusion")
    result = compute_maps(Recurrent(), torch.randn(2, 3, 9), methods=chosen)
    assert all(maps.shape == (2, 3, 9) for maps in result.maps.values())


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_error_in_the_progress_function_is_the_callers(on_error):
    class StopError(Exception):
        pass

    def stop(label, done, total):
        if done > 1:
            raise StopError("enough")

    model = linear()
    with pytest.raises(StopError, match="enough"):
        compute_maps(
            model,
            torch.rand(2, 3, 4),
            1,
            ("saliency", "integrated_gradients"),
            progress=stop,
            on_error=on_error,
        )
    assert model.training
