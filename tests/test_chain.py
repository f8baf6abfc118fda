"""Layers that run where points differ say what the model says, and leave it as it was."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sea_nn.metrics import score_maps
from sea_nn.passes import chain
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.chain import Chain, find_chain
from sea_nn.passes.evaluator import Evaluator
from sea_nn.passes.norm_folding import Fold, plan
from sea_nn.passes.outputs import Logits
from sea_nn.questions import session as asking
from sea_nn.vision.shipped import load_cnn, load_sample

SIDE = 20


@pytest.fixture(autouse=True, scope="module")
def account():
    """Let it pay for layers as small as these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "ACCOUNT", 0)
        yield


def make_task(model: nn.Module, x: Tensor) -> Evaluator:
    rows = torch.zeros(len(x), dtype=torch.long)
    return Evaluator(Logits(model, check=False), x, rows, x.new_zeros(len(x), 1))


def find(model: nn.Module, x: Tensor) -> Chain | None:
    with borrow(model):
        return find_chain(make_task(model, x))


def build(*layers: nn.Module, seed: int = 0) -> nn.Module:
    """The layers, with a linear one behind, in double precision."""
    torch.manual_seed(seed)
    front = nn.Sequential(*layers)
    with torch.no_grad():
        size = front.eval()(torch.zeros(1, 2, SIDE, SIDE)).numel()
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 3)).double().eval()
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.running_mean)
            nn.init.uniform_(m.running_var, 0.5, 2)
            nn.init.normal_(m.bias)
    return model


def walk(count: int, seed: int = 0, shape: tuple[int, ...] = (2, SIDE, SIDE)) -> Tensor:
    """Points of which each differs from the one before in a pixel, and now and then in all."""
    draw = torch.Generator().manual_seed(seed)
    point = torch.rand(shape, generator=draw, dtype=torch.float64)
    points = []
    for number in range(count):
        if number == 37:
            point = torch.rand(shape, generator=draw, dtype=torch.float64)
        row, column = (int(torch.randint(side, (), generator=draw)) for side in shape[1:])
        point[:, row, column] = torch.rand(shape[0], generator=draw, dtype=torch.float64) - 0.5
        points.append(point.clone())
    return torch.stack(points)


def simple() -> nn.Module:
    return build(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3))


def normed() -> nn.Module:
    return build(
        nn.BatchNorm2d(2),  # what lies in the padding is still 0 behind it
        nn.Conv2d(2, 5, (3, 5), padding=(1, 2), bias=False),
        nn.BatchNorm2d(5),
        nn.SiLU(),
        nn.AvgPool2d((2, 1)),
        nn.Conv2d(5, 4, 3, padding=2, dilation=2),
        nn.Sigmoid(),  # nor is 0 what it was behind this one
        nn.Conv2d(4, 4, 3, padding=1),
    )


def striding() -> nn.Module:
    # Windows that overlap, that leave pixels out, and that are larger than their step.
    return build(
        nn.Conv2d(2, 4, 2, stride=3),
        nn.Tanh(),
        nn.MaxPool2d(3, stride=2),
        nn.Identity(),
        nn.Conv2d(4, 8, 1),
    )


@pytest.mark.parametrize("make", [simple, normed, striding])
@given(seed=st.integers(0, 1000))
def test_answers_are_those_of_the_model(make, seed):
    model, points = make(), walk(70, seed)
    found = find(model, points)
    assert found is not None
    task = make_task(model, points)
    with torch.no_grad(), borrow(model):
        steps = found.plan(points)
        assert steps is not None
        made = found.run(points, steps)
        expected = nn.Sequential(*found.layers[: len(steps) - 1])(points)
        assert torch.allclose(made, expected, rtol=1e-12, atol=1e-12)
        rows = torch.zeros(len(points), dtype=torch.long)
        answer = found.forward(task, points, rows)
        assert torch.allclose(answer, model(points), rtol=1e-12, atol=1e-12)


def test_layers_of_few_multiplications_are_not_worth_the_account(monkeypatch):
    model, points = simple(), walk(70)
    layers = find(model, points).layers
    assert Chain(layers, (SIDE, SIDE), total=1.0).plan(points) is not None
    monkeypatch.setattr(chain, "ACCOUNT", 1000)
    assert Chain(layers, (SIDE, SIDE), total=1.0).plan(points) is None
    monkeypatch.setattr(chain, "measure", lambda *_: pytest.fail("known before"))
    assert find(model, points) is None


@pytest.mark.parametrize(("size", "padding"), [(1, 1), (2, 2), (3, 3)])
def test_answers_that_read_nothing_but_padding_are_the_bias(size, padding):
    model, points = build(nn.Conv2d(2, 8, size, padding=padding), nn.ReLU()), walk(40)
    found = find(model, points.masked_fill(torch.ones(()) > 0, 0.0))  # black, and so no difference
    assert found is not None
    with torch.no_grad():
        made = found.run(points, found.plan(points))
        assert torch.allclose(made, model[:2](points), rtol=1e-12, atol=1e-12)


class Padded(nn.Module):
    """Fills its input up to a multiple of 8, which the model behind its first layer does as well.

    Behind both of its convolutions, of 5 x 5 and 13 x 13, there is nothing to fill.
    """

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 16, 5), nn.Conv2d(16, 1, 13)
        self.pool = nn.AdaptiveAvgPool2d(8) if pooled else nn.Identity()
        self.last = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        missing = -x.shape[2] % 8
        if missing:
            x = nn.functional.pad(x, (0, missing, 0, missing), value=1.0)
        return self.last(self.pool(self.second(self.first(x))).flatten(1))


@pytest.mark.parametrize("pooled", [True, False])  # a wrong answer, and an error
def test_a_model_that_goes_on_badly_behind_some_layers_is_asked_in_full(pooled):
    torch.manual_seed(0)
    model, points = Padded(pooled).double().eval(), walk(40, shape=(2, 24, 24))
    found, rows = find(model, points), torch.zeros(40, dtype=torch.long)
    assert found.layers[:2] == [model.first, model.second]
    assert len(found.plan(points)) == 2  # the second convolution does not pay
    with torch.no_grad():
        for _ in range(2):
            answer = found.forward(make_task(model, points), points, rows)
            assert torch.allclose(answer, model(points), rtol=1e-12)
    assert found.trusted == {1: False}


def test_the_rest_of_the_model_is_asked_about_no_more_than_it_would_be():
    model, points = simple(), walk(40)
    found, rows = find(model, points), torch.zeros(40, dtype=torch.long)
    task, sizes = make_task(model, points), []
    task.limit = 7
    handle = model[-1].register_forward_hook(lambda _, given, __: sizes.append(len(given[0])))
    with torch.no_grad():
        answer = found.forward(task, points, rows)
        handle.remove()
        assert max(sizes) == 7
        assert torch.allclose(answer, model(points), rtol=1e-12)


def test_a_layer_is_asked_about_events_alone(monkeypatch):
    model, points = simple(), walk(30)
    found = find(model, points)
    rows, whole = [], torch.addmm

    def count(bias, read, *others, **options):
        rows.append(len(read))
        return whole(bias, read, *others, **options)

    monkeypatch.setattr(torch, "addmm", count)
    with torch.no_grad():
        found.run(points, found.plan(points))
    # The first point in full; of a change inside 3 x 3 and then at most 4 x 4 of 8 x 8 answers.
    assert SIDE**2 < rows[0] <= SIDE**2 + 29 * 9
    assert 64 < rows[1] <= 64 + 29 * 16


def test_it_does_not_matter_how_much_is_gathered_at_once(monkeypatch):
    model, points = simple(), walk(30)
    found = find(model, points)
    with torch.no_grad():
        whole = found.run(points, found.plan(points))
        monkeypatch.setattr(chain, "BLOCK", 100)
        assert torch.allclose(found.run(points, found.plan(points)), whole, rtol=1e-13)


def test_points_that_differ_much_are_left_to_the_model():
    model = simple()
    found = find(model, walk(2))
    points = torch.rand(20, 2, SIDE, SIDE, dtype=torch.float64)
    assert found.plan(points) is None
    assert found.plan(walk(1)) is None  # nothing to compare it with
    with torch.no_grad():
        rows = torch.zeros(20, dtype=torch.long)
        assert torch.equal(found.forward(make_task(model, points), points, rows), model(points))


def test_layers_end_where_most_positions_have_an_event():
    torch.manual_seed(0)
    wide = build(
        nn.Conv2d(2, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 19, padding=9),
        nn.ReLU(),
        nn.Conv2d(16, 2, 3, padding=1),
    )
    points = walk(40)
    found = Chain(list(wide[:5]), (SIDE, SIDE), total=1.0)
    steps = found.plan(points)
    assert len(steps) == 3  # the input, the first convolution and its activation
    with torch.no_grad():
        assert torch.allclose(found.run(points, steps), wide[:2](points), rtol=1e-12)
    assert find(wide, points).layers == list(wide[:5])  # probed to the end
    found.total = float("inf")
    assert found.plan(points) is None  # too little of the model


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Conv2d(2, 8, 3, padding=1), nn.ReLU()
        self.second, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 3, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        return self.last(x + self.second(x)).flatten(1)


class Peeking(nn.Module):
    """Reads the input twice."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
        self.last = nn.Linear(8 * 25, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.front(x).flatten(1)) + x.mean((1, 2, 3)).unsqueeze(1)


class Twice(nn.Module):
    """Uses a layer for two purposes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(2 * SIDE**2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(self.conv(x)).flatten(1))


def test_layers_end_where_another_reads_between_them(monkeypatch):
    monkeypatch.setattr(chain, "GAIN", 0.0)
    torch.manual_seed(0)
    model, points = Residual().double().eval(), walk(20)
    found = find(model, points)
    assert found.layers == [model.first, model.act]
    with torch.no_grad():
        rows = torch.zeros(20, dtype=torch.long)
        answer = found.forward(make_task(model, points), points, rows)
        assert torch.allclose(answer, model(points), rtol=1e-12)


class Reused(nn.Module):
    """Has one activation for two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Conv2d(2, 8, 3, padding=1), nn.ReLU()
        self.second, self.last = nn.Conv2d(8, 4, 3, padding=1), nn.Linear(4 * SIDE**2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.second(self.act(self.first(x)))).flatten(1))


class Glancing(nn.Module):
    """Reads what its first layer gives before a layer that gives what it got."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.same = nn.Conv2d(2, 8, 3, padding=1), nn.Identity()
        self.act, self.last = nn.ReLU(), nn.Linear(8 * SIDE**2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        mean = x.mean((1, 2, 3)).unsqueeze(1)
        return self.last(self.act(self.same(x)).flatten(1)) + mean


@pytest.mark.parametrize("make", [Reused, Glancing])
def test_layers_end_before_one_that_is_reused_or_whose_input_is_read(make, monkeypatch):
    monkeypatch.setattr(chain, "GAIN", 0.0)
    torch.manual_seed(0)
    model = make().double().eval()
    assert find(model, walk(2)).layers == [model.first]


@pytest.mark.parametrize("make", [Peeking, Twice])
def test_other_models_have_no_such_layers(make, monkeypatch):
    monkeypatch.setattr(chain, "GAIN", 0.0)
    torch.manual_seed(0)
    assert find(make().double().eval(), walk(2)) is None


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(2, 4, 3, padding=1, groups=2),
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.MaxPool2d(3, padding=1),
        nn.MaxPool2d(3, ceil_mode=True),
        nn.AvgPool2d(3, padding=1),
        nn.InstanceNorm2d(2),
    ],
)
def test_layers_that_it_does_not_know_are_the_model_s(layer, monkeypatch):
    monkeypatch.setattr(chain, "GAIN", 0.0)
    assert (
        find(build(layer, nn.Conv2d(2 if len(list(layer.parameters())) == 0 else 4, 3, 3)), walk(2))
        is None
    )


def test_a_model_that_someone_listens_to_runs_as_it_is():
    model, x = simple(), walk(2)
    for layer in (model[0], model):  # its own hooks would see what its first layers have made
        handle = layer.register_forward_hook(lambda *_: None)
        assert find(model, x) is None
        handle.remove()
    assert find(model, x) is not None


def test_callables_series_and_further_arguments_run_as_they_are():
    model, x = simple(), walk(2)
    assert find_chain(make_task(lambda v: model(v), x)) is None
    series = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.LazyLinear(3)).double()
    series(x[:, :, 0])
    assert find(series, x[:, :, 0]) is None
    task = make_task(model, x)
    task.args = (1,)
    assert find_chain(task) is None


def test_folded_norms_may_be_among_the_layers():
    model, points = normed(), walk(60)
    found = find(model, points)
    with torch.no_grad(), borrow(model):
        fold = Fold(plan(model, lambda: model(points[:1])))
        assert fold
        rows = torch.zeros(len(points), dtype=torch.long)
        expected = model(points)
        with fold.applied():
            answer = found.forward(make_task(model, points), points, rows)
            before = {m: m.__dict__.get("forward") for m in model}
        assert torch.allclose(answer, expected, rtol=1e-9)
        assert any(before.values())  # norms were folded, and still are after a pass
    assert not any("forward" in m.__dict__ for m in model)


def test_the_layers_are_back_after_an_error():
    model = simple()
    found = find(model, walk(2))

    def fail() -> None:
        with found.removed(3):
            assert "forward" in model[2].__dict__
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert not any("forward" in m.__dict__ for m in model)


@pytest.mark.parametrize("kind", ["deletion:black", "insertion:blur"])
def test_curves_of_single_pixels_are_the_same_either_way(kind, monkeypatch):
    model, x = load_cnn(), load_sample().images[:3]
    maps = {"a": torch.rand(3, 28, 28, generator=torch.Generator().manual_seed(0))}
    uses = []
    whole = Chain.run
    monkeypatch.setattr(Chain, "run", lambda self, *given: uses.append(1) or whole(self, *given))

    def score(**options):
        uses.clear()
        metrics = (f"{kind},steps=784",)
        scores = score_maps(model, x, None, maps, metrics, bounds=(0, 1), **options)
        return scores.curves[metrics[0]].values, bool(uses)

    found, used = score()
    assert used
    # A limit of the caller's is for what the model is asked at once.
    expected, used = score(internal_batch_size=64)
    assert not used
    assert torch.allclose(found, expected, atol=2e-6)
    monkeypatch.setattr(asking, "CHAIN_FROM", 10**9)
    assert torch.allclose(score()[0], expected, atol=2e-6)
    assert not uses


def test_coarse_steps_are_left_to_the_model(monkeypatch):
    model, x = load_cnn(), load_sample().images[:5]
    sizes = []
    whole = Chain.run
    monkeypatch.setattr(
        Chain, "run", lambda self, some, steps: sizes.append(len(some)) or whole(self, some, steps)
    )
    monkeypatch.setattr(asking, "CHAIN_FROM", 1)
    maps = {"a": torch.rand(5, 28, 28)}
    score_maps(model, x, None, maps, ("deletion:noise", "aupc_windows:noise"), bounds=(0, 1))
    assert sizes == []  # nor looked for
    score_maps(model, x, None, maps, ("deletion:noise,steps=120",), bounds=(0, 1))
    assert sizes == [len(chain.PROBES) + 1]  # looked for, and not used


def test_it_is_not_looked_for_in_large_images(monkeypatch):
    monkeypatch.setattr(chain, "LARGEST", SIDE**2 - 1)
    assert find(simple(), walk(2)) is None


def test_looking_inside_a_model_loads_no_compiler():
    code = """
import sys
from sea_nn.passes import chain
from tests.test_chain import find, simple, walk
chain.ACCOUNT = 0
assert find(simple(), walk(2)) is not None
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
