"""Members by name and of one's own, maps computed before, and what is checked of members."""

import copy

import captum.attr as captum
import pytest
import torch
from torch import nn

from sea_nn import SEA, Running
from sea_nn.errors import MemberError
from sea_nn.members.callables import from_captum
from sea_nn.members.checks import vote
from sea_nn.members.registry import ENSEMBLES, Member, expand_methods, get, names
from sea_nn.members.run import compute_maps
from tests.golden import Attending, set_weights
from tests.helpers.networks import build, images


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


ROWS = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
HOW = {"methods": ("saliency", "integrated_gradients"), "baselines": torch.zeros(6)}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def found(model):
    return compute_maps(model, ROWS, [0, 1], **HOW)


def test_same_call_takes_the_maps_and_asks_the_model_once(model, found):
    again = compute_maps(model, ROWS.clone(), [0, 1], **HOW, earlier=[found])
    assert again.reused
    assert all(again.maps[name] is found.maps[name] for name in found.maps)
    assert not compute_maps(model, ROWS, [0, 2], **HOW, earlier=[found]).reused


@pytest.mark.parametrize("change", ["weights", "input", "baselines", "methods", "options", "seed"])
def test_maps_are_computed_anew_where_anything_is_different(model, found, change):
    model, x, how = copy.deepcopy(model), ROWS.clone(), dict(HOW)
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
    found = compute_maps(model, ROWS, 0, "saliency", baselines=baseline)
    baseline += 1
    again = compute_maps(model, ROWS, 0, "saliency", baselines=baseline, earlier=[found])
    assert not again.reused


X = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def network(activation=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), activation(), nn.Flatten(), nn.Linear(144, 3))


def examine(model, x, target=None, methods="paper", **given):
    return SEA(model, methods).explain(x, target, running=Running(on_error="skip"), **given).checks


def levels(checks, subject):
    return [c.level for c in checks if c.subject == subject]


def test_a_sound_ensemble_is_fine():
    checks = examine(network(), X, methods=("saliency", "integrated_gradients", "occlusion"))
    assert {c.level for c in checks} == {"ok"}


def test_captums_guided_backprop_on_relu6_is_found_out():
    member = from_captum(captum.GuidedBackprop)
    assert levels(
        examine(network(nn.ReLU6), X, methods=("saliency", member)), "GuidedBackprop"
    ) == ["warn"]
    found = compute_maps(network(nn.ReLU6), X, methods=("saliency", member, "occlusion"))
    assert vote(found).tolist() == [[0.5, 0.5, 1.0]] * len(X)
    assert levels(examine(network(nn.ReLU), X, methods=("saliency", member)), "GuidedBackprop") == [
        "ok"
    ]


def test_empty_and_failing_members_are_named():
    def nothing(model, x, target):
        return torch.zeros_like(x)

    checks = examine(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), X, methods=("saliency", nothing, "grad_cam")
    )
    assert levels(checks, "nothing") == ["fail"]
    assert levels(checks, "grad_cam") == ["fail"]


@pytest.mark.parametrize("wobble", [0.0, 2e-7])
def test_a_map_that_is_the_same_everywhere_is_named_and_does_not_count(wobble):
    def level(model, x, target):
        return 0.3 + wobble * x  # rounding is no preference either

    checks = examine(network(), X, methods=("saliency", level))
    (found,) = [c for c in checks if c.subject == "level"]
    assert (found.level, found.advice) == ("fail", "it does not count there")
    assert "the same everywhere for every input" in found.message
    explanation = SEA(network(), ("saliency", level)).explain(X)
    assert not explanation.maps[:, 1].any()
    assert explanation.maps[:, 0].amax() == 1


def test_an_incomplete_integral_asks_for_more_steps():
    class Kinked(nn.Module):
        def forward(self, x):
            total = x.flatten(1).sum(1)
            return torch.stack([(40 * torch.sin(total * 3)) + total, -total], 1)

    few = [("integrated_gradients", {"n_steps": 3})]
    checks = examine(Kinked(), X, target=0, methods=few)
    assert [c.level for c in checks if "misses" in c.message] == ["warn"]
    assert "n_steps" in checks[-1].advice
    many = [("integrated_gradients", {"n_steps": 400})]
    checks = examine(Kinked(), X, target=0, methods=many)
    assert [c.level for c in checks if "misses" in c.message] == ["ok"]


def test_completeness_starts_where_the_member_did():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))
    own = {"baselines": torch.full((1, 3, 4), 0.9, dtype=torch.float64)}
    methods = [("integrated_gradients", own)]
    checks = examine(model, torch.rand(3, 3, 4), 1, methods, internal_batch_size=2)
    sums = [check for check in checks if "change of the logit" in check.message]
    assert [check.level for check in sums] == ["ok"]


def test_equal_members_share_a_vote_input_by_input():
    def half(model, x, target):
        maps = compute_maps(model, x, target, "saliency").maps["saliency"]
        return torch.where(torch.arange(len(x)).view(-1, 1, 1, 1) == 0, maps, x + 1)

    found = compute_maps(network(), X, 1, ("saliency", half, "occlusion"))
    assert vote(found).tolist() == [[0.5, 0.5, 1.0], [1.0, 1.0, 1.0]]


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.SiLU, nn.Sigmoid])
def test_deeplift_adds_up_on_chains_of_layers(activation):
    model = network(activation)
    found = compute_maps(model, X, methods=("saliency", "deeplift"))
    assert float(found.missed["deeplift"].max()) == 0
    assert vote(found).tolist() == [[1.0, 1.0]] * len(X)
    assert "warn" not in levels(examine(model, X, methods=("deeplift",)), "deeplift")


def test_deeplift_does_not_count_where_its_rules_do_not_fit():
    model = set_weights(Attending())
    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    found = compute_maps(model, x, methods=("saliency", "deeplift", "integrated_gradients"))
    assert float(found.missed["deeplift"].min()) > 0.25
    assert vote(found).tolist() == [[1.0, 0.0, 1.0]] * len(x)
    both = SEA(model, ("saliency", "deeplift", "integrated_gradients")).explain(x)
    without = SEA(model, ("saliency", "integrated_gradients")).explain(x)
    torch.testing.assert_close(both.attribution, without.attribution)
    (warning,) = [c for c in both.checks if c.subject == "deeplift" and c.level == "warn"]
    assert "does not count" in warning.advice
    alone = compute_maps(model, x, methods=("deeplift",))
    assert vote(alone).tolist() == [[1.0]] * len(x)


class Normalised(nn.Module):
    """Uses the statistics of the batch even in eval mode, or none."""

    def __init__(self, training):
        super().__init__()
        torch.manual_seed(0)
        self.training_always, self.norm, self.last = training, nn.BatchNorm2d(1), network()

    def forward(self, x):
        mean, var = self.norm.running_mean, self.norm.running_var
        return self.last(nn.functional.batch_norm(x, mean, var, training=self.training_always))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("training", [False, True])
def test_a_model_whose_rows_are_not_independent_is_named(training, count):
    e = SEA(Normalised(training), ("saliency", "input_x_gradient")).explain(X[:count], target=0)
    notes = [c.message for c in e.checks if c.subject == "model"]
    assert any("rest of the batch" in note for note in notes) == training
