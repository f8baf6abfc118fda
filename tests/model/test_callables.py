"""Modules that a plain function runs come back as they were."""

import functools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sea_nn import SEA, SEAConfig
from sea_nn.members.run import compute_maps
from sea_nn.model.callables import find_modules
from sea_nn.model.opening import borrow

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
MEMBERS = ("saliency", "integrated_gradients")


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))


MODEL = build()


def call_global(x):
    return MODEL(x)


class Held:
    def __init__(self, model):
        self.parts = {"model": model}

    def __call__(self, x):
        return self.parts["model"](x)

    def predict(self, x):
        return self(x)


def default(model):
    def call(x, model=model):
        return model(x)

    return call


def nested(model):
    inner = lambda x: model(x)  # noqa: E731
    return lambda x: inner(x)


WAYS = {
    "closure": lambda model: lambda x: model(x),
    "closure of a closure": nested,
    "bound method": lambda model: model.forward,
    "partial": lambda model: functools.partial(lambda m, x: m(x), model),
    "default": default,
    "object that is called": Held,
    "method of an object": lambda model: Held(model).predict,
    "attribute of an object": lambda model: (lambda box: lambda x: box.net(x))(
        SimpleNamespace(net=model)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_function_around_a_model_in_training_gives_the_models_maps_and_changes_nothing(way):
    model = build()
    model(X).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters()]
    expected = compute_maps(model, X, 1, MEMBERS).maps
    found = compute_maps(WAYS[way](model), X, 1, MEMBERS).maps
    for name in MEMBERS:
        assert torch.allclose(found[name], expected[name], atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(map(torch.equal, gradients, [p.grad for p in model.parameters()]))
    assert all(m.training for m in model.modules())


def test_a_global_model_is_found():
    before = MODEL[1].running_mean.clone()
    SEA(call_global, MEMBERS, SEAConfig(epochs=2)).explain(X, 0)
    assert torch.equal(MODEL[1].running_mean, before)
    assert MODEL.training
    assert find_modules(call_global) == [MODEL]


def test_buffers_that_a_function_writes_in_eval_mode_come_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.register_buffer("last", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            self.last = x.sum().detach().reshape(1)
            return x

    model = Counting().eval()
    count, last = model.count, model.last
    with borrow(lambda x: model(x)) as lent:
        lent(X)
        assert model.count == 1
    assert model.count is count
    assert model.last is last
    assert count == 0


def test_what_holds_no_module_is_not_walked_for_ever():
    loop = []
    loop.append(loop)
    wide = [[[[0] * 300 for _ in range(300)]]]
    assert find_modules(lambda x: (loop, wide)) == []
    assert find_modules(torch.sin) == []
