"""What is explained, a class or another number, and in how many rounds."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from sea_nn import SEA, Explanation, Running
from sea_nn.cli import app
from sea_nn.errors import InputError
from sea_nn.features import TABLE
from sea_nn.members.callables import from_captum
from sea_nn.members.run import compute_maps
from sea_nn.questions.absent import blur, prepare
from tests.helpers.networks import build_pooled, draw_bright

model, x = build_pooled(), draw_bright()


def _difference(model, x, a, b):
    with torch.no_grad():
        return model(x)[:, a] - model(x)[:, b]


def test_gains_of_a_contrast_sum_to_the_change_of_the_logits_difference():
    e = SEA(model, budget=64).explain(x, target=(2, 0))
    wanted = _difference(model, x, 2, 0) - _difference(model, blur(x), 2, 0)
    torch.testing.assert_close(e.gains.sum(1), wanted, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(e.score, _difference(model, x, 2, 0).sigmoid())
    assert e.unit == "log-odds"
    whole = torch.ones(2, 1, 16, 16, dtype=torch.bool)
    torch.testing.assert_close(e.predict(whole)[:, 0], e.score, atol=2e-3, rtol=0)


def test_members_of_a_contrast_explain_the_difference():
    methods = ("saliency", "integrated_gradients", "guided_grad_cam", "deeplift", "occlusion")
    pair = compute_maps(model, x, (2, 0), methods)
    single = nn.Linear(3, 1, bias=False)
    single.weight.data = torch.tensor([[-1.0, 0.0, 1.0]])
    folded = nn.Sequential(*model, single).eval()
    wanted = compute_maps(folded, x, 0, methods, output="value")
    for name in methods:
        torch.testing.assert_close(pair.maps[name], wanted.maps[name], atol=1e-5, rtol=1e-4)


def test_callables_get_a_model_of_the_difference():
    import captum

    member = from_captum(captum.attr.InputXGradient)
    found = compute_maps(model, x, (2, 0), ["input_x_gradient", member])
    torch.testing.assert_close(*found.maps.values())
    with pytest.raises(Exception, match="one pair of classes for all inputs"):
        compute_maps(model, x, [(2, 0), (1, 0)], [member])


def test_each_input_may_have_its_own_pair():
    sea = SEA(model, budget=40)
    both = sea.explain(x, target=[(2, 0), (0, 1)])
    alone = sea.explain(x[1:], target=(0, 1))
    torch.testing.assert_close(both[1].gains, alone.gains, atol=1e-4, rtol=1e-3)
    assert both.target.tolist() == [2, 0]
    assert both.rival.tolist() == [0, 1]


def test_a_contrast_is_named_saved_and_sliced(tmp_path):
    e = SEA(model, budget=40).explain(x, target=(2, 0), labels=["cat", "dog", "owl"])
    assert e.name(0) == "owl, not cat"
    assert "owl, not cat" in e.summary()
    assert "only be one of the two" in e.summary()
    loaded = Explanation.load(e.save(tmp_path / "e.safetensors"))
    assert torch.equal(loaded.rival, e.rival)
    assert loaded[1].name(0) == "owl, not cat"


def test_values_are_contrasted_by_their_difference():
    table = nn.Linear(4, 2, bias=False)
    table.weight.data = torch.tensor([[3.0, 0.0, 1.0, 5.0], [1.0, 0.0, 0.0, 5.0]])
    e = SEA(table, budget=30, output="value").explain(torch.ones(1, 4), target=(0, 1))
    torch.testing.assert_close(e.score, torch.tensor([3.0]))
    torch.testing.assert_close(e.gains.sum(1), torch.tensor([3.0]))
    assert e.order[0, 0] == 0
    assert e.unit == "value"
    assert e.name(0) == "output 0, not 1"


def test_probabilities_are_contrasted_by_their_ratio():
    model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
    x = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
    e = SEA(model, budget=30, output="probabilities").explain(x, target=(0, 1))
    p = model(x).detach()
    torch.testing.assert_close(e.score, p[:, 0] / (p[:, 0] + p[:, 1]))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((1, 1), "must differ"),
        ((0, 1, 2), "a tuple is a pair"),
        ((0, 7), "out of range"),
        ([(0, 1)] * 3, "for each of the 2 inputs"),
        (lambda output: output, "one number an input"),
    ],
)
def test_targets_that_mean_nothing_are_refused(target, message):
    with pytest.raises(InputError, match=message):
        SEA(model, budget=40).explain(x, target=target)


def test_a_function_of_a_dense_output_is_explained():
    """A segmentation's sum over a mask: only what lies under the mask can matter."""
    dense = nn.Conv2d(1, 2, 1, bias=False)
    dense.weight.data = torch.tensor([-1.0, 2.0]).view(2, 1, 1, 1)
    mask = torch.zeros(16, 16)
    mask[:4, :4] = 1

    def area(output):
        return (output[:, 1] * mask).sum((1, 2))

    x = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(1)) + 1
    sea = SEA(dense, ("saliency",), absent="baseline", budget=150)
    e = sea.explain(x, target=area)
    torch.testing.assert_close(e.score, area(dense(x)).detach())
    assert e.unit == "value"
    assert e.name(0) == "area"
    inside = (e.attribution[:, 0] * mask).sum((1, 2)) / e.attribution.sum((1, 2, 3))
    assert float(inside.min()) > 0.95
    assert sea.attribute(x, target=lambda output: output[:, 0].mean((1, 2))).shape == x.shape


def test_the_command_line_explains_one_class_against_another(tmp_path):
    words = ["explain", "--demo", "--model", "fashion-cnn", "--budget", "40", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--target", "5", "--not", "7"])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.rglob("explanation.safetensors")
    e = Explanation.load(path)
    assert (int(e.target[0]), int(e.rival[0])) == (5, 7)
    assert ", not " in e.name(0)
    assert CliRunner().invoke(app, [*words, "--not", "7"]).exit_code == 2


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
