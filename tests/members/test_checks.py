import captum
import pytest
import torch
from torch import nn

from sea_nn import SEA, Running
from sea_nn.members.callables import from_captum
from sea_nn.members.checks import vote
from sea_nn.members.run import compute_maps

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
    member = from_captum(captum.attr.GuidedBackprop)
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


class Attending(nn.Module):
    """A small transformer on 8 x 8 images: no chain of layers that DeepLIFT has rules for."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Conv2d(1, 16, 2, 2)
        self.norm, self.mixed = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.act, self.head = nn.GELU(), nn.Linear(16, 3)

    def forward(self, x):
        tokens = self.norm(self.embed(x).flatten(2).mT)
        mixed = tokens + self.mixed(tokens, tokens, tokens)[0]
        return self.head(self.act(mixed).mean(1))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.SiLU, nn.Sigmoid])
def test_deeplift_adds_up_on_chains_of_layers(activation):
    model = network(activation)
    found = compute_maps(model, X, methods=("saliency", "deeplift"))
    assert float(found.missed["deeplift"].max()) == 0
    assert vote(found).tolist() == [[1.0, 1.0]] * len(X)
    assert "warn" not in levels(examine(model, X, methods=("deeplift",)), "deeplift")


def test_deeplift_does_not_count_where_its_rules_do_not_fit():
    model = Attending().eval()
    found = compute_maps(model, X, methods=("saliency", "deeplift", "integrated_gradients"))
    assert float(found.missed["deeplift"].min()) > 0.25
    assert vote(found).tolist() == [[1.0, 0.0, 1.0]] * len(X)
    both = SEA(model, ("saliency", "deeplift", "integrated_gradients")).explain(X)
    without = SEA(model, ("saliency", "integrated_gradients")).explain(X)
    torch.testing.assert_close(both.attribution, without.attribution)
    (warning,) = [c for c in both.checks if c.subject == "deeplift" and c.level == "warn"]
    assert "does not count" in warning.advice
    alone = compute_maps(model, X, methods=("deeplift",))
    assert vote(alone).tolist() == [[1.0]] * len(X)


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
