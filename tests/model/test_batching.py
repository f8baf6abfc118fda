"""Passes stay within the memory there is; TF32 is off in them; draws belong to an input."""

import math
import threading
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sea_nn import SEA, explain
from sea_nn.errors import MemberError
from sea_nn.members.registry import expand_methods
from sea_nn.members.run import compute_maps, run_members
from sea_nn.model import precision
from sea_nn.model import probe as memory
from sea_nn.model.noise import (
    PURPOSES,
    draw_normal,
    draw_uniform,
    find_keys,
    random_map,
    uniform,
)  # fmt: skip
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


def draw_pictures(n: int = 6) -> Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_key_depends_on_the_content_and_the_seed_alone(dtype):
    x = draw_pictures().to(dtype)
    keys = find_keys(x, 3)
    assert keys.dtype == torch.int64
    assert len(set(keys.tolist())) == len(x)
    order = [4, 0, 2]
    assert torch.equal(find_keys(x[order], 3), keys[order])
    assert torch.equal(find_keys(x.contiguous(memory_format=torch.channels_last), 3), keys)
    assert not set(find_keys(x, 4).tolist()) & set(keys.tolist())


def test_the_smallest_change_of_an_input_changes_its_key():
    x = draw_pictures(1)
    keys = {int(find_keys(x)[0])}
    for place in range(x.numel()):
        other = x.clone()
        value = other.view(-1)[place]
        other.view(-1)[place] = torch.nextafter(value, value + 1)
        keys.add(int(find_keys(other)[0]))
    keys.add(int(find_keys(x.flip(3))[0]))
    assert len(keys) == x.numel() + 2
    zero = torch.zeros(1, 4)
    assert torch.equal(find_keys(zero), find_keys(-zero))


@given(st.integers(-(2**70), 2**70))
def test_any_whole_number_is_a_seed(seed):
    x = draw_pictures(2)
    assert torch.equal(find_keys(x, seed), find_keys(x, seed))
    assert not torch.equal(find_keys(x, seed), find_keys(x, seed + 1))


def test_normal_draws_are_normal_and_independent():
    keys = find_keys(draw_pictures(4))
    values = torch.stack([draw_normal(keys, k, (20_001,)) for k in range(3)]).flatten(0, 1)
    for power, expected in enumerate([0, 1, 0, 3, 0, 15], start=1):
        # Four standard errors of that moment of a standard normal.
        spread = math.prod(range(1, 2 * power, 2)) - expected**2
        assert abs(values.pow(power).mean() - expected) < 4 * math.sqrt(spread / values.numel())
    share = (values.flatten().abs() < 1).double().mean()
    assert abs(share - math.erf(1 / math.sqrt(2))) < 4 * 0.4655 / math.sqrt(values.numel())
    table = torch.cat([values, values.roll(1, 1)])  # between inputs, streams and neighbours
    related = torch.corrcoef(table).fill_diagonal_(0).abs().max()
    assert related < 5 / math.sqrt(20_000)


def test_a_stream_is_a_number_or_one_a_key():
    keys = find_keys(draw_pictures(3))
    mixed = draw_normal(keys, torch.tensor([5, 0, 5]), (9,))
    assert torch.equal(mixed[0], draw_normal(keys[:1], 5, (9,))[0])
    assert torch.equal(mixed[1], draw_normal(keys[1:2], 0, (9,))[0])
    assert not torch.equal(draw_normal(keys, 0, (9,)), draw_normal(keys, 1, (9,)))


def test_uniform_draws_fill_the_interval_evenly():
    values = draw_uniform(find_keys(draw_pictures(3)), -1, 30_000)
    assert 0 <= values.min() < 1e-3
    assert 1 - 1e-3 < values.max() < 1
    counts = torch.histc(values.float(), 10, 0, 1) / values.numel()
    assert (counts - 0.1).abs().max() < 4 * math.sqrt(0.09 / values.numel())
    assert abs(torch.corrcoef(values)[0, 1]) < 0.03


@pytest.mark.parametrize(
    "name", ["smoothgrad", "smooth_ig", "gradient_shap", "kernel_shap", "lime"]
)
def test_equal_inputs_have_equal_maps_and_others_have_not(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 16), nn.Tanh(), nn.Linear(16, 2)).double()
    x = torch.randn(1, 40, dtype=torch.float64).repeat(3, 1)
    x[2, 39] += 1e-6  # too little to matter but for the draws
    options = {"n_samples": 60 if name in ("kernel_shap", "lime") else 3}
    maps = compute_maps(model, x, 1, [(name, options)], baselines=0.5).maps[name]
    assert torch.allclose(maps[0], maps[1], atol=1e-12)
    assert not torch.allclose(maps[0], maps[2], atol=1e-4)


def test_draws_belong_to_the_input_the_purpose_and_the_seed():
    state = torch.get_rng_state()
    drawn = [uniform(purpose, (50, 3), seed) for purpose in PURPOSES for seed in (0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.stack(drawn).unique().numel() == 2 * 150 * len(PURPOSES)
    assert torch.equal(random_map((5, 2, 2), 3)[2:], random_map((3, 2, 2), 3, first=2))
    assert not torch.equal(random_map((1, 2, 2), 0, first=1), random_map((1, 2, 2), 1))


def test_draws_are_the_two_hashes_written_out():
    """By whole numbers of any size, one position at a time: tables of results depend on them."""

    def keys(seed: int, kind: int, index: int) -> tuple[int, int]:
        word = (seed * 0x9E3779B97F4A7C15 + kind * 0xD1B54A32D192ED03 + index + 1) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word = (word ^ (word >> shift)) * factor % 2**64
        return divmod(word ^ (word >> 31), 2**32)

    def scramble(word: int) -> int:
        word = (word ^ (word >> 16)) * 0x85EBCA6B % 2**32
        word = (word ^ (word >> 13)) * 0xC2B2AE35 % 2**32
        return word ^ (word >> 16)

    for kind, purpose in enumerate(PURPOSES):
        for seed, first in ((0, 0), (7, 12_345_678), (-3, 2), (2**70, 0)):
            found = uniform(purpose, (3, 5), seed, first)
            for row in range(3):
                start, end = keys(seed, kind, first + row)
                for place in range(5):
                    word = scramble(scramble((place * 0x9E3779B9 + start) % 2**32) ^ end)
                    assert found[row, place] == (word >> 8) * 2.0**-24
