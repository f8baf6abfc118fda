"""A model's answers become a tensor [N, K]; modules that a function runs come back."""

import functools
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sea_nn import SEA, SEAConfig
from sea_nn.errors import InputError, KindError
from sea_nn.members.run import compute_maps
from sea_nn.model.callables import find_modules
from sea_nn.model.opening import borrow, open_model
from sea_nn.model.outputs import TensorModel, predict, resolve_target

SCORES = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 4.0]])
Pair = namedtuple("Pair", "scores hidden")


@pytest.mark.parametrize(
    "output",
    [
        SCORES,
        {"logits": SCORES, "hidden": torch.zeros(2)},
        OrderedDict(logits=SCORES),
        SimpleNamespace(logits=SCORES, loss=None),
        (SCORES, torch.zeros(1)),
        Pair(SCORES, None),
        [SCORES],
    ],
    ids=["tensor", "dict", "ordered dict", "object", "tuple", "named tuple", "list of one"],
)
def test_every_common_output_becomes_logits(output):
    assert torch.equal(TensorModel(lambda x: output)(torch.zeros(2, 4)), SCORES)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_score_an_input_becomes_one_column(shape):
    assert TensorModel(lambda x: torch.ones(shape))(torch.zeros(2, 4)).shape == (2, 1)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ([SCORES, SCORES], KindError, "returned list"),
        ({"scores": SCORES}, KindError, "returned dict.*logits"),
        (None, KindError, "returned NoneType"),
        ((None, SCORES), KindError, "returned tuple"),
        (torch.zeros(3), InputError, r"shape \[3\] for 2 inputs"),
        (torch.zeros(2, 3, 7, 7), InputError, r"shape \[2, 3, 7, 7\]"),
        (torch.tensor(1.0), InputError, r"shape \[\]"),
        (torch.ones(2, 3, dtype=torch.long), KindError, "int64"),
    ],
)
def test_other_outputs_are_refused_by_name(output, error, message):
    with pytest.raises(error, match=message):
        TensorModel(lambda x: output)(torch.zeros(2, 4))
    with pytest.raises(InputError, match="NaN for 2 of 2 inputs"):
        predict(lambda x: x / 0 * 0, torch.ones(2, 3))


def test_outputs_in_pieces_equal_one_pass_and_extra_arguments_follow_the_inputs():
    model, x, shift = nn.Linear(4, 3), torch.randn(7, 4), torch.arange(7.0).unsqueeze(1)

    def shifted(inputs, offset, factor):
        return model(inputs.sub_(1)) + offset * factor  # works in place on what it is given

    kept = x.clone()
    for limit in (None, 3):
        with open_model(shifted, x, args=(shift, 2.0), limit=limit) as probe:
            assert torch.allclose(probe.whole, model(kept - 1) + 2 * shift)
            assert not probe.whole.requires_grad
    assert torch.equal(x, kept)
    assert torch.allclose(predict(model, x, batch_size=3), model(x))


@pytest.mark.parametrize("target", [2, [2, 2], torch.tensor(2), torch.tensor([2, 2])])
def test_targets_of_every_kind(target):
    assert resolve_target(SCORES, target).tolist() == [2, 2]


def test_no_target_means_the_predicted_class():
    assert resolve_target(SCORES, None).tolist() == [1, 2]
    assert resolve_target(torch.zeros(2, 1), None).tolist() == [0, 0]
    with pytest.raises(InputError, match="1 output, so valid targets are 0 alone"):
        resolve_target(torch.zeros(2, 1), 1)


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (3, InputError, "target 3 is out of range.*3 outputs.*0 to 2"),
        ([0, -1], InputError, "target -1 is out of range"),
        ([0, 1, 2], InputError, r"each of the 2 inputs; got shape \(3,\)"),
        (1.0, KindError, "class number"),
        (True, KindError, "class number"),
        ("cat", KindError, "class number"),
        (torch.tensor([0.5, 1.0]), KindError, "float32"),
        (object(), KindError, "object"),
    ],
)
def test_wrong_targets_are_explained(target, error, message):
    with pytest.raises(error, match=message):
        resolve_target(SCORES, target)


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
