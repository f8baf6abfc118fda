"""Questions in rounds: what is there after each, when they end, and going on from them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation, Running
from sea_nn.errors import InputError
from sea_nn.features import TABLE
from sea_nn.questions.absent import prepare
from tests.helpers.networks import build_pooled, draw_bright

model, x = build_pooled(), draw_bright()


@pytest.fixture(scope="module")
def whole():
    return SEA(model, budget=60).explain(x, target=[0, 1])


def _spent(e):
    return sum(e.provenance.evaluations.values())


def test_every_round_gives_an_explanation_and_costs_nothing_more(whole):
    seen = []
    e = SEA(model, budget=60).explain(x, target=[0, 1], running=Running(on_round=seen.append))
    assert len(seen) >= 3
    assert all(isinstance(part, Explanation) for part in seen)
    asked = [part.function.n_answers for part in seen]
    assert asked == sorted(set(asked))
    for part in seen:
        assert part.attribution.shape == e.attribution.shape
        torch.testing.assert_close(part.gains.sum(1), e.gains.sum(1), atol=1e-4, rtol=1e-4)
        assert part.predict_error.shape == (2,)
    assert _spent(e) == _spent(whole)
    assert torch.equal(e.order, whole.order)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"on_round": lambda e: False}, "asked for no more"),
        ({"seconds": 0.0}, "the time is up"),
        ({"tolerance": 1.0}, "below the tolerance"),
    ],
)
def test_questions_end_when_told_and_a_check_says_so(whole, options, why):
    e = SEA(model, budget=60).explain(x, target=[0, 1], running=Running(**options))
    assert _spent(e) < _spent(whole)
    assert e.function.n_answers > 0
    assert any(why in check.message for check in e.checks)


class _Interrupting(nn.Module):
    """Raises an interrupt at its n-th forward pass of a batch."""

    def __init__(self, model, after):
        super().__init__()
        self.model, self.after = model, after

    def forward(self, x):
        _Interrupting.passed += len(x)
        if _Interrupting.passed > self.after:
            raise KeyboardInterrupt
        return self.model(x)


def test_an_interrupt_returns_what_was_answered(whole):
    _Interrupting.passed = 0
    e = SEA(_Interrupting(model, 84), budget=60).explain(x, target=[0, 1])
    assert 0 < e.function.n_answers < whole.function.n_answers
    assert bool(e.attribution.any())
    assert any("interrupted" in check.message for check in e.checks)
    torch.testing.assert_close(e.gains.sum(1), whole.gains.sum(1), atol=1e-3, rtol=1e-3)


def test_an_interrupt_before_any_answer_is_the_callers():
    _Interrupting.passed = 0
    with pytest.raises(KeyboardInterrupt):
        SEA(_Interrupting(model, 1), budget=60).explain(x)


def test_another_class_needs_no_new_question(whole):
    e = SEA(model, budget=60).explain(x, target=2, previous=whole)
    checked = 5 + 2  # another fill, and the whole inputs twice
    assert e.provenance.evaluations["sea"] <= (2 * len(whole.curve.counts) + checked) * len(x)
    assert e.function.n_answers == whole.function.n_answers
    assert torch.equal(e.asked.sets, whole.asked.sets)
    assert e.target.tolist() == [2, 2]


def test_two_classes_and_their_contrast_are_answered_by_the_same_questions(whole):
    sea = SEA(model, budget=60)
    a, b, pair = (sea.explain(x, target=t, previous=whole) for t in (0, 1, (0, 1)))
    z = pair.asked.outputs[:, :, 0]
    torch.testing.assert_close(
        (z[..., 0] - z[..., 1]).double(), pair.asked.answers, atol=1e-3, rtol=0
    )
    for e, k in ((a, 0), (b, 1)):
        torch.testing.assert_close(e.asked.answers, z.softmax(2)[..., k].double().logit())


def test_a_larger_budget_goes_on_from_the_questions_asked(whole):
    e = SEA(model, budget=90).explain(x, target=[0, 1], previous=whole)
    before = whole.asked.sets.shape[1]
    assert torch.equal(e.asked.sets[:, :before], whole.asked.sets)
    torch.testing.assert_close(e.asked.answers[:, :before], whole.asked.answers)
    assert e.function.n_answers > whole.function.n_answers
    assert before + _spent(e) / 2 <= 94


def test_what_is_reused_gives_the_map_of_the_same_questions_from_scratch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(1, 6)
    first = SEA(model, budget=26).explain(x, 0)
    asked, absent = first.asked, prepare(x, TABLE.absent)
    with torch.no_grad():  # the same questions, put to the model anew
        said = model(absent.hide(~asked.sets[0], torch.zeros(asked.sets.shape[1]).long()))
    fresh = replace(first, members=(), asked=replace(asked, outputs=said[None, :, None]))
    sea = SEA(model, budget=30)
    for target, saved in ((0, 10), (2, 0)):
        reused, scratch = (sea.explain(x, target, previous=one) for one in (first, fresh))
        torch.testing.assert_close(reused.attribution, scratch.attribution, atol=1e-5, rtol=1e-4)
        assert torch.equal(reused.maps, scratch.maps)
        assert _spent(scratch) - _spent(reused) == saved


def test_previous_explanations_that_do_not_fit_are_refused(whole, tmp_path):
    sea = SEA(model, budget=60)
    with pytest.raises(InputError, match="other inputs"):
        sea.explain(x.flip(0), previous=whole)
    with pytest.raises(InputError, match="the same inputs"):
        sea.explain(x[:1], previous=whole)
    with pytest.raises(InputError, match="loaded from a file"):
        sea.explain(x, previous=Explanation.load(whole.save(tmp_path / "e.safetensors")))
    with pytest.raises(InputError, match="with a budget"):
        sea.explain(x, previous=SEA(model, "saliency").explain(x))


def test_parts_of_a_batch_can_go_on_alone(whole):
    e = SEA(model, budget=60).explain(x[1:], target=1, previous=whole[1])
    torch.testing.assert_close(e.asked.answers, whole[1].asked.answers)
