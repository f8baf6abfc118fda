"""Tables and their backgrounds; several inputs of one call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sea_nn import SEA, About, Explanation, NumpyModel
from sea_nn.errors import InputError, KindError, MemberError
from sea_nn.features import Kind
from sea_nn.questions.absent import blur, choose_draws, prepare
from sea_nn.show.viewer import write_report
from tests.helpers.networks import ask_only
from tests.reference.all_sets import Columns, greedy_order, score_sets

TABLE = Kind("table", 2)


class Planted:
    """log-odds = 4 max(a, b) + 3 c d + e - 3: copies, an interaction, a plain column, nothing."""

    def __call__(self, x):
        a, b, c, d, e = x[:, :5].unbind(1)
        odds = 4 * torch.maximum(a, b) + 3 * c * d + e - 3
        return torch.stack([odds, torch.zeros_like(odds)], 1).softmax(1)


def ask_arrays(rows):
    """The same as a model of NumPy's arrays."""
    return Planted()(torch.as_tensor(rows)).numpy()


@pytest.fixture
def background():
    return torch.rand(30, 6, generator=torch.Generator().manual_seed(1)) * 0.2


def test_answers_are_means_over_draws_of_the_background(background):
    x = torch.ones(1, 6)
    drawn = {"background": background, "draws": 30, "output": "probabilities"}
    truth = score_sets(Planted(), x[0], background, 0, Columns(6))
    for chosen in [(), (0,), (0, 2), (0, 1, 2, 3, 4, 5)]:
        said = ask_only(Planted(), x, 0, Columns(6)(chosen)[None, None], "background", **drawn)
        torch.testing.assert_close(said, torch.tensor([[truth[frozenset(chosen)]]]))


def test_with_room_for_all_sets_order_and_gains_are_those_of_every_set(background):
    x = torch.ones(1, 6)
    background = background[:16]
    sea = SEA(NumpyModel(ask_arrays), budget=1100, output="probabilities")
    e = sea.explain(x, target=0, background=background)
    truth = score_sets(Planted(), x[0], background, 0, Columns(6))
    best = greedy_order(truth, 6)
    assert e.order[0, 0] == best[0]
    assert e.function.n_answers == 63  # of all sets but the whole
    assert 1000 < sum(e.provenance.evaluations.values()) <= 1100  # draws of the background
    logit = torch.tensor([truth[frozenset(range(6))], truth[frozenset()]]).double().logit()
    torch.testing.assert_close(e.gains.sum().double(), logit[0] - logit[1], rtol=1e-4, atol=1e-4)
    assert e.attribution[0, 5] < 0.15  # a column that the model does not use


def test_few_questions_take_the_mean_of_the_background_and_many_draw_from_it(background):
    assert choose_draws(60, 6, None, background) == 1
    assert choose_draws(300, 6, None, background) == 1
    assert choose_draws(500, 6, None, background) == 8
    assert choose_draws(10_000, 6, None, background) == 16
    assert choose_draws(10_000, 6, None, background[:3]) == 1
    assert choose_draws(100, 6, "background", background) == 1
    assert choose_draws(10_000, 6, "baseline", background) == 1


def test_a_model_of_arrays_is_explained_by_asking_it(background):
    sea = SEA(NumpyModel(ask_arrays), budget=128, output="probabilities")
    e = sea.explain(torch.ones(2, 6), background=background)
    assert e.methods == ()
    assert e.evaluations == {"members": 0, "questions": 64, "checks": 0}  # every set
    with pytest.raises(InputError, match="budget of 4 or more"):
        SEA(NumpyModel(lambda r: r), budget=3, output="logits").explain(torch.ones(2, 6))
    sea = SEA(NumpyModel(lambda r: r), "saliency", budget=64, output="logits")
    with pytest.raises(MemberError):
        sea.explain(torch.ones(2, 6))


def test_members_start_from_the_backgrounds_mean(background):
    model = torch.nn.Linear(6, 2)
    x = torch.rand(2, 6)
    methods = ("input_x_gradient", "integrated_gradients")
    given = SEA(model, methods).explain(x, baselines=background.mean(0))
    found = SEA(model, methods).explain(x, background=background)
    assert torch.equal(given.maps, found.maps)


def test_values_outside_the_background_are_named(background):
    x = torch.full((2, 6), 0.1)
    x[1, 3] = 7.0
    names = ["a", "b", "c", "d", "e", "f"]
    e = SEA(Planted(), budget=64, output="probabilities").explain(
        x, background=background, about=About(feature_names=names)
    )
    said = [c for c in e.checks if "background" in c.message]
    assert [(c.subject, c.message) for c in said] == [
        ("input 1", "outside what the background has: d")
    ]


def test_groups_of_columns_have_names(background):
    mask = torch.tensor([0, 0, 1, 1, 2, 3])
    names = ["red", "blue", "c", "d", "e", "f"]
    e = SEA(Planted(), budget=64, output="probabilities").explain(
        torch.ones(1, 6), background=background, feature_mask=mask, about=About(feature_names=names)
    )
    assert [e.name_feature(k) for k in range(4)] == ["red and 1 more", "c and 1 more", "e", "f"]


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (torch.zeros(3, 5), InputError, r"\[B, 6\]"),
        (torch.zeros(0, 6), InputError, "B >= 1"),
        (torch.zeros(3, 6, dtype=torch.long), KindError, "floating"),
        (torch.full((3, 6), torch.nan), InputError, "3 of 3 rows: leave these rows out"),
    ],
)
def test_a_background_that_does_not_fit_is_refused(wrong, error, match):
    sea = SEA(Planted(), budget=64, output="probabilities")
    with pytest.raises(error, match=match):
        sea.explain(torch.ones(1, 6), background=wrong)


def test_one_column_and_columns_of_nan():
    one = SEA(torch.nn.Linear(1, 2), budget=16).explain(torch.ones(2, 1))
    assert one.order.tolist() == [[0], [0]]
    assert not [c for c in one.checks if "everywhere" in c.message]  # one value is no flat map
    x = torch.ones(2, 6)
    x[:, 2] = torch.nan
    with pytest.raises(InputError, match="columns 2"):
        SEA(Planted(), budget=64, output="probabilities").explain(x)


def test_interpolation_follows_the_line_between_what_is_left():
    x = torch.tensor([[[0.0, 9, 9, 3, 5, 7]]])
    hidden = torch.tensor([[[False, True, True, False, False, True]]])
    said = prepare(x, "interpolate").hide(hidden, torch.tensor([0]))
    assert said.tolist() == [[[0.0, 1, 2, 3, 5, 5]]]
    gone = prepare(x, "interpolate").hide(torch.ones_like(hidden), torch.tensor([0]))
    torch.testing.assert_close(gone, x.mean().expand_as(x))
    with pytest.raises(InputError, match=r"\[N, C, T\]"):
        prepare(torch.rand(1, 4), "interpolate")


class Both(nn.Module):
    """Log-odds: the mean of an image's lower right quarter, and two of a row's columns."""

    def __init__(self):
        super().__init__()
        self.flatten, self.last = nn.Flatten(), nn.Linear(2 * 64 + 3, 2)
        weight = torch.zeros(2, 2, 8, 8)
        weight[1, :, 4:, 4:] = 4 / 32
        self.last.weight.data = torch.cat(
            [weight.flatten(1), torch.tensor([[0, 0, 0], [0.0, 1, 2]])], 1
        )
        self.last.bias.data = torch.tensor([0.0, -3.5])

    def forward(self, image, row):
        return self.last(torch.cat([self.flatten(image), row], 1))


@pytest.fixture
def inputs():
    return torch.ones(2, 2, 8, 8), torch.ones(2, 3)


@pytest.fixture(scope="module")
def learned():
    sea = SEA(Both(), absent="baseline", budget=128)
    return sea.explain((torch.ones(2, 2, 8, 8), torch.ones(2, 3)), target=1)


def test_a_tuple_or_dict_in_is_a_tuple_or_dict_out_on_one_scale(inputs, learned):
    image, row = inputs
    maps = SEA(Both(), "saliency").attribute(inputs, target=1)
    assert [tuple(m.shape) for m in maps] == [(2, 1, 8, 8), (2, 3)]
    sea = SEA(Both(), absent="baseline", budget=128)
    named = sea.attribute({"row": row, "image": image}, target=1)
    assert list(named) == ["row", "image"]
    for maps in ((named["image"], named["row"]), [learned.part(k).attribution for k in (0, 1)]):
        total = maps[0].flatten(1).sum(1) + maps[1].sum(1)
        torch.testing.assert_close(total, learned.gains.clamp(min=0).sum(1), rtol=0.01, atol=0)
        assert (maps[0][:, 0, 4:, 4:].sum((1, 2)) > 0.7 * maps[0].flatten(1).sum(1)).all()
        assert (maps[1][:, 2] > maps[1][:, 1]).all()
        assert (maps[1][:, 0] < 0.05 * maps[1][:, 2]).all()


def test_parts_are_explanations_of_their_kind_and_survive_a_file(tmp_path, inputs):
    generator = torch.Generator().manual_seed(0)
    given = {"image": torch.rand(2, 2, 8, 8, generator=generator), "row": inputs[1]}
    e = SEA(Both(), ("saliency", "input_x_gradient")).explain(given, target=1)
    again = Explanation.load(e.save(tmp_path / "both.safetensors"))
    for one in (e, again):
        image, row = one.part("image"), one.part(1)
        assert (image.kind, image.shape, row.kind, row.shape) == ("image", (8, 8), "table", (3,))
        assert image.order.shape == (2, 64)
        assert row.order.tolist() == [[2, 1, 0]] * 2
    assert torch.equal(again.part("row").attribution, e.part("row").attribution)
    e.part("row").plot("strip", tmp_path / "row.png")
    assert write_report(e, tmp_path / "both.html").stat().st_size > 10_000
    with pytest.raises(InputError, match=r"part\(...\)"):
        e.plot("strip")
    with pytest.raises(InputError, match="image, row"):
        e.part("sound")


def test_baselines_masks_and_background_go_by_input(inputs):
    image, row = inputs
    sea = SEA(Both(), budget=40)
    mask = {"image": torch.arange(8) // 4, "row": torch.tensor([0, 0, 1])}
    given = {"image": image, "row": row}
    e = sea.explain(given, target=1, feature_mask=mask)
    assert e.order.shape == (2, 4)
    assert e.part("row").order.shape == (2, 2)
    others = (torch.zeros(20, 2, 8, 8), torch.rand(20, 3))
    blurred = SEA(Both(), absent="blur", budget=40)
    e = blurred.explain(inputs, target=1, background=others)  # rows cannot be blurred: their mean
    with torch.no_grad():
        out = Both()(blur(image), others[1].mean(0).expand(2, -1))
    empty = (out[:, 1] - out[:, 0]).double()
    torch.testing.assert_close(e.asked.answers[:, 0].double(), empty, atol=1e-4, rtol=0)
    e = sea.explain(inputs, target=1, baselines=(0.5, torch.zeros(3)))
    assert e.order.shape == (2, 67)
    with pytest.raises(InputError, match="tuple like the inputs"):
        sea.explain(inputs, target=1, baselines=torch.zeros(3))
    with pytest.raises(InputError, match="dict like the inputs"):
        sea.explain(given, target=1, feature_mask={"sound": mask["row"]})


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ((torch.ones(2, 2, 8, 8), torch.ones(3, 3)), InputError, "input 0 2 .*, input 1 3 "),
        ((torch.ones(2, 2, 8, 8), torch.ones(2, 3).double()), InputError, "one type"),
        ((torch.ones(2, 2, 8, 8), torch.ones(2, 3).long()), KindError, "input 1: .*floating"),
        ((torch.ones(2, 2, 8, 8), torch.full((2, 3), torch.nan)), InputError, "input 1: .*NaN"),
        ((), InputError, "no input"),
        ([[1.0, 2.0], [1.0]], KindError, "tuple or dict"),
    ],
)
def test_inputs_that_do_not_go_together_are_refused(wrong, error, match):
    with pytest.raises(error, match=match):
        SEA(Both(), budget=64).explain(wrong, target=1)


def test_the_model_comes_back_and_a_tuple_of_one_is_that_one(inputs):
    model = Both()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    SEA(model, budget=64).attribute(inputs, target=1)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    linear, x = nn.Linear(4, 2), torch.rand(2, 4)
    sea = SEA(linear, "integrated_gradients")
    (one,) = sea.attribute((x,), baselines=(0.5,))
    assert torch.equal(one, sea.attribute(x, baselines=0.5))
