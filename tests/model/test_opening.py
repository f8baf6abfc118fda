"""A model runs on a twin and is never changed, whatever happens meanwhile."""

import gc
import signal
import sys
from threading import Event, Thread

import captum.attr as captum
import pytest
import torch
from torch import nn

from sea_nn import SEA
from sea_nn.errors import InputError, KindError
from sea_nn.members.run import compute_maps
from sea_nn.model.opening import borrow, open_model


def build() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(6, 3)
    )
    model.train()
    model[1].eval()  # a frozen normalisation inside a model in training
    model[0].bias.requires_grad_(False)
    return model


def snapshot(model: nn.Module) -> list[object]:
    """All that a model is: attributes by value, tensors by identity, version and content."""
    tensors = [*model.parameters(), *model.buffers()]
    state: list[object] = [(id(t), t._version, t.requires_grad, id(t.grad)) for t in tensors]
    state += [t.detach().clone().tolist() for t in tensors]
    state += [
        (name, dict(value) if isinstance(value, dict) else value)
        for m in model.modules()
        for name, value in m.__dict__.items()
        if name not in ("_parameters", "_buffers")
    ]
    return state


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
EVERYTHING = ("saliency", "integrated_gradients", "guided_backprop", "deeplift", "occlusion")


def test_a_twin_is_still_shares_the_weights_and_nothing_else():
    model = build()
    with borrow(model) as twin:
        assert twin is not model
        assert not any(m.training for m in twin.modules())
        assert not any(p.requires_grad for p in twin.parameters())
        assert twin[2].inplace
        for own, theirs in zip(twin.parameters(), model.parameters(), strict=True):
            assert own is not theirs
            assert own.data_ptr() == theirs.data_ptr()
        assert twin[1].running_mean.data_ptr() != model[1].running_mean.data_ptr()
        expected = build().eval()
        assert torch.equal(twin(X), expected(X))


def test_the_model_is_not_touched_not_even_for_a_moment():
    model, seen = build(), []
    model(X).sum().backward()
    before = snapshot(model)

    def look(label, done, total):
        seen.append(snapshot(model) == before)

    def careless(given, x, target):
        given.train()
        given.model[4].register_forward_hook(lambda m, i, o: o * 0)
        given.model[0].weight = nn.Parameter(torch.zeros(6, 4))
        given(x).sum().backward()
        return x

    compute_maps(model, X, 1, (*EVERYTHING, careless), progress=look)
    assert all(seen)
    assert snapshot(model) == before


def test_what_a_pass_writes_is_not_given_back_and_not_carried_over():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.steps, self.last = nn.Linear(4, 3), 0, None
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.steps, self.last = self.steps + 1, x.detach()
            self.calls += 1
            return self.line(x) * self.steps

    model = Stateful()
    first = compute_maps(model, X, 1, "saliency").maps["saliency"]
    again = compute_maps(model, X, 1, "saliency").maps["saliency"]
    assert torch.equal(first, again)
    assert (model.steps, model.last, float(model.calls)) == (0, None, 0)


class Uncopied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build()

    def forward(self, x):
        return self.inner(x)

    def __deepcopy__(self, memo):
        raise RuntimeError("not me")


def test_a_model_that_cannot_be_copied_comes_back_as_it_was():
    model = Uncopied()
    model(X).sum().backward()
    before = snapshot(model)
    found = compute_maps(model, X, 1, ("saliency", "integrated_gradients"))
    assert snapshot(model) == before
    assert set(found.maps) == {"saliency", "integrated_gradients"}
    left_out = compute_maps(model, X, 1, ("saliency", "deeplift"), on_error="skip")
    assert "cannot be copied" in left_out.failed["deeplift"]

    def careless(given, x, target):
        given.model.inner[4].register_forward_hook(lambda m, i, o: o * 0)
        given(x).sum().backward()
        given.train()
        return x

    compute_maps(model, X, 1, [careless])
    assert snapshot(model) == before


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripted_and_compiled_models_are_explained():
    model = build()
    expected = compute_maps(model, X, 1, "saliency").maps["saliency"]
    scripted = torch.jit.script(model)
    assert torch.allclose(compute_maps(scripted, X, 1, "saliency").maps["saliency"], expected)
    assert scripted.training
    compiled = torch.compile(model, backend="eager")
    maps = compute_maps(compiled, X, 1, "saliency,deeplift").maps
    assert torch.allclose(maps["saliency"], expected)
    assert compiled.training


def test_models_that_run_as_they_are_are_lent_to_one_thread_at_a_time():
    model, inside, leave, order = Uncopied(), Event(), Event(), []

    class Around(Uncopied):
        def __init__(self):
            nn.Module.__init__(self)
            self.inner = model.inner

    def hold():
        with borrow(model):
            inside.set()
            leave.wait(10)
            order.append("first")

    def wait():
        with borrow(Around()), borrow(Around()):  # the same thread may borrow again
            order.append("second")

    first, second = Thread(target=hold), Thread(target=wait)
    first.start()
    assert inside.wait(10)
    second.start()
    second.join(0.2)
    assert order == []
    leave.set()
    first.join(10)
    second.join(10)
    assert order == ["first", "second"]
    assert model.inner.training


def norms() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)),
        *(nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
    )
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_()
            m.running_var.uniform_(0.2, 3)
    return model.train()


def test_an_interrupt_anywhere_leaves_the_model_as_it_was():
    model, x = norms(), torch.rand(1, 3, 8, 8)
    before, hit = snapshot(model), 0
    methods = ("saliency", ("integrated_gradients", {"n_steps": 32}), "guided_backprop", "deeplift")

    def run(at):
        """Interrupt when the so manieth line of the package runs."""
        lines = 0

        def trace(frame, event, _):
            nonlocal lines
            if "sea_nn" not in frame.f_code.co_filename:
                return None
            lines += 1
            if lines == at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
            return trace

        sys.settrace(trace)
        try:
            compute_maps(model, x, 1, methods)
        finally:
            sys.settrace(None)

    for at in range(5, 4000, 37):
        try:
            run(at)
        except KeyboardInterrupt:
            hit += 1
        assert snapshot(model) == before
        assert torch.is_grad_enabled()
    assert hit > 50


def test_hooks_that_an_interrupt_leaves_behind_do_nothing(monkeypatch):
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh()), X.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(model(x)[:, 1].sum(), x)
    hooks = torch.autograd.graph.saved_tensors_hooks
    monkeypatch.setattr(hooks, "__exit__", lambda *_: None)
    monkeypatch.setattr(torch.utils.hooks.RemovableHandle, "remove", lambda self: None)
    try:
        with open_model(model, X):
            pass
        (found,) = torch.autograd.grad(model(x)[:, 1].sum(), x)
    finally:
        monkeypatch.undo()
        torch._C._autograd._pop_saved_tensors_default_hooks()
        nn.modules.module._global_forward_pre_hooks.clear()
    assert torch.equal(found, expected)


class Otherwise(nn.Module):
    """Registers its layers in another order than it runs them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 3)
        self.norm.running_mean.normal_()

    def forward(self, x):
        return self.last(self.norm(self.first(x).relu())).mean((2, 3))


@pytest.mark.parametrize(("make", "folds"), [(norms, True), (Otherwise, False)])
def test_norms_are_folded_where_an_answer_proves_that_this_is_the_model(make, folds):
    model, x = make(), torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    with open_model(model, x) as probe:
        said = probe.part(slice(1, 3)).ask_points(torch.arange(2), lambda part: x[1:][part] / 2)
        assert (probe.fast is not None) == folds
    torch.testing.assert_close(said, model.eval()(x[1:] / 2).detach())
    assert not any(isinstance(layer, nn.Identity) for layer in model.modules())


class Preactivated(nn.Module):
    """The activation also rectifies what the shortcut carries, as it writes in place."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True)
        self.conv, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head((self.conv(self.relu(x)) + x).mean((2, 3)))


def test_layers_that_write_in_place_run_as_they_are():
    model, x = Preactivated(), torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        logits = model(x)
    found = compute_maps(model, x, None, ("saliency", "integrated_gradients"))
    assert torch.allclose(found.outputs, logits, atol=1e-6)
    leaf = x.clone().requires_grad_(True)
    expected = captum.Saliency(model).attribute(leaf, target=logits.argmax(1), abs=False)
    assert torch.allclose(found.maps["saliency"], expected, atol=1e-6)
    for name in ("guided_backprop", "deconvolution", "deeplift"):
        failed = compute_maps(model, x, None, ("saliency", name), on_error="skip").failed
        assert "do not write in place" in failed[name]


def test_measuring_memory_leaves_no_tensor_behind():
    def count():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    acts = (nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.ELU)
    models = [
        nn.Sequential(nn.Conv2d(3, 4, 3), act(), nn.Flatten(), nn.Linear(144, 2), act())
        for act in acts
    ]
    before = count()
    for model in models:
        for _ in range(5):
            compute_maps(model, torch.rand(2, 3, 8, 8), 0, "integrated_gradients", output="value")
    twins = 2 * sum(len(list(model.parameters())) for model in models)
    assert count() <= before + twins


def test_a_model_that_overrides_train_is_not_disturbed():
    class Merging(nn.Linear):
        def train(self, mode=True):
            raise AssertionError("train() has side effects here")

    model = Merging(4, 2)
    with borrow(model) as twin:
        assert not twin.training
    assert model.training


def test_a_plain_function_passes_and_other_things_do_not():
    with borrow(torch.sin) as lent:
        assert lent is torch.sin
    with pytest.raises(KindError, match=r"torch\.nn\.Module or a callable, got int"):
        SEA(3)


def test_lazy_layers_must_have_seen_an_input():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(InputError, match="run it once"), borrow(model):
        pass
    model(torch.rand(1, 4))
    with borrow(model) as twin:
        assert not twin[1].weight.requires_grad


def test_weights_made_in_inference_mode_can_be_explained():
    with torch.inference_mode():
        model = nn.Linear(4, 2)
    maps = compute_maps(model, X, 1, "saliency").maps["saliency"]
    assert torch.allclose(maps, model.weight[1].expand_as(X))
    assert model.training
