"""Sets of features: the first by either wish, the smallest that keep or break, evidence against."""

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation, SEAConfig
from sea_nn.errors import InputError


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
