"""Every row that the model sees counts, and lies where the inputs lie."""

import pytest
import torch
from torch import nn

from sea_nn import SEA, NumpyModel
from sea_nn.errors import InputError, MemberError
from sea_nn.members.callables import from_captum
from tests.helpers.pretended import OnGpu, PretendedGpu, move, to_cpu, to_gpu


class Counting(nn.Module):
    """Runs a network, counts the rows it is asked about, and refuses those beyond a limit."""

    seen = 0
    limit = 10**9

    def __init__(self, *layers):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        Counting.count(len(x))
        return self.layers(x)

    @staticmethod
    def count(rows):
        Counting.seen += rows
        assert Counting.seen <= Counting.limit, "one row too many"


class Reusing(nn.Module):
    """Calls its layers through a closure, so that a copy would call the original's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.Linear(6, 3)
        self.layer, self.call = layer, lambda x: layer(x)

    def forward(self, x):
        Counting.count(len(x))
        return self.call(x)


def convolve(*more):
    return Counting(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6(inplace=True)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), *more),
        *(nn.Flatten(), nn.Linear(4 * 256, 3)),
    ).eval()


def table(x):
    Counting.count(len(x))
    return x @ torch.linspace(-1, 1, 3 * x.shape[1]).view(-1, 3)


def arrays(x):
    Counting.count(len(x))
    return x @ torch.linspace(-1, 1, 3 * x.shape[1]).view(-1, 3).numpy()


def no_gradient(x):
    Counting.count(len(x))
    return torch.from_numpy(x.numpy()[:, :3])


def mixed(image, row):
    Counting.count(len(row))
    return torch.stack([image.sum((1, 2, 3)), row.sum(1), row[:, 0]], 1)


SERIES = Counting(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(54, 3)).eval()
CASES = {
    "image": (convolve(), torch.rand(2, 1, 16, 16), {}),
    "one image": (convolve(), torch.rand(1, 1, 16, 16), {}),
    "dropout": (convolve(nn.Dropout()), torch.rand(3, 1, 16, 16), {}),
    "series": (SERIES, torch.rand(2, 2, 20), {}),
    "table": (Counting(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), torch.rand(3, 6), {}),
    "background": (
        *(Counting(nn.Linear(6, 3)), torch.rand(2, 6)),
        {"background": torch.rand(50, 6)},
    ),
    "function": (table, torch.rand(2, 30), {}),
    "arrays": (NumpyModel(arrays), torch.rand(2, 16), {}),
    "no gradient": (no_gradient, torch.rand(2, 8), {}),
    "open": (Reusing(), torch.rand(2, 6), {}),
    "several": (mixed, (torch.rand(2, 1, 8, 8), torch.rand(2, 3)), {}),
}


@pytest.mark.parametrize("budget", [12, 34, 90])
@pytest.mark.parametrize("name", CASES)
def test_the_model_sees_no_row_beyond_the_budget(name, budget):
    model, x, given = CASES[name]
    count = len(x if isinstance(x, torch.Tensor) else x[0])
    Counting.seen, Counting.limit = 0, budget * count
    e = SEA(model, budget=budget, output="logits").explain(x, **given)
    assert Counting.seen == sum(e.provenance.evaluations.values())
    assert sum(e.evaluations.values()) == -(-Counting.seen // count) <= budget
    assert set(e.evaluations) == {"members", "questions", "checks"}
    assert all(isinstance(rows, int) for rows in e.evaluations.values())
    assert e.evaluations["questions"] >= min(budget / 2 - 8, 60)  # draws; or all sets there are
    if budget == 34:
        Counting.seen, Counting.limit = 0, budget * count
        SEA(model, budget=budget, output="logits").attribute(x)
        assert Counting.seen <= budget * count


def test_a_game_is_asked_with_all_of_its_budget(tmp_path):
    """All answers of a game of 16 players in a table: no gradient, no members."""
    values = torch.rand(2**16, generator=torch.Generator().manual_seed(0))
    places, asked = 2 ** torch.arange(16), []

    def look_up(sets):
        asked.append(len(sets))
        return values[((sets > 0.5).long() * places).sum(1)]

    e = SEA(look_up, budget=64, output="value").explain(torch.ones(1, 16))
    assert sum(asked) == 64
    assert e.evaluations == {"members": 0, "questions": 64, "checks": 0}
    assert e.methods == ()
    assert e.maps.shape == (1, 0, 16)
    torch.testing.assert_close(e.gains.sum(), (values[-1] - values[0]))
    assert "no member explains this model" in str([check.message for check in e.checks])
    again = type(e).load(e.save(tmp_path / "e.safetensors"))
    assert again.methods == ()
    assert (again.evaluations, again.assumed) == (e.evaluations, e.assumed)
    e.plot("strip", tmp_path / "strip.png")
    assert e[0].summary()


@pytest.mark.parametrize("methods", [("saliency", "guided_grad_cam"), ("occlusion",), "deeplift"])
def test_named_members_are_counted_as_what_they_cost(methods):
    Counting.seen, Counting.limit = 0, 10**9
    model, x = convolve(), torch.rand(2, 1, 16, 16)
    e = SEA(model, methods, budget=330, output="logits").explain(x)
    sea = SEA(model, methods)
    price = sum(entry.member.cost(entry.options, (1, 16, 16)) for entry in sea.entries)
    assert e.evaluations["members"] == price
    assert sum(e.evaluations.values()) <= 330
    paper = sea.explain(x)
    assert paper.evaluations["members"] == price


def test_a_member_that_costs_more_than_it_says_is_refused_before_the_row():
    captum = pytest.importorskip("captum")
    greedy = from_captum(captum.attr.FeatureAblation)  # asks once a pixel, and says it costs one
    Counting.seen, Counting.limit = 0, 40
    with pytest.raises(MemberError, match="evaluations="):
        SEA(convolve(), greedy, budget=40, output="logits").explain(torch.rand(1, 1, 16, 16))


def test_a_budget_too_small_for_members_and_questions_is_refused_with_the_numbers():
    Counting.limit = 10**9
    sea = SEA(convolve(), ("saliency", "deeplift"), budget=7, output="logits")
    with pytest.raises(InputError, match=r"members alone cost 3 .* budget of 8 or more \(got 7\)"):
        sea.explain(torch.rand(1, 1, 16, 16))
    for budget in (3, 4, 5):  # the smallest there are
        assert SEA(table, budget=budget + 1, output="logits").explain(torch.rand(1, 9)).order.any()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    parts = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3)
    return nn.Sequential(*parts).eval()


@pytest.mark.parametrize(
    "how", [{"budget": 34, "grid": (4, 4)}, {"budget": 30, "absent": "mean", "grid": (3, 3)}]
)
def test_an_explanation_on_a_gpu_is_that_of_the_cpu(how, model):
    x = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    how = {"methods": ["presence_gradient"], "output": "logits", **how}
    e = SEA(model, **how).explain(x)
    with PretendedGpu():
        other = SEA(move(model), **how).explain(to_gpu(x))
        assert all(isinstance(one, OnGpu) for one in (other.attribution, other.map("keep")))
        assert other.summary() == e.summary()
        sets = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(2)) > 0.5
        values = other.predict(to_gpu(sets), interval=0.9)
        more = SEA(move(model), **{**how, "budget": 40})
        assert more.explain(to_gpu(x), previous=other).questions > other.questions
    assert all(isinstance(one, OnGpu) for one in values)
    for one, expected in zip(values, e.predict(sets, interval=0.9), strict=True):
        torch.testing.assert_close(to_cpu(one), expected)
    torch.testing.assert_close(to_cpu(other.attribution), e.attribution)


def test_a_tensor_on_the_wrong_device_is_found():
    with PretendedGpu():
        there, here = to_gpu(torch.ones(3)), torch.ones(3)
        for wrong in (lambda: there + here, lambda: here[to_gpu(torch.tensor([0]))]):
            with pytest.raises(RuntimeError):
                wrong()
        assert isinstance(there + 1, OnGpu)
        assert not isinstance(there.cpu(), OnGpu)
        assert there.device.type == "cuda"
