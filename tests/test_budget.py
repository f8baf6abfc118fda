"""SEA with a budget: sums, predictions, files; every row that the model sees counts."""

import pytest
import torch
from torch import nn

from sea_nn import SEA, Constraints, Explanation, NumpyModel, SEAConfig
from sea_nn.errors import InputError, MemberError
from sea_nn.members.callables import from_captum
from sea_nn.questions.absent import blur
from tests.helpers.networks import build_pooled, draw_bright
from tests.helpers.pretended import OnGpu, PretendedGpu, move, to_cpu, to_gpu

model, x = build_pooled(), draw_bright()


@pytest.fixture(scope="module")
def explanation():
    return SEA(model, budget=128).explain(x, target=[0, 1])


def test_the_map_sums_to_the_gains_and_lies_where_they_are(explanation):
    e = explanation
    by_feature = torch.zeros_like(e.gains).scatter(1, e.order, e.gains).clamp(min=0)
    torch.testing.assert_close(e.attribution.sum((1, 2, 3)), by_feature.sum(1))
    mass = e.average(e.attribution)[:, 0] * e.features.flatten().bincount()
    some = by_feature.sum(1) > 0  # else the class has less support than the empty input
    assert bool(some.any())
    for got, wanted in zip(mass[some], by_feature[some], strict=True):
        assert float(torch.corrcoef(torch.stack([got, wanted]))[0, 1]) > 0.8
    assert float(e.attribution.min()) >= 0


def test_predictions_know_both_ends_and_come_with_an_error(explanation):
    e = explanation
    ends = torch.stack([torch.zeros(2, 16, 16), torch.ones(2, 16, 16)], 1).bool()
    torch.testing.assert_close(e.predict(ends)[:, 1], e.score, atol=2e-3, rtol=0)
    assert e.predict_error.shape == (2,)
    assert bool((e.predict_error < 0.3).all())
    sets = torch.rand(2, 5, 16, 16, generator=torch.Generator().manual_seed(0)) > 0.5
    assert e.predict(sets).shape == (2, 5)
    with pytest.raises(InputError, match="sets must be"):
        e.predict(sets[:1])


def test_it_is_saved_loaded_and_sliced(explanation, tmp_path):
    e = Explanation.load(explanation.save(tmp_path / "e.safetensors"))
    sets = torch.rand(2, 5, 16, 16, generator=torch.Generator().manual_seed(0)) > 0.5
    wanted = explanation.predict(sets)
    torch.testing.assert_close(e.predict(sets), wanted, atol=1e-4, rtol=0)
    torch.testing.assert_close(e.attribution, explanation.attribution)
    torch.testing.assert_close(e.predict_error, explanation.predict_error)
    torch.testing.assert_close(explanation[1].predict(sets[1:]), wanted[1:])
    assert e.summary() == explanation.summary()


def test_an_input_is_explained_alike_alone_and_in_a_batch(explanation):
    alone = SEA(model, budget=128).explain(x[1:], target=1)
    assert torch.equal(alone.order, explanation.order[1:])
    torch.testing.assert_close(alone.gains, explanation.gains[1:], atol=1e-4, rtol=1e-4)


def test_a_feature_mask_groups_features():
    mask = torch.arange(4).repeat_interleave(4)[:, None].expand(16, 16)
    e = SEA(model, budget=40).explain(x, feature_mask=mask)
    assert e.order.shape == (2, 4)
    assert e.function.n_answers == 15  # every set there is but the whole


def test_a_value_below_that_of_an_empty_input_is_explained_by_what_lowers_it():
    table = nn.Linear(6, 1, bias=False)
    table.weight.data = torch.tensor([[3.0, 2.0, 1.0, 0.5, 0.0, 0.0]])
    x = torch.tensor([[-1.0, 1.0, 1.0, -1.0, 0.0, 0.0]])
    e = SEA(table, budget=70, output="value").explain(x)
    torch.testing.assert_close(e.gains.sum(1), torch.tensor([-0.5]))
    wanted = torch.tensor([[0.0, 2.0, 1.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.5, 0.0, 0.0]])
    torch.testing.assert_close(torch.cat([e.attribution, e.against]), wanted, atol=0.15, rtol=0)
    assert any("e.against what speaks against it" in check.advice for check in e.checks)


def test_a_saturated_model_is_clipped_and_said():
    def sure(x):
        return torch.stack([60 * x.mean((1, 2, 3)), torch.zeros(len(x))], 1)

    x = torch.ones(1, 1, 8, 8)
    e = SEA(sure, budget=40, absent="baseline").explain(x, target=0)
    assert any("clipped" in check.message for check in e.checks)
    assert bool(e.gains.isfinite().all())


def test_a_class_with_less_support_than_an_empty_input_comes_with_a_warning():
    least = (model(x) - model(blur(x))).argmin(1).tolist()  # the class that the blurred has more of
    e = SEA(model, budget=64).explain(x, target=[least[0], 1])
    f = e.function
    against = f.all[:, 0] <= f.none[:, 0]
    assert against.tolist() == [True, False]
    for i in range(2):
        said = [c for c in e.checks if c.subject == f"input {i}" and "empty one" in c.message]
        assert bool(said) == bool(against[i])


class Hashed(nn.Module):
    """Answers that no function of sets foretells: each set has a draw of its own."""

    def forward(self, x):
        places = torch.arange(x.shape[1], dtype=x.dtype)
        odds = 3 * torch.sin(1e4 * (x.double() * (places + 1).sqrt()).sum(1))
        return torch.stack([torch.zeros_like(odds), odds], 1).to(x.dtype)


def test_a_function_that_says_little_comes_with_a_warning():
    x = torch.rand(1, 12, generator=torch.Generator().manual_seed(0))
    e = SEA(Hashed(), ["occlusion"], budget=200, output="logits").explain(x, target=1)
    (found,) = (c for c in e.checks if "says little" in c.message)
    assert found.level == "warn"
    assert found.message in e.summary()
    share = float(e.asked.compute_r2(e.predict_error, "log-odds"))
    assert share < 0.25
    assert f"R² {share:.2f}" in e.summary()


def test_r2_is_that_of_answers_left_out(explanation):
    share = explanation.asked.compute_r2(explanation.predict_error, "log-odds")
    scores = explanation.asked.answers[:, 1:].sigmoid()
    wanted = 1 - explanation.predict_error.double().square() / scores.var(1, correction=0)
    torch.testing.assert_close(share, wanted)
    said = {c.subject for c in explanation.checks if "says little" in c.message}
    assert said == {f"input {i}" for i in range(2) if share[i] < 0.25}
    assert f"R² {float(share.nanmedian()):.2f} (median)" in explanation.summary()


def test_a_constant_model_gains_nothing():
    e = SEA(lambda x: x.sum((1, 2, 3))[:, None] * torch.zeros(1, 2), budget=40, output="logits")
    found = e.explain(torch.rand(1, 1, 8, 8), target=0)
    assert float(found.gains.abs().max()) < 1e-9
    assert not bool(found.attribution.any())
    assert bool(found.find_r2().isnan().all())
    assert "R²" not in found.summary()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget must be a whole number"),
        ({"budget": 4}, "give a budget of 5 or more"),
        ({"budget": 128, "methods": "paper"}, "members alone cost 301"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        SEA(model, **options).explain(torch.rand(1, 1, 32, 32))


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({}, 512),
        ({"methods": "fast"}, 34),
        ({"methods": "thorough"}, 1024),
        ({"methods": "fast", "absent": "mean"}, 34),
        ({"methods": "paper"}, None),
        ({"methods": "saliency"}, None),
        ({"config": SEAConfig()}, None),
        ({"methods": "saliency", "budget": 64}, 64),
        ({"grid": (4, 4), "budget": 64}, 64),
    ],
)
def test_nothing_said_means_512_evaluations_and_members_or_a_config_the_paper(given, budget):
    sea = SEA(model, **given)
    assert sea.settings.budget == budget
    cheap = ("presence_gradient", "deeplift", "guided_grad_cam")
    names = tuple(entry.label for entry in sea.entries)
    assert (names == cheap) == (budget is not None and given.get("methods") != "saliency")


def test_the_default_says_what_to_do_about_constraints():
    with pytest.raises(InputError, match='methods="paper"'):
        SEA(model).explain(x, constraints=Constraints(required=torch.ones(16, 16).bool()))


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
def network():
    torch.manual_seed(0)
    parts = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3)
    return nn.Sequential(*parts).eval()


@pytest.mark.parametrize(
    "how", [{"budget": 34, "grid": (4, 4)}, {"budget": 30, "absent": "mean", "grid": (3, 3)}]
)
def test_an_explanation_on_a_gpu_is_that_of_the_cpu(how, network):
    x = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    how = {"methods": ["presence_gradient"], "output": "logits", **how}
    e = SEA(network, **how).explain(x)
    with PretendedGpu():
        other = SEA(move(network), **how).explain(to_gpu(x))
        assert all(isinstance(one, OnGpu) for one in (other.attribution, other.map("keep")))
        assert other.summary() == e.summary()
        sets = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(2)) > 0.5
        values = other.predict(to_gpu(sets), interval=0.9)
        more = SEA(move(network), **{**how, "budget": 40})
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
