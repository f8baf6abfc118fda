"""Attention members: equal to transformers' attention, conserved, refused in time."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from sea_nn import SEA
from sea_nn.errors import MemberError
from sea_nn.features import find_patches
from sea_nn.members.attention import attend
from sea_nn.members.run import compute_maps

transformers = pytest.importorskip("transformers", reason="pip install 'sea-nn[hf]'")
SIZES = {"image_size": 16, "patch_size": 4, "num_channels": 3, "num_labels": 5}
WIDTHS = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
X = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def build(kind: str, **options) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **WIDTHS, **options)
    return getattr(transformers, f"{kind}ForImageClassification")(config).eval()


def build_swin() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.SwinConfig(**SIZES, embed_dim=8, depths=[2], num_heads=[2], window_size=2)
    return transformers.SwinForImageClassification(config).eval()


def one_map(model, method: str, x=X, target=None):
    return compute_maps(model, x, target, (method,)).maps[method]


def attentions(model, x):
    model.set_attn_implementation("eager")
    found = model(x, output_attentions=True)
    model.set_attn_implementation("sdpa")
    return found.logits, found.attentions


def enlarge(tokens):
    return functional.interpolate(tokens.view(-1, 1, 4, 4), (16, 16), mode="bilinear")


def test_rollout_is_that_of_the_attentions_which_transformers_returns():
    model = build("ViT")
    flow = torch.eye(17)
    for layer in attentions(model, X)[1]:
        mixed = 0.5 * layer.mean(1) + 0.5 * torch.eye(17)
        flow = mixed @ flow
    expected = enlarge(flow[:, 0, 1:].detach())
    torch.testing.assert_close(one_map(model, "attention_rollout"), expected)


def test_gradient_weighted_attention_is_that_of_the_same_attentions():
    model, target = build("ViT"), torch.tensor([0, 3, 4])
    logits, layers = attentions(model, X)
    slopes = torch.autograd.grad(logits[torch.arange(3), target].sum(), layers)
    flow = torch.eye(17)
    for layer, slope in zip(layers, slopes, strict=True):
        flow = flow + (layer * slope).clamp(min=0).mean(1) @ flow
    expected = enlarge(flow[:, 0, 1:].detach())
    torch.testing.assert_close(one_map(model, "attention_gradient", target=target), expected)


@pytest.mark.parametrize("make", [lambda: build("DeiT"), build_swin], ids=["DeiT", "Swin"])
def test_lrp_adds_up_to_the_score_without_biases_and_places(make):
    model = make()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "token" in name or "position_embeddings" in name:
            nn.init.zeros_(parameter)
    with torch.no_grad():
        score = model(X).logits.amax(1)
    torch.testing.assert_close(one_map(model, "attention_lrp").sum((1, 2, 3)), score)


class OwnModule(nn.Module):
    """PyTorch's encoder layer on 16 patches, the last of them hidden from the others."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 5)
        self.mix = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).mT
        hidden = torch.zeros(len(x), 16, dtype=torch.bool)
        hidden[:, -1] = True
        return self.head(self.mix(tokens, src_key_padding_mask=hidden).mean(1))


def test_pytorchs_own_attention_module_is_read_too():
    model = OwnModule().eval()
    tokens = model.patch(X).flatten(2).mT
    hidden = torch.zeros(3, 16, dtype=torch.bool)
    hidden[:, -1] = True
    weights = model.mix.self_attn(tokens, tokens, tokens, key_padding_mask=hidden)[1]
    flow = (0.5 * weights + 0.5 * torch.eye(16)).mean(1).detach()
    torch.testing.assert_close(one_map(model, "attention_rollout"), enlarge(flow))
    assert bool((one_map(model, "attention_gradient").flatten(1).std(1) > 0).all())


class ByHand(nn.Module):
    """Attention of 16 patches, by PyTorch's function or written out."""

    def __init__(self, written_out):
        super().__init__()
        torch.manual_seed(0)
        self.patch, self.head, self.written_out = (
            nn.Conv2d(3, 24, 4, 4),
            nn.Linear(8, 5),
            written_out,
        )

    def forward(self, x):
        q, k, v = self.patch(x).flatten(2).mT.unsqueeze(1).chunk(3, 3)
        if self.written_out:
            mixed = (q @ k.mT / 8**0.5).softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.head(mixed[:, 0].mean(1))


@pytest.mark.parametrize("method", ["attention_rollout", "attention_gradient", "attention_lrp"])
def test_attention_that_is_written_out_is_found(method):
    written, expected = one_map(ByHand(True), method), one_map(ByHand(False), method)
    torch.testing.assert_close(written, expected)


def test_windows_are_refused_by_rollout_and_its_error_says_what_to_use():
    with pytest.raises(MemberError, match="use attention_lrp or grad_cam"):
        one_map(build_swin(), "attention_rollout")


@pytest.mark.parametrize("method", ["attention_rollout", "attention_gradient", "attention_lrp"])
def test_a_model_without_attention_is_refused(method):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 256, 5))
    with pytest.raises(MemberError, match="found no attention"):
        one_map(model, method)


def test_attention_by_hand_is_pytorchs():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 6, 8, generator=generator)
    k, v = torch.randn(2, 2, 2, 6, 8, generator=generator).unbind(0)
    mask = torch.rand(6, 6, generator=generator) > 0.3
    mask.fill_diagonal_(True)
    for options in ({"is_causal": True}, {"attn_mask": mask}, {"scale": 0.1}):
        weights, value = attend(q, k, v, enable_gqa=True, **options)
        expected = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
        torch.testing.assert_close(weights @ value, expected)


@pytest.mark.parametrize("method", ["attention_gradient", "attention_lrp"])
def test_maps_do_not_depend_on_the_batch(method):
    model = build("ViT")
    found = compute_maps(model, X, None, (method,))
    assert found.evaluations == {method: 3}
    together = found.maps[method]
    alone = torch.cat([one_map(model, method, X[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(
    ("make", "members"),
    [
        (lambda: build("ViT"), ("presence_gradient", "attention_gradient")),
        (lambda: build("DeiT"), ("presence_gradient", "attention_gradient")),
        (build_swin, ("presence_gradient",)),
    ],
    ids=["ViT", "DeiT", "Swin"],
)
def test_a_budget_finds_the_members_of_a_transformer(make, members):
    explanation = SEA(make(), budget=20).explain(X, target=0)
    assert tuple(explanation.methods) == members


@pytest.mark.parametrize(
    ("side", "step", "cells"),
    [(28, 4, (7, 7)), (224, 16, (7, 7)), (256, 16, (8, 8)), (518, 14, None), (30, 4, None)],
)
def test_cells_are_whole_patches_where_four_to_eight_of_them_fit(side, step, cells):
    stem = nn.Conv2d(3, 8, step, stride=step)
    assert find_patches(nn.Sequential(stem, nn.MultiheadAttention(8, 2)), (side, side)) == cells


def test_a_transformer_is_asked_about_its_patches_and_a_network_of_convolutions_is_not():
    asked = {"target": 0}
    found = SEA(build("ViT"), budget=60).explain(X, **asked)
    whole = found.feature_shape
    assert whole == find_patches(build("ViT"), tuple(X.shape[2:]))
    plain = nn.Sequential(nn.Conv2d(3, 2, 4, stride=4), nn.Flatten(), nn.LazyLinear(3))
    plain(X)
    assert SEA(plain, budget=60).explain(X, **asked).feature_shape == (8, 8)
    assert SEA(build("ViT"), budget=40, grid=(2, 2)).explain(X, **asked).feature_shape == (2, 2)
