"""Members by name, ready ensembles, members of one's own, and maps computed before."""

import copy

import captum.attr as captum
import pytest
import torch
from torch import nn

from sea_nn.errors import MemberError
from sea_nn.members.callables import from_captum
from sea_nn.members.registry import ENSEMBLES, Member, expand_methods, get, names
from sea_nn.members.run import compute_maps
from tests.helpers.networks import build, images, linear


def test_callables_join_by_their_names_with_options_and_a_price():
    def doubled(model, x, target, factor=2.0):
        return factor * x[:, 0] * model(x).gather(1, target[:, None])[:, :, None]

    member = Member("doubled", doubled, evaluations=3)
    result = compute_maps(
        *(build(), images(), None, [member, doubled, (doubled, {"factor": 3.0})]),
        options={"doubled_2": {"factor": 4.0}},
    )
    assert list(result.maps) == ["doubled", "doubled_2", "doubled_3"]
    assert result.maps["doubled"].shape == (2, 1, 12, 12)
    assert torch.allclose(result.maps["doubled_2"], 2 * result.maps["doubled"])
    assert torch.allclose(result.maps["doubled_3"], 1.5 * result.maps["doubled"])
    assert result.evaluations["doubled"] == 2
    assert expand_methods(member)[0].member.cost() == 3


def test_any_captum_class_can_join():
    x = torch.randn(2, 5)
    model = nn.Linear(5, 3)
    maps = compute_maps(
        model, x, 1, [from_captum(captum.FeatureAblation), from_captum(captum.LRP)]
    ).maps
    assert torch.allclose(maps["FeatureAblation"], x * model.weight[1], atol=1e-6)
    assert maps["LRP"].shape == x.shape


def test_ready_ensembles_and_their_options():
    assert ENSEMBLES["paper"] == ("saliency", "integrated_gradients", "smooth_ig")
    for ensemble, members in ENSEMBLES.items():
        assert tuple(entry.label for entry in expand_methods(ensemble)) == members
    (entry,) = expand_methods([("smooth_ig", {"n_samples": 3, "n_steps": 9})])
    expected = {"n_samples": 3, "noise": 0.15, "stdev": None, "n_steps": 9, "per_point": False}
    assert entry.options == expected
    for name in names():
        assert get(name).reference
        assert get(name).cost() >= 1


def test_a_callable_gets_all_of_its_options():
    given = {}

    def draw(model, x, target, **options):
        given.update(options)
        return x

    compute_maps(linear(), torch.rand(2, 3, 4), 1, ((draw, {"baselines": 0.5, "other": 1}),))
    assert given == {"baselines": 0.5, "other": 1}


def test_callables_do_not_run_without_the_models_further_arguments():
    class Gained(nn.Module):
        def forward(self, x, gain=1.0):
            return x.flatten(1)[:, :3] * gain

    def plain(model, x, target):
        return model(x).sum() * x

    with pytest.raises(MemberError, match="additional_forward_args"):
        compute_maps(Gained(), torch.rand(2, 3, 4), 1, plain, args=2.0)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_callable_leaves_behind_reaches_neither_the_caller_nor_the_next_member(fails):
    def careless(model, x, target):
        model.register_forward_hook(lambda module, inputs, output: output / 2)
        model.model[6].register_forward_hook(lambda module, inputs, output: output * 0)
        model.train()
        x.zero_()
        if fails:
            raise ZeroDivisionError("nothing there")
        return x + 1

    model, x = build().train(), images()
    kept, expected = x.clone(), compute_maps(model, x, 1, "saliency").maps["saliency"]
    found = compute_maps(model, x, 1, [careless, "saliency"], on_error="skip")
    assert torch.equal(found.maps["saliency"], expected)
    assert torch.equal(x, kept)
    assert model.training
    assert not model[6]._forward_hooks
    if fails:
        with pytest.raises(MemberError, match=r"careless failed.*ZeroDivisionError: nothing there"):
            compute_maps(model, x, 1, careless)


def test_a_callables_map_of_a_table_has_a_value_for_every_column():
    with pytest.raises(MemberError, match="input's shape"):
        compute_maps(nn.Linear(5, 3), torch.rand(2, 5), 1, lambda model, x, target: x[:, :1])


X = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
HOW = {"methods": ("saliency", "integrated_gradients"), "baselines": torch.zeros(6)}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def found(model):
    return compute_maps(model, X, [0, 1], **HOW)


def test_same_call_takes_the_maps_and_asks_the_model_once(model, found):
    again = compute_maps(model, X.clone(), [0, 1], **HOW, earlier=[found])
    assert again.reused
    assert all(again.maps[name] is found.maps[name] for name in found.maps)
    assert not compute_maps(model, X, [0, 2], **HOW, earlier=[found]).reused


@pytest.mark.parametrize("change", ["weights", "input", "baselines", "methods", "options", "seed"])
def test_maps_are_computed_anew_where_anything_is_different(model, found, change):
    model, x, how = copy.deepcopy(model), X.clone(), dict(HOW)
    if change == "weights":
        model[0].weight.data.mul_(1.05)
    elif change == "input":
        x[0, 0] += 1e-6
    elif change == "baselines":
        how["baselines"] = torch.full((6,), 1e-6)
    elif change == "options":
        how["options"] = {"integrated_gradients": {"n_steps": 7}}
    else:
        how |= {"methods": ("saliency",)} if change == "methods" else {"seed": 1}
    assert not compute_maps(model, x, [0, 1], **how, earlier=[found]).reused


def test_a_baseline_that_the_caller_changes_afterwards_is_another_one(model):
    baseline = torch.zeros(6)
    found = compute_maps(model, X, 0, "saliency", baselines=baseline)
    baseline += 1
    again = compute_maps(model, X, 0, "saliency", baselines=baseline, earlier=[found])
    assert not again.reused
