"""Grad-CAM finds its layer, equals Captum's, and reads the tokens of transformers."""

import pytest
import torch
from torch import nn

from sea_nn.errors import MemberError
from tests.helpers.by_hand import build_cnn, build_table, ours


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
