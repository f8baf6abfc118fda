"""Folded norms give the same function, and the model's own parameters are back afterwards."""

from dataclasses import replace

import captum.attr as captum
import pytest
import torch
from torch import nn

from sea_nn.members import compute as explainers
from sea_nn.members.compute import compute_maps
from sea_nn.passes import evaluator
from sea_nn.passes import norm_folding as fold
from sea_nn.passes.batching import measure
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.evaluator import Evaluator
from sea_nn.passes.norm_folding import Fold, plan
from sea_nn.passes.outputs import Logits


def wake(model: nn.Module) -> nn.Module:
    """Give norms statistics and weights that matter."""
    torch.manual_seed(1)
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None:
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2)
            if m.affine:
                nn.init.normal_(m.weight)
                nn.init.normal_(m.bias)
    return model.double().eval()


def build() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.BatchNorm2d(4, affine=False), nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 5), nn.BatchNorm1d(5)),
    )
    return wake(model)


def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2)).double()


@pytest.mark.parametrize("faithful", [False, True])
def test_the_function_and_its_gradient_stay_the_same(faithful):
    model, x = build(), images().requires_grad_(True)
    expected = model(x)
    (slope,) = torch.autograd.grad(expected[:, 1].sum(), x)
    what = plan(model, lambda: model(x))
    assert what.pairs == ((model[0], model[1]), (model[4], model[5]))
    assert what.norms == (model[3], model[9])
    with Fold(what, faithful=faithful).applied():
        found = model(x)
        assert torch.allclose(found, expected)
        assert torch.allclose(torch.autograd.grad(found[:, 1].sum(), x)[0], slope)
        assert faithful or model[1].forward(x) is x


class Chain(nn.Sequential):
    """A layer that may run apart, then the pair in question, then numbers to tell inputs by."""

    def __init__(self, layer: nn.Module, norm: nn.Module) -> None:
        first = type(layer)(2, 3, 1)
        norms = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
        super().__init__(first, norms[type(layer)](3), nn.Tanh(), layer, norm, nn.Tanh())


LAYERS = [
    (nn.Conv1d(3, 4, 3, stride=2, bias=False), nn.BatchNorm1d(4), (10,)),
    (nn.Conv1d(3, 4, 3, stride=3, padding=4, dilation=2), nn.BatchNorm1d(4, affine=False), (11,)),
    (nn.Conv2d(3, 4, 1, stride=2), nn.BatchNorm2d(4), (9, 10)),
    (nn.Conv2d(3, 4, (3, 2), (2, 3), (1, 0), (1, 2)), nn.BatchNorm2d(4), (9, 12)),
    (nn.Conv3d(3, 4, 2, stride=2, padding=1), nn.BatchNorm3d(4), (4, 5, 6)),
]


@pytest.mark.parametrize(("layer", "norm", "size"), LAYERS)
def test_a_faithful_pair_goes_forward_by_the_layers_own_weights_and_back_as_one(layer, norm, size):
    torch.manual_seed(0)
    model = wake(Chain(layer, norm)).requires_grad_(False)
    x = torch.randn(3, 2, *size).double().requires_grad_(True)
    expected = model(x)
    grad = torch.randn_like(expected)
    (slope,) = torch.autograd.grad(expected, x, grad)
    found = Fold(plan(model, lambda: model(x)), faithful=True)
    assert set(found.forwards) == {model[1], layer, norm}
    with found.applied():
        answer = model(x)
        assert torch.allclose(answer, expected, rtol=1e-12)
        assert torch.allclose(torch.autograd.grad(answer, x, grad)[0], slope, rtol=1e-10)
        alone = model[2](model[0](x))  # layers take a single input without its axis as well
        assert torch.allclose(layer(alone[0]), layer(alone)[0])
        # Rounded weights show which ones each way takes.
        values = found.forwards[layer].args
        values[1].zero_()  # the ones for the way back
        answer = model(x)
        assert torch.allclose(answer, expected, rtol=1e-12)
        assert not torch.autograd.grad(answer, x, grad)[0].any()


def test_layers_called_or_built_by_hand_are_folded_or_left_alone():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

        def forward(self, x):
            for layer in self.layers:
                x = layer(input=x)
            return x.flatten(1)

    def by_number(model):
        model.layers[3].stride = 1

    def by_one(model):
        model.layers[3].padding = (0,)

    for change in (lambda model: None, by_number, by_one):
        torch.manual_seed(0)
        model = wake(Named())
        change(model)
        x = torch.randn(2, 2, 7, 7).double()
        expected = compute_maps(lambda v, model=model: model(v), x, 1, "integrated_gradients")
        for faithful in (False, True):
            found = fold.fold_safely(model, lambda model=model, x=x: model(x), faithful=faithful)
            assert found
            with found.applied():
                maps = compute_maps(lambda v, model=model: model(v), x, 1, "integrated_gradients")
            assert torch.allclose(*(m.maps["integrated_gradients"] for m in (maps, expected)))


class Uncalled(nn.Module):
    """Asks its norm for more than one of ours gives."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

    def forward(self, x):
        self.layers[1].forward.__func__  # noqa: B018
        return self.layers(x).flatten(1)


def test_a_model_that_cannot_run_folded_runs_as_it_is():
    model, x = wake(Uncalled()), images()
    maps = compute_maps(model, x, 1, "integrated_gradients").maps["integrated_gradients"]
    expected = captum.IntegratedGradients(model).attribute(x, target=1)
    assert torch.allclose(maps, expected, atol=1e-7)
    assert not fold.fold_safely(model, lambda: model(x))


@pytest.mark.parametrize("faithful", [False, True])
def test_norms_of_another_type_than_their_convolution_are_left_alone(faithful):
    model, x = build().float(), images().float()
    model[4].to(torch.bfloat16)
    model[3].register_forward_hook(lambda layer, inputs, output: output.to(torch.bfloat16))
    model[5].register_forward_hook(lambda layer, inputs, output: output.float())
    with torch.no_grad():
        found = Fold(plan(model, lambda: model(x)), faithful=faithful)
    what = Fold(fold.Plan(((model[0], model[1]), (model[4], model[5]))), faithful=faithful)
    assert model[5] not in found.forwards
    assert set(what.forwards) - {model[0]} == {model[1]}


@pytest.mark.parametrize("rounds", [False, True])
def test_own_weights_go_forward_where_a_device_rounds(monkeypatch, rounds):
    monkeypatch.setattr(evaluator, "may_round", lambda device: rounds)
    model = nn.Sequential(*wake(Chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), nn.Flatten())
    x = torch.randn(1, 2, 7, 7).double()
    with borrow(model):
        task = Evaluator(Logits(model), x, torch.tensor([0]), model(x))
        found = task.find_fold(gradients=True)
        assert model[3] in task.find_fold().parameters  # answers alone do without
    assert (model[3] in found.forwards) is rounds
    assert (model[3] in found.parameters) is not rounds


class Standardised(nn.Conv2d):
    """Convolves with other weights than its own."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(x, weight / weight.std(), self.bias)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_on_a_device_that_rounds_the_fold_that_is_tried_is_the_one_that_is_used(
    monkeypatch, autocast
):
    monkeypatch.setattr(evaluator, "may_round", lambda device: True)
    monkeypatch.setattr(explainers, "check_autocast", lambda wanted, x: wanted)
    model = wake(Chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    model[3] = Standardised(3, 4, 3).double()
    model = nn.Sequential(*model, nn.Flatten()).float()
    x = torch.randn(2, 2, 7, 7, generator=torch.Generator().manual_seed(0))
    maps = compute_maps(model, x, 1, "integrated_gradients", autocast=autocast).maps
    same = compute_maps(lambda v: model(v), x, 1, "integrated_gradients", autocast=autocast).maps
    close = {None: 1e-5, torch.bfloat16: 0.05}[autocast]
    for found, expected in zip(maps.values(), same.values(), strict=True):
        assert (found - expected).abs().max() <= close * expected.abs().max()


class Padding(nn.Conv2d):
    """Does more than its class says."""

    def forward(self, x):
        return super().forward(nn.functional.pad(x, (0, 1, 0, 1)))


@pytest.mark.parametrize(
    "layer",
    [
        Padding(3, 4, 3),
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(3, 6, 3, groups=3),
    ],
)
def test_layers_that_do_more_than_convolve_keep_their_norm_apart(layer):
    torch.manual_seed(0)
    model = wake(Chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).requires_grad_(False)
    model[3], model[4] = layer.double(), wake(nn.BatchNorm2d(layer.out_channels))
    x = torch.randn(2, 2, 7, 7).double().requires_grad_(True)
    expected = model(x)
    (slope,) = torch.autograd.grad(expected.sum(), x)
    found = Fold(plan(model, lambda: model(x)), faithful=True)
    assert set(found.forwards) == {model[1], model[4]}
    with found.applied():
        answer = model(x)
        assert torch.allclose(answer, expected, rtol=1e-12)
        assert torch.allclose(torch.autograd.grad(answer.sum(), x)[0], slope, rtol=1e-10)


@pytest.mark.parametrize("fail", [False, True])
def test_the_very_same_parameters_come_back(fail):
    model, x = build(), images()
    before = {name: id(p) for name, p in model.named_parameters()}
    attributes = [set(m.__dict__) for m in model.modules()]
    found = Fold(plan(model, lambda: model(x)))
    try:
        with found.applied():
            assert {name: id(p) for name, p in model.named_parameters()} != before
            if fail:
                raise RuntimeError("half way")
    except RuntimeError:
        assert fail
    assert {name: id(p) for name, p in model.named_parameters()} == before
    assert model[0].bias is None
    assert [set(m.__dict__) for m in model.modules()] == attributes


@pytest.mark.parametrize("faithful", [False, True])
def test_folded_weights_follow_the_model_in_the_same_memory(faithful):
    model, x = build(), images()
    model[4] = nn.Conv2d(4, 6, 3).double()
    found = Fold(plan(model, lambda: model(x)), faithful=faithful)
    places = [value.data_ptr() for value in found.tensors()]
    own = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    assert not own & set(places)
    model[0].weight.data.mul_(2)
    model[4].weight.data.mul_(2)
    model[5].running_var.mul_(3)
    model[9].running_mean.add_(1)
    expected = model(x)
    with found.applied():
        assert not torch.allclose(model(x), expected)
    found.refresh()
    with found.applied():
        assert torch.allclose(model(x), expected)
    assert places == [value.data_ptr() for value in found.tensors()]


def test_folded_convolutions_can_have_another_type():
    model, x = build(), images()
    found = Fold(plan(model, lambda: model(x)), torch.float32)
    assert {p.dtype for kept in found.parameters.values() for p in kept.values()} == {torch.float32}
    found.refresh()
    weight = found.parameters[model[4]]["weight"]
    scale = model[5].weight / (model[5].running_var + model[5].eps).sqrt()
    assert torch.allclose(weight.double(), model[4].weight * scale.view(-1, 1, 1, 1), atol=1e-6)


@pytest.mark.parametrize("faithful", [False, True])
def test_a_pass_keeps_less_memory(faithful):
    model, x = build().requires_grad_(False), images()[:1]
    model[4] = nn.Conv2d(4, 6, 3).double().requires_grad_(False)
    own = (*model.parameters(), *model.buffers())
    plain = measure(model, x, own)
    found = Fold(plan(model, lambda: model(x)), faithful=faithful)
    with found.applied():
        folded = measure(model, x, (*own, *model.parameters(), *found.tensors()))
    bytes_into_paired_norms = 8 * (4 * 36 + 6 * 16)
    assert folded.saved <= plain.saved - bytes_into_paired_norms


def test_weights_for_the_way_back_are_no_memory_of_a_point():
    chain = wake(Chain(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)))
    model = nn.Sequential(*chain, nn.Flatten())
    x = torch.randn(1, 2, 5, 5).double()
    with borrow(model):
        task = Evaluator(Logits(model), x, torch.tensor([0]), model(x))
        found = Fold(plan(model, lambda: model(x)), faithful=True)
        with found.applied():
            told = replace(task, folded=found).footprint()
            weight = found.forwards[model[3]].args[1]
            assert weight.numel() * 8 > told.saved


def test_layers_that_someone_else_reads_or_uses_twice_are_left_alone():
    model, x = build(), images()
    handle = model[0].register_forward_hook(lambda *_: None)
    what = plan(model, lambda: model(x))
    assert what.pairs == ((model[4], model[5]),)
    assert model[1] in what.norms
    handle.remove()
    model[5].register_forward_pre_hook(lambda *_: None)
    what = plan(model, lambda: model(x))  # the remembered plan no longer holds
    assert what.pairs == ((model[0], model[1]),)
    assert model[5] not in what.norms

    shared = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)).double().eval()
    what = plan(shared, lambda: shared(shared(x)))
    assert what.pairs == ()
    assert what.norms == (shared[1],)


def test_norms_without_fixed_statistics_are_left_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))
    assert not plan(model, lambda: model(images().float()))
    assert not plan(None, lambda: None)


class Branching(nn.Module):
    """A convolution that feeds more than the norm after it: folding would be wrong."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x):
        y = self.conv(x)
        return self.head((self.norm(y) * y.tanh()).flatten(1))


class Skipping(Branching):
    """A shortcut around the norm that is silent where the convolution gives nothing."""

    def forward(self, x):
        y = self.conv(x)
        return self.head((self.norm(y).relu() + y).flatten(1))


class Overwriting(Branching):
    """Writes into what the convolution gave before the norm reads it."""

    def forward(self, x):
        return self.head(self.norm(self.conv(x).relu_()).flatten(1))


class Shrink(torch.autograd.Function):
    """An operation that PyTorch's own overrides do not see."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad):
        return grad / 2


class Customised(Branching):
    """A shortcut around the norm by a function of its own."""

    def forward(self, x):
        y = self.conv(x)
        return self.head((self.norm(y) + Shrink.apply(y)).flatten(1))


@pytest.mark.parametrize("make", [Branching, Skipping, Overwriting, Customised])
def test_a_convolution_that_others_read_is_left_alone(make):
    model, x = wake(make()), images()
    x[0] = 0
    what = plan(model, lambda: model(x))
    assert what.pairs == ()
    assert what.norms == (model.norm,)
    maps = compute_maps(model, x, 1, "integrated_gradients").maps["integrated_gradients"]
    assert torch.allclose(maps, captum.IntegratedGradients(model).attribute(x, target=1), atol=1e-7)


def test_a_plan_does_not_outlive_its_layers():
    model, x = build(), images()
    first = plan(model, lambda: model(x))
    model[4] = nn.Conv2d(4, 6, 3).double()
    again = plan(model, lambda: model(x))
    assert (model[4], model[5]) in again.pairs
    assert again.pairs != first.pairs


def test_a_wrong_fold_is_noticed_by_the_answer(monkeypatch):
    model, x = build(), images()
    whole = fold._merge
    monkeypatch.setattr(fold, "_merge", lambda *layers: [1.1 * v for v in whole(*layers)])
    with torch.no_grad():
        assert not fold.fold_safely(model, lambda: model(x))
    assert model not in fold._PLANS


def test_folding_is_used_and_changes_no_map():
    seen = []

    class Spy(nn.ReLU):
        def forward(self, x):
            seen.append("forward" in model[1].__dict__)
            return super().forward(x)

    model, x = build(), images()
    model[2] = Spy()
    maps = compute_maps(model, x, 1, "saliency,integrated_gradients,grad_cam,occlusion").maps
    assert any(seen)
    assert not all(seen)
    expected = captum.IntegratedGradients(model).attribute(x, target=1)
    assert torch.allclose(maps["integrated_gradients"], expected, atol=1e-7)
    cam = captum.LayerGradCam(model, model[4]).attribute(x, target=1, relu_attributions=True)
    cam = captum.LayerAttribution.interpolate(cam, (8, 8), "bilinear")
    assert torch.allclose(maps["grad_cam"], cam)
