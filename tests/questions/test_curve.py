"""The model's own answers along an order, and the classes it finds likeliest."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sea_nn import SEA, Explanation
from sea_nn.errors import InputError
from sea_nn.questions.absent import blur
from sea_nn.questions.asked import predict_curve
from sea_nn.questions.learn import choose_counts
from tests.helpers.networks import build_pooled, draw_bright

model, x = build_pooled(), draw_bright()


@pytest.fixture(scope="module")
def explanation():
    return SEA(model, budget=150).explain(x, target=[0, 1], labels=["a", "b", "c"])


def test_points_are_what_the_model_says(explanation):
    e = explanation
    assert e.curve.counts.tolist() == [0, 4, 8, 16, 32, 64]
    for k, p in enumerate(e.curve.counts.tolist()):
        kept = e.top_mask(p)[:, None]
        for part, left in ((e.curve.left, kept), (e.curve.removed, ~kept)):
            said = model(torch.where(left, x, blur(x))).softmax(1)
            torch.testing.assert_close(part[:, k], said[[0, 1], [0, 1]], atol=1e-5, rtol=0)


def test_line_of_the_function_meets_the_model_at_both_ends(explanation):
    e = explanation
    left, removed = predict_curve(e.function, e.order)
    assert left.shape == removed.shape == (2, 65)
    for end in (0, -1):
        assert torch.allclose(left[:, end].float(), e.curve.left[:, end], atol=0.02)
        assert torch.allclose(removed[:, end].float(), e.curve.removed[:, end], atol=0.02)
    some = torch.stack([e.top_mask(p) for p in (3, 20)], 1)
    torch.testing.assert_close(e.predict(some), left[:, [3, 20]].float())


def test_points_cost_at_most_a_twelfth_of_the_questions():
    for questions in (3, 23, 24, 100, 508, 5000):
        for n in (1, 2, 5, 64, 256):
            counts = choose_counts(questions, n)
            assert 2 * len(counts) <= questions / 12
            assert all(0 < p < n for p in counts)


def test_where_every_set_was_asked_nothing_more_is():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(2))
    e = SEA(model, ("saliency",), budget=60).explain(x, target=1)
    assert sum(e.provenance.evaluations.values()) / 2 <= 2 + 32
    for k, p in enumerate(e.curve.counts.tolist()):
        said = model(torch.where(e.top_mask(p), x, 0)).softmax(1)[:, 1]
        torch.testing.assert_close(e.curve.left[:, k], said, atol=1e-5, rtol=0)


def test_curves_and_rankings_are_saved_and_sliced(explanation, tmp_path):
    e = Explanation.load(explanation.save(tmp_path / "e.safetensors"))
    for name in ("counts", "left", "removed"):
        assert torch.equal(getattr(e.curve, name), getattr(explanation.curve, name))
    assert torch.equal(e[1].curve.left, e.curve.left[1:])
    assert torch.equal(e.ranking.classes, explanation.ranking.classes)
    assert e.ranking.names == explanation.ranking.names
    assert e[1].ranking.names == e.ranking.names[1:]
    assert (
        SEA(nn.Flatten(), ("saliency",), output="logits").explain(torch.rand(1, 1, 4, 4)).curve
        is None
    )


def test_ranking_is_the_models_own(explanation):
    probabilities = model(x).softmax(1)
    for i, names in enumerate(explanation.ranking.names):
        best = probabilities[i].argsort(descending=True).tolist()
        assert list(names) == [["a", "b", "c"][k] for k in best]
        torch.testing.assert_close(explanation.ranking.scores[i], probabilities[i][best])
    value = SEA(model, ("saliency",), output="value").explain(x, target=0)
    assert value.ranking is None


def test_parts_that_do_not_fit_are_refused(explanation):
    e = explanation
    with pytest.raises(InputError, match=r"curve\.left must be"):
        replace(e, curve=replace(e.curve, left=e.curve.left[:1]))
    with pytest.raises(InputError, match=r"curve\.counts must lie"):
        replace(e, curve=replace(e.curve, counts=e.curve.counts + 1))
    with pytest.raises(InputError, match=r"ranking\.scores must be"):
        replace(e, ranking=replace(e.ranking, classes=e.ranking.classes[:, :1]))
