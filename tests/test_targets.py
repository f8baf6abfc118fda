"""What is explained: a class, a class and not another, or a number read off any output."""

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from sea_nn import SEA, Explanation
from sea_nn.cli import app
from sea_nn.errors import InputError
from sea_nn.members.callables import from_captum
from sea_nn.members.run import compute_maps
from sea_nn.questions.absent import blur
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
    ],
)
def test_pairs_that_mean_nothing_are_refused(target, message):
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


def test_a_function_that_gives_no_number_an_input_is_refused():
    with pytest.raises(InputError, match="one number an input"):
        SEA(model, budget=40).explain(x, target=lambda output: output)


def test_the_command_line_explains_one_class_against_another(tmp_path):
    words = ["explain", "--demo", "--model", "fashion-cnn", "--budget", "40", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--target", "5", "--not", "7"])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.rglob("explanation.safetensors")
    e = Explanation.load(path)
    assert (int(e.target[0]), int(e.rival[0])) == (5, 7)
    assert ", not " in e.name(0)
    assert CliRunner().invoke(app, [*words, "--not", "7"]).exit_code == 2
