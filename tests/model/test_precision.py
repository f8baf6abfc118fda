"""TF32 is off while a model is asked, and the caller's choice comes back."""

import threading

import pytest
import torch
from torch import nn

from sea_nn import SEA, explain
from sea_nn.model import precision
from sea_nn.model.opening import open_model
from sea_nn.model.precision import full_precision

CUDNN, MATMUL = torch.backends.cudnn, torch.backends.cuda.matmul


def look():
    """Return what every switch says, "refused" where PyTorch does not read it."""

    def read(switch):
        try:
            return switch()
        except RuntimeError:
            return "refused"

    kinds = [k.fp32_precision for k in (CUDNN.conv, CUDNN.rnn, MATMUL)]
    return read(lambda: CUDNN.allow_tf32), read(torch.get_float32_matmul_precision), *kinds


@pytest.fixture(autouse=True)
def switches():
    before = look()
    yield
    CUDNN.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])
    for kind, own in zip((CUDNN.conv, CUDNN.rnn, MATMUL), before[2:], strict=True):
        kind.fp32_precision = own
    assert look() == before


CHOICES = {
    "as PyTorch starts": lambda: None,
    "off": lambda: setattr(CUDNN, "allow_tf32", False),
    "matmul medium": lambda: torch.set_float32_matmul_precision("medium"),
    "matmul high": lambda: torch.set_float32_matmul_precision("high"),
    "one kind": lambda: setattr(CUDNN.rnn, "fp32_precision", "ieee"),
    "another kind": lambda: setattr(MATMUL, "fp32_precision", "tf32"),
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_tf32_is_off_inside_and_as_it_was_after(choose):
    choose()
    before = look()
    with full_precision():
        assert look()[2:] == ("ieee", "ieee", "ieee")
        assert look()[0] in (False, before[0])  # never newly refused: layers read it
    assert look() == before
    with pytest.raises(KeyboardInterrupt), full_precision():
        raise KeyboardInterrupt
    assert look() == before


def test_an_interrupt_on_the_way_in_is_raised_and_forgotten(monkeypatch):
    before = look()

    def interrupt():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(precision, "turn_off", interrupt)
        with pytest.raises(KeyboardInterrupt), full_precision():
            pass
    with full_precision():
        assert look()[2] == "ieee"
    assert look() == before


def test_the_last_thread_to_leave_restores():
    before, entered, leave = look(), threading.Event(), threading.Event()

    def stay():
        with full_precision():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    with full_precision():
        thread.start()
        assert entered.wait(10)
    assert look()[2] == "ieee"
    leave.set()
    thread.join(10)
    assert look() == before


@pytest.mark.parametrize(
    ("given", "expected"), [({"budget": 34}, True), ({"methods": ["saliency"]}, False)]
)
def test_only_a_budget_asks_in_full_precision(monkeypatch, given, expected):
    asked = []

    def spy(*args, exact=False, **kwargs):
        asked.append(exact)
        return open_model(*args, exact=exact, **kwargs)

    monkeypatch.setattr(explain, "open_model", spy)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    SEA(model, **given).explain(torch.rand(1, 1, 8, 8), target=0)
    assert set(asked) == {expected}
