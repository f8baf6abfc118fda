"""Borrowing a model gives it back as it was; its answers become logits; targets are checked."""

from collections import OrderedDict, namedtuple
from threading import Event, Thread
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sea_nn.errors import InputError, KindError
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.outputs import Logits, predict, resolve_target


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
    state: list[object] = [m.training for m in model.modules()]
    state += [getattr(m, "inplace", None) for m in model.modules()]
    state += [p.requires_grad for p in model.parameters()]
    state += [id(p.grad) for p in model.parameters()]
    state += [
        tuple(getattr(m, kind))
        for m in model.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    ]
    return state


def test_inside_the_block_the_model_is_still_and_out_of_place():
    model = build()
    with borrow(model) as lent:
        assert lent is model
        assert not any(m.training for m in model.modules())
        assert not any(p.requires_grad for p in model.parameters())
        assert all(p.grad is None for p in model.parameters())
        assert not model[2].inplace


@pytest.mark.parametrize("fail", [False, True])
def test_everything_comes_back_also_after_an_error(fail):
    model = build()
    model[4].register_forward_hook(lambda *_: None)
    model(torch.randn(5, 4)).sum().backward()
    before, gradient = snapshot(model), model[4].weight.grad.clone()
    try:
        with borrow(model):
            model.train()
            model.requires_grad_(True)
            model(torch.randn(5, 4)).sum().backward()
            if fail:
                raise RuntimeError("half way")
    except RuntimeError:
        assert fail
    assert snapshot(model) == before
    assert torch.equal(model[4].weight.grad, gradient)


def test_leaked_hooks_are_removed_and_lost_hooks_put_back():
    model, fired = build(), []
    handle = model[0].register_forward_hook(lambda *_: fired.append("mine"))
    with borrow(model):
        handle.remove()
        model[0].register_forward_hook(lambda *_: fired.append("leaked"))
        model[0].register_forward_pre_hook(lambda *_: fired.append("leaked"))
        model[4].register_full_backward_hook(lambda *_: fired.append("leaked"))
    model(torch.randn(3, 4)).sum().backward()
    assert fired == ["mine"]
    handle.remove()
    model(torch.randn(3, 4))
    assert fired == ["mine"]


def test_a_model_that_overrides_train_is_not_disturbed():
    class Merging(nn.Linear):
        def train(self, mode=True):
            raise AssertionError("train() has side effects here")

    model = Merging(2, 2)
    with borrow(model):
        assert not model.training
    assert model.training


def test_a_plain_function_passes_and_other_things_do_not():
    with borrow(torch.sin) as lent:
        assert lent is torch.sin
    with pytest.raises(KindError, match=r"torch\.nn\.Module or a callable, got int"), borrow(3):
        pass


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
    assert torch.equal(Logits(lambda x: output)(torch.zeros(2, 4)), SCORES)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_score_an_input_becomes_one_column(shape):
    assert Logits(lambda x: torch.ones(shape))(torch.zeros(2, 4)).shape == (2, 1)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ([SCORES, SCORES], KindError, r"list of 2 items \(tensor \[2, 3\], tensor \[2, 3\]\)"),
        ({"scores": SCORES}, KindError, r"without a tensor under \"logits\" \(keys: 'scores'\)"),
        (None, KindError, "returned None"),
        ((None, SCORES), KindError, "returned tuple"),
        (torch.zeros(3), InputError, r"shape \[3\] for 2 inputs"),
        (torch.zeros(2, 3, 7, 7), InputError, r"shape \[2, 3, 7, 7\]"),
        (torch.tensor(1.0), InputError, r"shape \[\]"),
        (torch.ones(2, 3, dtype=torch.long), KindError, "int64"),
        (SCORES / torch.zeros(2, 1) * 0, InputError, "NaN for 2 of 2 inputs"),
    ],
)
def test_other_outputs_are_refused_by_name(output, error, message):
    with pytest.raises(error, match=message):
        Logits(lambda x: output)(torch.zeros(2, 4))


def test_predict_in_pieces_equals_one_pass_and_extra_arguments_follow_the_inputs():
    model, x, shift = build().eval(), torch.randn(7, 4), torch.arange(7.0).unsqueeze(1)

    def shifted(inputs, offset, factor):
        return model(inputs.sub_(1)) + offset * factor  # works in place on what it is given

    kept = x.clone()
    whole = predict(shifted, x, (shift, 2.0))
    parts = predict(shifted, x, (shift, 2.0), batch_size=3)
    assert torch.allclose(whole, parts)
    assert torch.allclose(whole, model(kept - 1) + 2 * shift)
    assert torch.equal(x, kept)
    assert not whole.requires_grad
    with pytest.raises(InputError, match="at least one input"):
        predict(model, x[:0])


@pytest.mark.parametrize("target", [2, [2, 2], torch.tensor(2), torch.tensor([2, 2]), (2, 2)])
def test_targets_of_every_kind(target):
    assert resolve_target(SCORES, target).tolist() == [2, 2]


def test_no_target_means_the_predicted_class():
    assert resolve_target(SCORES, None).tolist() == [1, 2]
    assert resolve_target(torch.zeros(2, 1), None).tolist() == [0, 0]


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


def test_a_single_output_has_target_0_alone():
    with pytest.raises(InputError, match="1 output, so valid targets are 0 alone"):
        resolve_target(torch.zeros(2, 1), 1)


def test_lazy_layers_must_have_seen_an_input():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(InputError, match="run it once"), borrow(model):
        pass
    model(torch.rand(1, 4))
    with borrow(model):
        assert not model[1].weight.requires_grad


def test_weights_made_in_inference_mode_are_left_as_they_are():
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    before = model.weight.requires_grad
    with borrow(model):
        assert not model.training
    assert model.training
    assert model.weight.requires_grad == before


def test_a_model_is_lent_to_one_thread_at_a_time():
    model, inside, leave, order = nn.Linear(2, 2), Event(), Event(), []

    def hold():
        with borrow(model):
            inside.set()
            leave.wait(10)
            order.append("first")

    def wait():
        with borrow(model), borrow(model):  # the same thread may borrow again
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


def test_a_class_may_say_that_its_layers_work_in_place():
    class Always(nn.Module):
        inplace = True

        def forward(self, x):
            return torch.relu_(x) if self.inplace else torch.relu(x)

    model = nn.Sequential(Always())
    x = -torch.ones(1, 2)
    with borrow(model):
        model(x)
    assert (x == -1).all()
    assert model[0].inplace
