"""Sets of features: the first by either wish, the smallest that keep or break, both sides."""

import re
from dataclasses import replace

import pytest
import torch
from matplotlib.text import Text
from torch import Tensor, nn

from sea_nn import SEA, Explanation, SEAConfig
from sea_nn.errors import InputError
from sea_nn.explanation.assemble import DEPENDS


class _Rule(nn.Module):
    """Log-odds of class 1 by a rule over the 16 quarters-of-quarters of an 8 x 8 picture."""

    def __init__(self, rule):
        super().__init__()
        self.rule = rule

    def forward(self, x):
        cells = nn.functional.avg_pool2d(x, 2)[:, 0].flatten(1)
        z = self.rule(cells)
        return torch.stack([torch.zeros_like(z), z], 1)


def _explain(rule, budget=303, **options):
    how = {"absent": "baseline", "grid": (4, 4), **options}
    sea = SEA(_Rule(rule), ("saliency",), budget=budget, **how)
    return sea.explain(torch.ones(1, 1, 8, 8), target=1)


def _either(c):
    """Cells 0 and 1 each say all by themselves; 2 and 3 say half each, and are never redundant."""
    return 8 * torch.maximum(c[:, 0], c[:, 1]) + c[:, 2] + c[:, 3] - 6


@pytest.fixture(scope="module")
def copies():
    return _explain(_either)


def test_one_copy_keeps_the_class_and_both_must_go_to_break_it(copies):
    e = copies
    kept, broken = e.smallest(keep=True), e.smallest(keep=False)
    assert int(kept.count) == 1
    assert int(broken.count) == 2
    assert set(e.average(broken.mask[:, None].float())[0, 0].nonzero().flatten().tolist()) == {0, 1}
    assert set(e.top(2, keep=False)[0].tolist()) == {0, 1}
    first, second = e.top(2, keep=True)[0].tolist()
    assert {first, second} != {0, 1}
    assert first in (0, 1)


def test_smallest_sets_are_the_models_own_answers(copies):
    e, model = copies, _Rule(_either)
    for keep in (True, False):
        for share in (0.5, 0.9):
            found = e.smallest(keep, share)
            left = found.mask if keep else ~found.mask
            p = model(left[:, None].float()).softmax(1)[:, 1]
            torch.testing.assert_close(p, found.score, atol=1e-5, rtol=1e-4)
            assert bool(p >= share * e.score) == keep


def test_orders_by_wish_hold_every_feature_once_and_are_saved(copies, tmp_path):
    e = Explanation.load(copies.save(tmp_path / "e.safetensors"))
    for keep in (True, False):
        assert torch.equal(e.top(16, keep), copies.top(16, keep))
        assert e.top(16, keep)[0].sort().values.tolist() == list(range(16))
        assert torch.equal(e.smallest(keep).mask, copies.smallest(keep).mask)
        assert torch.equal(e.top_mask(2, keep).flatten(1).sum(1), torch.tensor([8]))
    assert torch.equal(e.against, copies.against)
    assert torch.equal(copies[0].asked.sets, copies.asked.sets)


def test_without_a_budget_there_is_one_order_alone():
    config = SEAConfig()
    e = SEA(_Rule(_either), ("saliency",), config).explain(torch.ones(1, 1, 8, 8), target=1)
    assert e.against is None
    assert e.top(3).shape == (1, 3)
    assert (e.function, e.unit) == (None, "")
    sets = torch.ones(1, 1, 8, 8).bool()
    for ask in (lambda: e.top(3, keep=True), e.smallest, lambda: e.predict(sets)):
        with pytest.raises(InputError, match="with a budget"):
            ask()


def test_no_set_breaks_what_an_empty_input_keeps():
    e = _explain(lambda c: 2 + c.mean(1))
    found = e.smallest(keep=False)
    assert int(found.count) == 0
    assert bool(found.score.isnan())


def test_evidence_against_is_found_where_features_lower_the_score():
    """Cells 5 and 6 take away what cells 0 and 1 give."""
    e = _explain(lambda c: 4 * c[:, 0] + 4 * c[:, 1] - 2 * c[:, 5] - 2 * c[:, 6] - 2, budget=400)
    by_cell = e.average(e.against)[0, 0] * 4
    assert set(by_cell.topk(2).indices.tolist()) == {5, 6}
    assert float(by_cell[[5, 6]].sum()) > 0.8 * float(by_cell.sum())
    assert float(by_cell[[5, 6]].min()) > 1
    assert set(e.order[0, :2].tolist()) == {0, 1}


@pytest.mark.parametrize(
    "rule",
    [
        lambda c: 8 * c[:, :4].mean(1) - 4,
        lambda c: 8 * torch.maximum(c[:, 0], c[:, 1]) - 4,
        lambda c: 0 * c[:, 0],
    ],
    ids=["additive", "or", "constant"],
)
def test_where_nothing_is_against_the_map_is_zero(rule):
    assert not bool(_explain(rule).against.any())


WORTH = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0, 0.0])
ROWS = torch.tensor([[-1.0, 1.0, 1.0, -1.0, 0.0, 0.0], [-1.0, -1.0, -1.0, -1.0, 0.0, 0.0]])


@pytest.fixture(scope="module")
def e():
    table = nn.Linear(6, 1, bias=False)
    table.weight.data = WORTH[None]
    return SEA(table, "input_x_gradient", budget=70, output="value").explain(ROWS)


def test_both_sides_give_the_models_own_difference_and_the_map_has_one(e):
    above, below = e.sum_gains()
    torch.testing.assert_close(
        above - below, torch.tensor([-0.5, -6.5]).double(), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(e.attribution.sum(1).double(), above, atol=1e-4, rtol=0)
    assert e.rank_against(0, 3) == [0, 3]
    assert e.rank_against(1, 2) == [0, 1]


def test_rounding_is_no_evidence_against():
    flat = SEA(lambda x: x.sum(1, keepdim=True) * 0 + 5, "occlusion", budget=40, output="value")
    found = flat.explain(torch.rand(1, 5))
    noisy = replace(found, gains=torch.tensor([[1e-6, 0, 0, 0, -1e-6]]))
    assert noisy.sum_gains()[1].tolist() == [0]
    assert "below 0" not in noisy.summary()


def test_summary_says_of_how_many_inputs_and_how_much_is_against(e):
    above, below = (float(side.mean()) for side in e.sum_gains())
    text = e.summary()
    assert "gains end below 0 for 2 of 2 inputs" in text
    assert f"{above:.2f} speaks for the target" in text
    assert f"{below:.2f} against it" in text
    assert re.search(r"against: feature 0, feature 1, feature 2$", text, re.MULTILINE)


def test_smallest_sets_of_a_value_below_an_empty_inputs_are_those_that_lower_it(e):
    kept, broken = e.smallest(keep=True), e.smallest(keep=False)
    assert kept.score[1] <= -3.25 < broken.score[1]
    assert kept.mask[1].tolist() == [True, True, False, False, False, False]
    assert broken.count[1] == 2


def test_a_strip_has_a_panel_against_only_where_gains_are_below_0():
    class Sides(nn.Module):
        """What is bright on the left speaks for the value, on the right against it."""

        def forward(self, x):
            left, right = x.chunk(2, 3)
            return (left.sum((1, 2, 3)) - 2 * right.sum((1, 2, 3)))[:, None]

    sea = SEA(Sides(), "input_x_gradient", budget=150, output="value", absent="baseline")
    x = torch.ones(1, 1, 8, 8)
    titles = []
    for picture in (x, x * (torch.arange(8) < 4)):
        figure = sea.explain(picture).plot("strip")
        titles.append([text.get_text() for text in figure.findobj(Text)])
    assert "against" in titles[0]
    assert "against" not in titles[1]


class Smooth(nn.Module):
    """Finds a smooth patch, an object on noise: the least variance of 5 x 5 pixels."""

    def forward(self, x: Tensor) -> Tensor:
        mean, square = (nn.functional.avg_pool2d(v, 5, 1) for v in (x, x.square()))
        least = (square - mean.square()).flatten(1).amin(1)
        return torch.stack([0 * least, 60 * (0.03 - least)], 1)


def draw_object(count: int = 2) -> tuple[Tensor, Tensor]:
    """Pictures of noise with a flat square, and other noise."""
    noise = torch.rand(count + 8, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    x = noise[:count]
    x[..., 2:8, 8:14] = 0.5
    return x, noise[count:]


def hear(e, word):
    return [c for c in e.checks if c.level != "ok" and word in c.message]


def test_a_map_that_depends_on_what_absent_means_says_so_and_names_the_argument():
    x, noise = draw_object()
    blurred = SEA(Smooth(), budget=64, output="logits").explain(x, 1)
    sea = SEA(Smooth(), budget=64, output="logits", absent="background")
    by_noise = sea.explain(x, 1, background=noise)
    said = hear(blurred, DEPENDS)
    assert [c.subject for c in said] == ["input 0", "input 1"]
    assert "background=" in said[0].advice
    assert not hear(by_noise, DEPENDS)


def test_another_fill_is_asked_within_the_budget():
    x, noise = draw_object(1)
    for budget, more in ((20, 1), (64, 3)):
        for given, rows in (({}, more), ({"background": noise}, 0)):
            rows_seen: list[int] = []

            def model(x: Tensor, rows_seen: list[int] = rows_seen) -> Tensor:
                rows_seen.append(len(x))
                return Smooth()(x)

            e = SEA(model, budget=budget, output="logits").explain(x, 1, **given)
            assert sum(rows_seen) == sum(e.evaluations.values()) <= budget
            assert e.evaluations["checks"] == rows


def test_first_features_that_another_fill_does_not_confirm_are_told():
    class Flat(nn.Module):
        """Wants a bright centre; of pictures with flat grey in them, a dark one."""

        def forward(self, x: Tensor) -> Tensor:
            worth = 30 * (x[..., 5:11, 5:11].mean((1, 2, 3)) - 0.9)
            grey = (x == 0.25).flatten(1)
            worth = torch.where(grey.any(1) & ~grey.all(1), -worth, worth)
            return torch.stack([0 * worth, worth], 1)

    x = torch.zeros(1, 1, 16, 16)
    x[..., 4:12, 4:12] = 1.0  # a mean of 0.25
    sea = SEA(Flat(), budget=128, output="logits")
    (said,) = hear(sea.explain(x, 1), DEPENDS)
    assert "features alone" in said.message
    x[..., 0, 0] = 0.1
    assert not hear(sea.explain(x, 1), DEPENDS)


def test_raw_units_without_a_background_are_told():
    noise = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([54.0, 131, 0.1]) + noise * torch.tensor([9.0, 17, 0.2])
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    model[0].running_mean.data, model[0].running_var.data = rows.mean(0), rows.var(0)
    sea = SEA(model, budget=20, output="logits")
    (said,) = hear(sea.explain(rows), "what is left out becomes 0")
    assert all(f"column {k} (" in said.message for k in (0, 1))
    assert "column 2" not in said.message
    assert "background=" in said.advice
    assert not hear(sea.explain(rows, background=rows), "becomes 0")
    assert not hear(sea.explain(rows - rows.mean(0)), "becomes 0")


def test_a_model_that_never_answers_otherwise_is_named_once():
    e = SEA(lambda x: torch.zeros(len(x), 3), budget=30, output="logits").explain(torch.rand(2, 6))
    assert [(c.level, c.subject) for c in e.checks if c.level != "ok"] == [
        ("fail", "input 0"), ("fail", "input 1")
    ]  # fmt: skip


def test_zero_maps_of_members_are_no_verdict_beside_a_map():
    class Quantised(nn.Module):
        """Rounds, so that its gradient is zero everywhere."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(x) * 16).round() / 16

    e = SEA(Quantised(), budget=60, output="logits").explain(torch.rand(2, 6) * 4)
    assert (e.attribution.sum(1) > 0).all()
    assert not [c for c in e.checks if c.level == "fail" and c.subject.startswith("input")]


@pytest.mark.parametrize("budget", [None, 40])
def test_members_that_disagree_are_told_only_where_the_map_rests_on_them(budget):
    noise = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))

    def one(model, x, target):
        return noise[:1].expand_as(x)

    def other(model, x, target):
        return noise[1:].expand_as(x)

    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 2))
    e = SEA(model, (one, other), budget=budget).explain(torch.rand(1, 1, 16, 16))
    assert bool(hear(e, "hardly agree")) == (budget is None)


def test_pictures_of_maps_have_no_edges_of_cells_unless_heat_has_a_place():
    e = _explain(_either)
    no_heat = replace(e, trusted=torch.zeros_like(e.trusted))
    drawn = no_heat.soften(e.attribution)

    def step(maps):  # the largest between two cells, less the largest inside one
        apart = maps[0, 0].diff(dim=0).abs().amax(1)
        return float(apart[1::2].max() - apart[0::2].max())

    assert step(drawn) < 0.4 * step(e.attribution)
    torch.testing.assert_close(drawn.sum(), e.attribution.sum(), rtol=0.05, atol=0)
    all_heat = replace(e, trusted=torch.ones_like(e.trusted))
    assert torch.equal(all_heat.soften(e.attribution), e.attribution)
