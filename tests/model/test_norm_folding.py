"""Norms are folded where it is proved that this leaves the model what it is, and only there."""

import captum.attr as captum
import pytest
import torch
from torch import nn
from torch.nn import functional

from sea_nn.members import compute as explainers
from sea_nn.members import run
from sea_nn.members.compute import compute_maps
from sea_nn.metrics import score_maps
from sea_nn.model import forms
from sea_nn.model import norm_folding as folding
from sea_nn.model.borrowing import borrow
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.norm_folding import Fold
from sea_nn.model.outputs import TensorModel
from sea_nn.model.sameness import same_gradients, same_outputs
from sea_nn.model.tracing import Layers, is_linear, trace


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
    layers = trace(model)
    assert layers == Layers((("0", "1"), ("4", "5")), ("3", "9"), "0")
    found = Fold(model, layers, faithful=faithful).module(x)
    assert torch.allclose(found, expected)
    assert torch.allclose(torch.autograd.grad(found[:, 1].sum(), x)[0], slope)
    assert torch.equal(model(x), expected)


def chain(layer: nn.Module, norm: nn.Module) -> nn.Sequential:
    """A layer that may run apart, then the pair in question."""
    norms = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
    kind = next(k for k in norms if isinstance(layer, k))
    return wake(
        nn.Sequential(
            kind(2, 3, 1), norms[kind](3), nn.Tanh(), layer, norm, nn.Tanh(), nn.Flatten()
        )
    ).requires_grad_(False)


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
    model = chain(layer, norm)
    x = torch.randn(3, 2, *size).double().requires_grad_(True)
    expected = model(x)
    grad = torch.randn_like(expected)
    (slope,) = torch.autograd.grad(expected, x, grad)
    found = Fold(model, trace(model), faithful=True)
    answer = found.module(x)
    assert torch.allclose(answer, expected, rtol=1e-12)
    assert torch.allclose(torch.autograd.grad(answer, x, grad)[0], slope, rtol=1e-10)
    alone = found.module[2](found.module[0](x))  # layers take a single input without its axis too
    assert torch.allclose(found.module[3](alone[0]), found.module[3](alone)[0])
    # Changed weights show which ones each way takes.
    found.module[3].forward.args[1].zero_()  # the ones for the way back
    answer = found.module(x)
    assert torch.allclose(answer, expected, rtol=1e-12)
    assert not torch.autograd.grad(answer, x, grad)[0].any()


class Padding(nn.Conv2d):
    """Pads by itself, as ports from other frameworks do."""

    def forward(self, x):
        return super().forward(functional.pad(x, (0, 1, 0, 1)))


class Static(nn.Conv2d):
    """As EfficientNet-Lite's: a layer of its own pads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.pad = nn.ZeroPad2d((0, 1, 0, 1))

    def forward(self, x):
        x = self.pad(x)
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding)


class Binary(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(x, self.weight.sign(), self.bias, self.stride, self.padding)


class Standardised(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, weight / weight.std(), self.bias)


class Rectified(nn.Conv2d):
    def forward(self, x):
        return super().forward(x).relu()


class Residual(nn.Conv2d):
    def forward(self, x):
        return super().forward(functional.pad(x, (1, 1, 1, 1))) + x.sum(1, keepdim=True)


class Squared(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * super().forward(x)


class Chosen(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) if x.mean() > 0 else super().forward(-x)


@pytest.mark.parametrize("kind", [nn.Conv2d, Padding, Static])
def test_layers_that_pad_and_convolve_are_folded(kind):
    layer = kind(3, 4, 3)
    assert is_linear(layer)
    model = chain(layer, nn.BatchNorm2d(4))
    assert trace(model).pairs == (("0", "1"), ("3", "4"))
    assert "forward" not in layer.__dict__
    x = torch.randn(2, 2, 7, 7).double()
    for faithful in (False, True):
        assert torch.allclose(Fold(model, trace(model), faithful=faithful).module(x), model(x))


@pytest.mark.parametrize("kind", [Binary, Standardised, Rectified, Residual, Squared, Chosen])
def test_layers_that_do_anything_else_are_not(kind):
    layer = kind(3, 4, 3)
    assert not is_linear(layer)
    assert trace(chain(layer, nn.BatchNorm2d(4))).pairs in ((("0", "1"),), ())


@pytest.mark.filterwarnings("ignore::sea_nn.errors.AssumptionWarning")
@pytest.mark.parametrize("kind", [Binary, Standardised, Rectified, Residual, Squared])
@pytest.mark.parametrize(
    "end", [lambda z: z, lambda z: 300 + z[:, :1], lambda z: (60 * z).softmax(1)]
)
def test_maps_through_odd_layers_are_captums(kind, end):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(6)
            self.conv, self.norm, self.head = kind(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2)

        def forward(self, x):
            return end(self.head(functional.silu(self.norm(self.conv(x))).mean((2, 3))))

    model, x = wake(Model()), images()
    with torch.no_grad():
        target = model(x).argmax(1)
    maps = compute_maps(model, x, target, "integrated_gradients").maps["integrated_gradients"]
    expected = captum.IntegratedGradients(model).attribute(x, target=target)
    assert torch.allclose(maps, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


class Course(nn.Module):
    """A convolution, two norms and a head, used as `course` says."""

    def __init__(self, course) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.other = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.head, self.course, self.passes = nn.Linear(4 * 36, 3), course, 0

    def forward(self, x):
        return self.course(self, x)


class Shrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad):
        return grad / 2


def read_twice(m, x):
    y = m.conv(x)
    return m.head((m.norm(y) * y.tanh()).flatten(1))


def overwrite(m, x):
    return m.head(m.norm(m.conv(x).relu_()).flatten(1))


def read_behind_autograds_back(m, x):
    y = m.conv(x)
    return m.head((m.norm(y) * (1 + y.data)).flatten(1))


def pass_by_an_own_function(m, x):
    y = m.conv(x)
    return m.head((m.norm(y) + Shrink.apply(y)).flatten(1))


def share_the_weight(m, x):
    y = m.norm(m.conv(x))
    back = functional.conv_transpose2d(y, m.conv.weight)
    return m.head(y.flatten(1)) + back.mean((2, 3))


def norm_twice(m, x):  # once by its forward
    return m.head(m.norm.forward(m.norm(m.conv(x)).tanh()).flatten(1))


READ_ELSEWHERE = [
    *(read_twice, overwrite, read_behind_autograds_back),
    *(pass_by_an_own_function, share_the_weight, norm_twice),
]


@pytest.mark.parametrize("course", READ_ELSEWHERE)
def test_a_convolution_that_others_read_is_left_alone(course):
    model, x = wake(Course(course)), images()
    assert trace(model).pairs == ()
    maps = compute_maps(model, x, 1, "integrated_gradients").maps["integrated_gradients"]
    assert torch.allclose(maps, captum.IntegratedGradients(model).attribute(x, target=1), atol=1e-7)


def choose_norm(m, x):
    out = x.new_zeros(len(x), 3)
    for norm, rows in ((m.norm, x[:, 0, 0, 0] > 0), (m.other, x[:, 0, 0, 0] <= 0)):
        if bool(rows.any()):
            out[rows] = m.head(norm(m.conv(x[rows])).tanh().flatten(1))
    return out


def leave_early(m, x):
    outs = [m.conv(one) for one in x.split(1)]
    outs = [m.norm(y) if float(y.detach().mean()) > 0 else y for y in outs]
    return m.head(torch.cat(outs).tanh().flatten(1))


def count_passes(m, x):
    m.passes += 1
    return m.head(m.norm(m.conv(x)).tanh().flatten(1))


@pytest.mark.parametrize("course", [choose_norm, leave_early, count_passes])
def test_models_whose_course_depends_on_values_run_as_they_are(course):
    model, x = wake(Course(course)), images().repeat(2, 1, 1, 1)
    x[1::2, 0, 0, 0] = -x[::2, 0, 0, 0].abs() - 0.1
    x[::2, 0, 0, 0] = x[::2, 0, 0, 0].abs() + 0.1
    assert trace(model) == Layers()
    maps = compute_maps(model, x, 1, "integrated_gradients").maps["integrated_gradients"]
    alone = [captum.IntegratedGradients(model).attribute(one, target=1) for one in x.split(1)]
    assert torch.allclose(maps, torch.cat(alone), atol=1e-7)
    heat = torch.rand(4, 8, 8)
    curve = score_maps(model, x, 1, {"a": heat}, ["deletion:mean,steps=64"], random=False).values
    own = lambda v: model(v)  # noqa: E731  a plain function is never folded
    same = score_maps(own, x, 1, {"a": heat}, ["deletion:mean,steps=64"], random=False).values
    assert all(torch.allclose(curve[k], same[k]) for k in curve)


def test_a_plain_course_is_folded():
    model = Course(lambda m, x: m.head(m.norm(m.conv(x)).flatten(1)))
    assert trace(wake(model)).pairs == (("conv", "norm"),)


def test_models_with_hooks_patched_layers_or_no_fixed_statistics_are_left_alone():
    model = build()
    handle = model[2].register_forward_hook(lambda *_: None)
    assert trace(model) == Layers()
    handle.remove()
    model[4].forward = lambda x: nn.Conv2d.forward(model[4], x) * 2
    assert ("4", "5") not in trace(model).pairs
    free = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))
    assert trace(free).pairs == trace(free).norms == ()


def test_a_fold_that_is_not_the_model_for_every_input_is_not_used(monkeypatch):
    model, x = build(), images()
    merge = folding._merge
    monkeypatch.setattr(folding, "_merge", lambda *layers: [1.1 * v for v in merge(*layers)])
    seen = []
    whole = run.refuse_layers
    monkeypatch.setattr(run, "refuse_layers", lambda twin: seen.append(1) or whole(twin))
    for _ in range(2):
        maps = compute_maps(model, x, 1, "integrated_gradients").maps["integrated_gradients"]
        expected = captum.IntegratedGradients(model).attribute(x, target=1)
        assert torch.allclose(maps, expected, atol=1e-7)
    assert seen == [1]  # and not tried again


def test_an_offset_or_a_saturated_output_hides_nothing():
    a = torch.tensor([[300.0], [301.0]])
    assert bool(same_outputs(a, a))
    assert not bool(same_outputs(a + torch.tensor([[0.0], [0.1]]), a))
    one = torch.tensor([[300.0, 301.0]])
    assert not bool(same_outputs(one + torch.tensor([[0.1, 0.0]]), one))
    tiny = torch.full((2, 3), 1e-20)
    assert bool(same_gradients(tiny, tiny))
    assert not bool(same_gradients(torch.stack([tiny[0], 2 * tiny[1]]), tiny))
    assert not bool(same_gradients(tiny, torch.zeros(2, 3)))
    assert bool(same_gradients(torch.zeros(2, 3), torch.zeros(2, 3)))


@pytest.mark.parametrize("faithful", [False, True])
def test_norms_of_another_type_than_their_convolution_are_left_alone(faithful):
    model = build().float()
    model[4].to(torch.bfloat16)
    layers = Layers((("0", "1"), ("4", "5")))
    found = Fold(model, layers, faithful=faithful).module
    assert found[4].weight is model[4].weight
    assert "forward" not in found[4].__dict__


@pytest.mark.parametrize("rounds", [False, True])
def test_own_weights_go_forward_where_a_device_rounds(monkeypatch, rounds):
    monkeypatch.setattr(forms, "may_round", lambda device: rounds)
    model, x = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), torch.randn(1, 2, 7, 7).double()
    with borrow(model, x) as twin:
        evaluator = Evaluator(TensorModel(twin), x, torch.tensor([0]), twin(x))
        assert ("forward" in forms.fold(evaluator, gradients=True).module[3].__dict__) is rounds
        assert "forward" not in forms.fold(evaluator, gradients=False).module[3].__dict__


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_maps_are_the_models_on_a_device_that_rounds(monkeypatch, autocast):
    monkeypatch.setattr(forms, "may_round", lambda device: True)
    monkeypatch.setattr(explainers, "check_autocast", lambda wanted, x: wanted)
    model = chain(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).float()
    x = torch.randn(2, 2, 7, 7, generator=torch.Generator().manual_seed(0))
    maps = compute_maps(model, x, 1, "integrated_gradients", autocast=autocast).maps
    same = compute_maps(lambda v: model(v), x, 1, "integrated_gradients", autocast=autocast).maps
    close = {None: 1e-5, torch.bfloat16: 0.05}[autocast]
    for found, expected in zip(maps.values(), same.values(), strict=True):
        assert (found - expected).abs().max() <= close * expected.abs().max()


@pytest.mark.parametrize("faithful", [False, True])
def test_folded_weights_follow_the_model_in_the_same_memory(faithful):
    model, x = build(), images()
    model[4] = nn.Conv2d(4, 6, 3).double()
    found = Fold(model, trace(model), faithful=faithful)
    places = [value.data_ptr() for value in found.tensors()]
    own = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    assert not own & set(places)
    model[0].weight.data.mul_(2)
    model[4].weight.data.mul_(2)
    model[5].running_var.mul_(3)
    model[9].running_mean.add_(1)
    expected = model(x)
    assert not torch.allclose(found.module(x), expected)
    found.refresh()
    assert torch.allclose(found.module(x), expected)
    assert places == [value.data_ptr() for value in found.tensors()]


def test_folding_is_used_and_changes_no_map():
    seen = []

    class Spy(nn.ReLU):
        def forward(self, x):
            seen.append(x.grad_fn is not None and "Convolution" in type(x.grad_fn).__name__)
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
