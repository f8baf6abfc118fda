"""Members made of gradients equal Captum's own; Grad-CAM finds its layer and reads tokens."""

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


def test_grad_cam_passes_over_a_squeeze_of_one_position():
    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.stem, self.gate = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            x = self.stem(x)
            x = x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
            return self.head(x.relu().mean((2, 3)))

    model, x = Squeeze(), torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(
        ours(model, x, 0, "grad_cam"), ours(model, x, 0, "grad_cam", layer="stem")
    )


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A small vision transformer; `pool` is "class" (token) or "mean"."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pool = pool
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        if self.pool == "class":
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0] if self.pool == "class" else x.mean(1))


@pytest.mark.parametrize(
    ("pool", "layer", "prefix"), [("class", "blocks.1.norm1", 1), ("mean", "norm", 0)]
)
def test_grad_cam_reads_the_last_tokens_that_count(pool, layer, prefix):
    model, x = Transformer(pool).double(), torch.randn(2, 3, 16, 24, dtype=torch.float64)
    target = torch.tensor([1, 3])
    found = ours(model, x, target, "grad_cam")
    assert found.shape == (2, 1, 16, 24)

    def lay(tokens):
        return tokens[:, prefix:].transpose(1, 2).reshape(len(tokens), 8, 4, 6)

    named = ours(model, x, target, "grad_cam", layer=layer, reshape=lay)
    torch.testing.assert_close(found, named)
    module = model.get_submodule(layer)
    kept = []
    handle = module.register_forward_hook(lambda m, i, o: kept.append(o))
    score = model(x).gather(1, target[:, None]).sum()
    handle.remove()
    slope, active = lay(torch.autograd.grad(score, kept[0])[0]), lay(kept[0])
    cam = (slope.mean((2, 3), keepdim=True) * active).sum(1, keepdim=True).relu()
    expected = nn.functional.interpolate(cam, (16, 24), mode="bilinear")
    assert torch.allclose(found, expected.detach())


def test_grad_cam_says_what_is_missing():
    table, x = build_table(), torch.randn(1, 6, dtype=torch.float64)
    with pytest.raises(MemberError, match=r"inputs with positions.*integrated_gradients"):
        ours(table, x, 0, "grad_cam")
    flat = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    with pytest.raises(MemberError, match=r"no convolution or token layer.*occlusion"):
        ours(flat, torch.randn(1, 3, 4, 4), 0, "grad_cam")
    cnn, pixels = build_cnn(), torch.randn(1, 3, 16, 16, dtype=torch.float64)
    named = nn.Sequential()
    named.add_module("features", cnn[:6])
    named.add_module("head", cnn[6:])
    with pytest.raises(MemberError, match=r"never runs layer 'feature\.3'"):
        ours(named, pixels, 0, "grad_cam", layer="feature.3")
    with pytest.raises(MemberError, match=r"\[1, 5\] has no positions.*reshape="):
        ours(named, pixels, 0, "grad_cam", layer="head.7")
    bag = nn.Sequential(nn.Flatten(2), nn.Linear(16, 7), nn.Flatten(), nn.Linear(21, 2))
    with pytest.raises(MemberError, match="3 tokens fit no grid for an input of 4 x 4"):
        ours(bag, torch.randn(1, 3, 4, 4), 0, "grad_cam", layer="1")
