"""A linear first layer runs back once a sum, not once a point, and no map changes.

What is kept with a model, its first layer among it, is kept on a GPU alone; here the device is said
to be one.
"""

import pytest
import torch
from torch import Tensor, nn

from sea_nn.members import gradients
from sea_nn.members.compute import compute_maps
from sea_nn.model import gradient_sums
from sea_nn.model.cuda_graphs import split_first
from sea_nn.model.first_layer import choose_layout
from sea_nn.model.gradient_sums import add_up
from sea_nn.model.tracing import trace
from tests.helpers.recorder import build, find_kept, images, make_evaluator

METHODS = (
    "integrated_gradients",
    ("smooth_ig", {"n_samples": 3, "n_steps": 20}),
    ("smoothgrad", {"n_samples": 15}),
)


@pytest.fixture(autouse=True)
def capable(recorder, monkeypatch):
    monkeypatch.setattr(gradient_sums, "APART_FROM", 1)


def follow(model: nn.Module, x: Tensor) -> Tensor:
    return model.last(torch.relu(model.first(x)).flatten(1))


class Rest(nn.Module):
    """A first layer, whose output has the input's shape, and what follows it."""

    def __init__(self, course=follow, first: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = first or nn.Conv2d(3, 3, 3, padding=1)
        self.last = nn.Linear(self.first.out_channels * 64, 3)
        self.course = course

    def forward(self, x: Tensor) -> Tensor:
        return self.course(self, x)


class Absolute(nn.Conv2d):
    """A convolution by name only."""

    def forward(self, x):
        return super().forward(x).abs()


class Padding(nn.Conv2d):
    """Pads by itself, as ports from other frameworks do."""

    def forward(self, x):
        return super().forward(nn.functional.pad(x, (1, 2, 1, 2)))


APART = {
    "a sequence": build,
    "a module": Rest,
    "pads itself": lambda: Rest(first=Padding(3, 3, 4)),
    "circular": lambda: Rest(first=nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular")),
    "counts its inputs": lambda: Rest(
        lambda m, x: follow(m, x).view(x.shape[0], x.size(0) // x.size(0), 3)[:, 0]
    ),
}
WHOLE = {
    "adds the input": lambda m, x: m.last((torch.relu(m.first(x)) + 0.5 * x).flatten(1)),
    "masks by the input": lambda m, x: m.last((torch.relu(m.first(x)) * (x > 0)).flatten(1)),
    "changes the input": lambda m, x: follow(m, (x - 0.3) / 0.2),
    "uses the layer twice": lambda m, x: follow(m, torch.relu(m.first(x))),
    "writes into the input": lambda m, x: follow(m, x.clamp_(0, 1)),
    "looks at the input again": lambda m, x: (
        follow(m, x) * (x.flatten(1).amax(1, keepdim=True) < 100)
    ),
    "reads the input's size": lambda m, x: follow(m, x) * x.shape[1],
    "has an odd layer": follow,
}


def explain(model, x: Tensor, **options) -> dict[str, Tensor]:
    return compute_maps(model, x, 1, METHODS, **options).maps


@pytest.mark.parametrize("name", APART)
def test_the_first_convolution_is_found(name):
    model, x = APART[name]().eval(), images()
    name = trace(model).first
    assert name == next(n for n, m in model.named_modules() if isinstance(m, nn.Conv2d))
    first = split_first(make_evaluator(model, x), name)
    rows = first.push(x)
    with torch.no_grad():
        assert torch.allclose(first.rest(rows.clone()), model(x), atol=1e-6)
        assert not torch.equal(model.get_submodule(name)(x), x)  # the model itself keeps it


@pytest.mark.parametrize("name", WHOLE)
def test_other_layers_are_left_where_they_are(name):
    kind = Absolute if name == "has an odd layer" else nn.Conv2d
    size = 5 if name == "reads the input's size" else 3
    model, x = Rest(WHOLE[name], kind(3, size, 3, padding=1)).eval(), images()
    assert trace(model).first is None
    expected = explain(lambda v: model(v), x)
    for _ in range(3):
        found = explain(model, x)
        assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)


def test_a_layer_that_someone_listens_to_is_left_alone():
    model = build()
    handle = model[0].register_forward_hook(lambda *_: None)
    assert trace(model).first is None
    handle.remove()
    assert trace(model).first == "0"


@pytest.mark.parametrize("room", [1 << 30, 1])
@pytest.mark.parametrize("baselines", [None, 0.4, torch.linspace(0, 1, 64).view(1, 1, 8, 8)])
def test_maps_are_those_of_whole_passes(monkeypatch, room, baselines):
    for module, name in ((gradient_sums, "SUMS"), (gradients, "COPIES")):
        monkeypatch.setattr(module, name, room)  # 1: every input is a block of its own
    model, x = build().double(), images(3).double()
    expected = explain(lambda v: model(v), x, baselines=baselines)  # a plain function has no layers
    for turn in range(3):
        found = explain(model, x, baselines=baselines, internal_batch_size=37)
        (layer,) = find_kept(model).layers.values()
        assert layer is not None
        for name in expected:
            assert torch.allclose(found[name], expected[name], rtol=1e-9, atol=1e-12), (name, turn)


def watch() -> tuple[nn.Module, list[tuple[int, bool]]]:
    """The network, and of each pass of its first layer how many inputs, and if for a gradient."""
    seen: list[tuple[int, bool]] = []

    class Counting(nn.Conv2d):
        def forward(self, x):
            if isinstance(x, Tensor):
                seen.append((len(x), torch.is_grad_enabled()))
            return super().forward(x)

    model = build()
    model[0] = Counting(3, 4, 3, padding=1)
    return model, seen


def test_the_layer_runs_back_once_a_line_and_not_once_a_point():
    model, seen = watch()
    for _ in range(2):  # to know the memory that a pass takes, and to record it
        explain(model, images())
    seen.clear()
    explain(model, images())
    # 2 inputs, 3 lines for each of them, 2 inputs.
    assert [size for size, back in seen if back] == [2, 6, 2]


def test_a_member_whose_points_are_not_the_inputs_finds_the_layer_too():
    model, x = build(), images()
    compute_maps(model, x, 1, (("smooth_ig", {"n_samples": 3, "stdev": 50.0}),))
    assert None not in find_kept(model).layers.values()


class Coarse(nn.Conv2d):
    """Rounds what it reads, as cuDNN does or does not: here by the layout."""

    def forward(self, x):
        last = x.is_contiguous(memory_format=torch.channels_last)
        return super().forward((x * 1024).round() / 1024 if last else x)


@pytest.mark.parametrize(
    ("layer", "layout"),
    [(nn.Conv2d, torch.channels_last), (Coarse, torch.contiguous_format)],
)
def test_a_layer_runs_in_the_layout_in_which_it_rounds_as_usual(layer, layout):
    torch.manual_seed(0)
    x = torch.rand(1, 3, 16, 16).to(memory_format=torch.channels_last)
    assert choose_layout(layer(3, 4, 3), x) == layout
    assert choose_layout(layer(3, 4, 3), x.contiguous()) == torch.contiguous_format


@pytest.mark.parametrize("room", [1 << 30, 1])
def test_evaluations_are_counted_once(monkeypatch, room):
    for module, name in ((gradient_sums, "SUMS"), (gradients, "COPIES")):
        monkeypatch.setattr(module, name, room)
    told: list[tuple[int, int]] = []
    found = compute_maps(
        build(), images(3), 1, METHODS, progress=lambda _, done, total: told.append((done, total))
    )
    assert list(found.evaluations.values()) == [150, 180, 45]
    assert told == sorted(told)
    assert told[-1] == (375, 375)


def test_the_layer_never_gets_more_than_the_caller_allows():
    model, seen = watch()
    explain(model, images(9), internal_batch_size=4)
    seen.clear()
    explain(model, images(9), internal_batch_size=4)
    assert max(size for size, _ in seen) == 4


def test_a_caller_s_own_autocast_leaves_the_layer_where_it_is():
    model, x = build(), images()
    methods = (("integrated_gradients", {"n_steps": 31}),)
    explain(model, x)  # finds the layer, and keeps it
    with torch.autocast("cpu", torch.bfloat16):
        found = compute_maps(model, x, 1, methods).maps["integrated_gradients"]
        expected = compute_maps(lambda v: model(v), x, 1, methods).maps["integrated_gradients"]
    assert (found - expected).abs().max() <= 0.05 * expected.abs().max()


def test_noise_of_every_point_is_not_added_up_before_the_layer():
    model, x = build(), images()
    methods = (("smooth_ig", {"n_samples": 2, "n_steps": 20, "per_point": True}),)
    expected = compute_maps(lambda v: model(v), x, 1, methods).maps["smooth_ig"]
    for _ in range(2):
        found = compute_maps(model, x, 1, methods).maps["smooth_ig"]
        assert torch.allclose(found, expected, atol=1e-6)


def test_passes_with_and_without_the_layer_are_told_apart_where_shapes_are_alike():
    model, x = Rest().eval(), images()  # the layer's output has the input's shape
    apart = {"n_samples": 1, "n_steps": 50, "per_point": True}  # as many points
    methods = ("integrated_gradients", ("smooth_ig", apart))
    expected = compute_maps(lambda v: model(v), x, 1, methods).maps
    for _ in range(3):
        found = compute_maps(model, x, 1, methods).maps
        assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)
    sizes = [kind[0] for kind in find_kept(model).passes]
    assert sizes.count(100) == 2


def test_a_layer_whose_output_is_written_over_gives_a_copy():
    writing = Rest(lambda m, x: m.last(torch.relu_(m.first(x)).flatten(1)))
    model, x = writing.eval(), images()
    assert split_first(make_evaluator(model, x), "first").overwrites
    assert not split_first(make_evaluator(Rest().eval(), x), "first").overwrites
    expected = explain(lambda v: model(v), x)
    for _ in range(3):
        found = explain(model, x)
        assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)
    assert None not in find_kept(model).layers.values()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_are_added_up_by_their_weights_in_any_layout(layout):
    torch.manual_seed(0)
    grads = torch.randn(5, 3, 4, 6, dtype=torch.float64).to(memory_format=layout)
    weights = torch.rand(5, dtype=torch.float64)
    expected = sum(w * g for w, g in zip(weights, grads, strict=True))
    assert torch.allclose(add_up(grads, weights), expected, rtol=1e-12, atol=1e-12)
    # Rows of a batch, as a sweep cuts them, and inputs that are no images.
    assert torch.allclose(
        add_up(grads[1:4], weights[1:4]), torch.einsum("p,pchw->chw", weights[1:4], grads[1:4])
    )
    flat = grads.flatten(1)
    assert torch.allclose(add_up(flat, weights), weights @ flat)


def test_gradients_are_added_up_in_their_own_precision_whatever_the_caller_s():
    torch.manual_seed(0)
    grads, weights = torch.randn(50, 3, 4, 4), torch.rand(50)
    with torch.autocast("cpu", torch.bfloat16):
        found = add_up(grads, weights)
    assert found.dtype == torch.float32
    assert torch.allclose(found, torch.einsum("p,pchw->chw", weights, grads), atol=1e-5)
