"""Explanations with gains below 0: sums of both sides, sets, files and what is said of them."""

import re
from dataclasses import replace

import pytest
import torch
from matplotlib.text import Text
from torch import nn

from sea_nn import SEA

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
    assert "of 2 of 2 inputs gains end below 0" in text
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
