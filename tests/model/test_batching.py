"""Passes stay within the memory there is; TF32 is off while a model is asked."""

import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

from sea_nn import SEA, explain
from sea_nn.errors import MemberError
from sea_nn.members.registry import expand_methods
from sea_nn.members.run import compute_maps, run_members
from sea_nn.model import precision
from sea_nn.model import probe as memory
from sea_nn.model.opening import open_model
from sea_nn.model.precision import full_precision
from sea_nn.questions.absent import prepare
from tests.helpers.networks import count, images


def test_memory_is_measured_and_divided():
    model = nn.Sequential(nn.Linear(100, 1000), nn.Tanh(), nn.Linear(1000, 2))
    with open_model(model, torch.zeros(1, 100)) as probe:
        assert (probe.saved, probe.largest) == (4000 + 4 * 400, 4000)

    def size(total, saved, limit=None, largest=0, gradient=True):
        return replace(probe, saved=saved, largest=largest, limit=limit).chunk(total, gradient)

    assert size(51, memory.CPU_BUDGET // 50) <= 26
    assert size(10, 1) == 10
    assert size(10, 1, limit=4) == 4
    assert size(9, 1, limit=4) == 3
    assert size(5, 10**15) == 1
    assert size(100, 1, largest=2**30) == 1
    # a layer's output fills a core's cache
    assert size(100, 1, None, memory.CPU_CACHE, False) <= torch.get_num_threads()


def test_a_pass_stays_within_the_budget(monkeypatch):
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 3))
    (counting, sizes), x = count(plain.requires_grad_(False)), images(2)
    with open_model(counting, x, 0) as probe:
        each = probe.saved + 4 * probe.largest
    monkeypatch.setattr(memory, "CPU_BUDGET", 7 * each)
    compute_maps(counting, x, 0, "integrated_gradients")
    assert max(sizes) == 7


def test_a_full_gpu_makes_the_parts_smaller():
    class Full(nn.Module):
        """A GPU with room for so many rows."""

        def __init__(self, room):
            super().__init__()
            self.room, self.line, self.sizes = room, nn.Linear(4, 2), []

        def forward(self, x):
            if len(x) > self.room:
                raise torch.cuda.OutOfMemoryError("full")
            return self.line(x)

    x, model = torch.rand(5, 4), Full(5)
    expected = compute_maps(model, x, 0, "integrated_gradients,occlusion").maps
    with open_model(model, x, 0, hiding=prepare(x, "baseline")) as probe:
        probe.model.module.room = 2
        entries = expand_methods("integrated_gradients,occlusion")
        found = run_members(probe, entries).maps
        sets = torch.ones(5, 3, 4, dtype=torch.bool)
        assert probe.ask(sets).shape == (5, 3)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)
        probe.model.module.room = 0
        with pytest.raises(MemberError, match="no room for a single input"):
            run_members(probe, expand_methods("saliency"))


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
