"""Members made of gradients equal Captum's own classes called by hand with the same draws."""

import captum.attr as captum
import pytest
import torch
from torch import Tensor, nn

from sea_nn.errors import MemberError
from sea_nn.members.run import compute_maps
from tests.helpers.by_hand import build_cnn, build_table, by_hand, ours, pick, same


@pytest.fixture(params=["image", "series", "table"])
def case(request) -> tuple[nn.Module, Tensor, Tensor]:
    return pick(request.param)


def test_noise_of_every_points_own_has_the_same_mean_and_leaves_less_of_itself():
    case = pick("series")
    options = {"stdev": 0.3, "n_steps": 10}

    def explain(seed: int, n_samples: int, **more):
        return ours(*case, "smooth_ig", seed=seed, n_samples=n_samples, **options, **more)

    mean = explain(99, 500)
    spread = (explain(98, 500) - mean).abs().mean()
    assert (explain(0, 500, per_point=True) - mean).abs().mean() < 1.5 * spread

    def stray(**more) -> torch.Tensor:
        found = torch.stack([explain(seed, 3, **more) for seed in range(6)])
        return (found - mean).square().mean()

    assert stray(per_point=True) < 0.6 * stray()
    assert same(explain(1, 3, per_point=True, limit=7), explain(1, 3, per_point=True))


def test_noise_is_a_share_of_each_inputs_own_range(case):
    model, x, target = case
    x = x * torch.tensor([1.0, 2.0, 8.0], dtype=x.dtype).view(-1, *(1,) * (x.ndim - 1))
    maps = ours(model, x, target, "smoothgrad", n_samples=6, noise=0.25)
    for i in range(3):
        stdev = float(0.25 * (x[i].max() - x[i].min()))
        one = ours(model, x[i : i + 1], target[i], "smoothgrad", n_samples=6, stdev=stdev)
        assert same(maps[i : i + 1], one, 1e-9)


def test_baselines_one_an_input_are_that_for_every_member(case):
    model, x, target = case
    base = torch.randn_like(x)
    methods = [("gradient_shap", {"n_samples": 5}), ("integrated_gradients", {"n_steps": 5})]
    together = compute_maps(model, x, target, methods, baselines=base).maps
    for i in range(len(x)):
        alone = compute_maps(model, x[[i]], target[[i]], methods, baselines=base[[i]]).maps
        for name, maps in together.items():
            assert same(maps[[i]], alone[name], 1e-9)


class Reused(nn.Module):
    """The same activation module at two places, or one module each."""

    def __init__(self, shared: bool, activation=nn.ReLU) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.act = activation(inplace=True)
        self.other = self.act if shared else activation(inplace=True)
        self.double()

    def forward(self, x):
        return self.last(self.other(self.second(self.act(self.first(x)))))


def test_deeplift_on_a_module_used_twice_equals_captum_on_its_twin_with_two():
    torch.manual_seed(5)
    x, target = torch.randn(3, 6, dtype=torch.float64), torch.tensor([0, 1, 2])
    expected = by_hand(captum.DeepLift(Reused(shared=False)), x, target)
    assert same(ours(Reused(shared=True), x, target, "deeplift"), expected)
    with pytest.raises(RuntimeError, match="more than once"):
        by_hand(captum.DeepLift(Reused(shared=True)), x, target)


@pytest.mark.parametrize("activation", [nn.ReLU6, nn.SiLU, nn.Hardswish])
def test_deeplift_adds_up_for_activations_that_captum_passes_over(activation):
    model = Reused(shared=True, activation=activation)
    torch.manual_seed(5)
    x, base = 5 * torch.randn(3, 6, dtype=torch.float64), torch.ones(1, 6, dtype=torch.float64)
    maps = ours(model, x, 1, "deeplift", baselines=base)
    gap = (model(x) - model(base))[:, 1]
    assert torch.allclose(maps.sum(1), gap, atol=1e-9)
    plain = ours(model, x, 1, "saliency") * (x - base)
    assert not torch.allclose(plain.sum(1), gap, atol=1e-3)


def test_deeplift_adds_up_under_overlapping_pooling():
    torch.manual_seed(6)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(4 * 36, 2)),
    ).double()
    x = torch.randn(2, 1, 14, 14, dtype=torch.float64)
    maps = ours(model, x, 1, "deeplift")
    assert torch.allclose(maps.flatten(1).sum(1), (model(x) - model(x * 0))[:, 1], atol=1e-9)


def test_guided_backprop_takes_relu6_for_a_relu():
    torch.manual_seed(7)
    x = 0.1 * torch.randn(2, 3, 16, 16, dtype=torch.float64)  # no activation reaches 6
    six, plain = build_cnn(nn.ReLU6), build_cnn(nn.ReLU)
    maps = ours(six, x, 1, "guided_backprop")
    assert same(maps, by_hand(captum.GuidedBackprop(plain), x, torch.tensor([1, 1])), 1e-12)
    assert not torch.allclose(maps, ours(six, x, 1, "saliency"))


@pytest.mark.parametrize("name", ["guided_backprop", "deconvolution"])
def test_members_that_change_rectifiers_say_when_there_are_none(name):
    with pytest.raises(MemberError, match=r"found none.*repeat the plain gradient.*smooth_ig"):
        ours(build_table(), torch.randn(1, 6, dtype=torch.float64), 0, name)


def test_deeplift_refuses_a_softmax_layer():
    model = nn.Sequential(build_table(), nn.Softmax(1))
    x = torch.randn(1, 6, dtype=torch.float64)
    with pytest.raises(MemberError, match="leave that layer out"):
        compute_maps(model, x, 0, "deeplift", output="probabilities")
