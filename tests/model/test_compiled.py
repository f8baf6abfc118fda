"""Compiled gradient passes give the model's own maps, or are not used."""

import threading
from functools import partial

import pytest
import torch
from torch import nn

from sea_nn import SEA
from sea_nn.errors import KindError
from sea_nn.members.compute import compute_maps
from sea_nn.model import compiled
from tests.helpers.recorder import build, compare, images

METHODS = ("saliency", "integrated_gradients", ("smooth_ig", {"n_samples": 2, "n_steps": 10}))


@pytest.fixture(autouse=True)
def forget():
    compiled._TRUSTED.clear()
    compiled._REFUSED.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def traced(monkeypatch):
    """PyTorch's tracer and differentiation of graphs, without a compiler at the end."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", partial(whole, backend="aot_eager"))


def explain(model, x, **options):
    return compute_maps(model, x, 1, METHODS, **options).maps


def test_compiled_passes_give_the_same_maps(traced):
    model, x = build(), images()
    expected = explain(model, x)
    assert compare(explain(model, x, compile=True), expected)
    assert compiled._TRUSTED
    # Other inputs, another batch size and other weights, by code that is already trusted.
    for y in (images() + 1, images(3)):
        assert compare(explain(model, y, compile=True), explain(model, y))
    with torch.no_grad():
        model[0].weight.mul_(1.5)
        model[1].running_mean.add_(1)
    changed = explain(model, x)
    assert not compare(changed, expected)
    assert compare(explain(model, x, compile=True), changed)


def test_sea_passes_it_on(traced):
    model, x = build(), images()
    expected = SEA(model, METHODS).attribute(x, target=1)
    found = SEA(model, METHODS, compile=True).attribute(x, target=1)
    assert compiled._TRUSTED
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_threads_compile_one_after_another(traced):
    model, inputs = build(), [images() + k for k in range(3)]
    expected = [explain(model, x) for x in inputs]
    found = {}

    def work(k):
        found[k] = explain(model, inputs[k], compile=True)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(compare(found[k], expected[k]) for k in range(3))


def test_code_compiled_elsewhere_in_the_program_does_no_harm(traced, monkeypatch):
    model, x = build(), images()
    expected = explain(model, x)
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)  # as in another thread
    assert compare(explain(model, x, compile=True), expected)


def test_a_model_that_does_not_compile_runs_as_it_is(monkeypatch):
    def refuse(module):
        def run(*args):
            raise RuntimeError("no compiler on this machine\nand a long story")

        return run

    monkeypatch.setattr(torch, "compile", refuse)
    model, x = build(), images()
    with pytest.warns(UserWarning, match=r"as it is.*RuntimeError: no compiler on this machine\)"):
        found = explain(model, x, compile=True)
    assert compare(found, explain(model, x))


def test_compiled_code_that_says_something_else_is_not_used(monkeypatch):
    class Wrong(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x.flip(3))

    monkeypatch.setattr(torch, "compile", Wrong)
    model, x = build(), images()
    with pytest.warns(UserWarning, match="gradients differ"):
        found = explain(model, x, compile=True)
    assert compare(found, explain(model, x))
    assert not compiled._TRUSTED


def test_a_function_cannot_be_compiled():
    with pytest.raises(KindError, match=r"torch\.nn\.Module"):
        explain(lambda x: x.flatten(1)[:, :3], images(), compile=True)
