"""What a model's outputs mean: one answer for members, questions, metrics, files and words."""

import json
import re
import warnings

import pytest
import torch
from matplotlib.text import Text
from torch import Tensor, nn

from sea_nn import SEA, Explanation, explain_dataset, read_dataset
from sea_nn.app.session import Session
from sea_nn.app.subjects import Columns, of_columns
from sea_nn.errors import AssumptionWarning, InputError, KindError
from sea_nn.members.run import compute_maps
from sea_nn.metrics import query_sets, score_maps
from sea_nn.model.outputs import OUTPUTS, Output, find_output
from sea_nn.show.viewer import write_report
from sea_nn.vision.names import ASSETS
from sea_nn.vision.shipped import load_cnn
from tests.helpers.networks import ask_only

FAST = ("saliency", "input_x_gradient")
ENDS = {
    "logits": (3, nn.Identity()),
    "probabilities": (3, nn.Softmax(1)),
    "labels": (3, nn.Sigmoid()),
    "sigmoid": (3, nn.Identity()),
    "value": (1, nn.Identity()),
}


def build(kind: str, features: int = 64) -> nn.Module:
    columns, end = ENDS[kind]
    generator = torch.Generator().manual_seed(1)
    linear = nn.Linear(features, columns)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(linear.weight.shape, generator=generator) / 4)
        linear.bias.copy_(torch.tensor([0.3, -0.2, 0.1])[:columns])
    return nn.Sequential(nn.Flatten(), linear, end).eval()


def truth(kind: str, raw: Tensor) -> Tensor:
    """The score of every column, written out."""
    if kind == "logits":
        return raw.exp() / raw.exp().sum(1, keepdim=True)
    return 1 / (1 + (-raw).exp()) if kind == "sigmoid" else raw


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=OUTPUTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("outputs", "expected", "notice"),
    [
        ([[2.0, -1.0, 0.3]], "logits", ""),
        ([[0.7, 0.2, 0.2]], "labels", 'output="labels"'),
        ([[1.2, -0.2]], "logits", ""),
        ([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]], "probabilities", 'output="probabilities"'),
        ([[0.7, 0.2, 0.1], [0.0, 1.0, 0.5]], "labels", 'output="logits"'),
        ([[0.2], [0.9]], "probabilities", 'output="value"|"value" for a regression'),
        ([[0.2], [1.9]], "sigmoid", 'output="value"'),
        ([[-6.2]], "sigmoid", 'output="value"'),
    ],
)
def test_outputs_are_told_by_their_looks(outputs, expected, notice):
    found = find_output(torch.tensor(outputs))
    assert found.kind == expected
    assert found.found
    assert bool(found.notice) == bool(notice)
    assert re.search(notice, found.notice)


@pytest.mark.parametrize("end", [nn.Sigmoid(), nn.Identity()])
@pytest.mark.parametrize("shape", [(4, 1), (4,)])
def test_a_single_output_between_0_and_1_is_a_probability_if_something_keeps_it_there(end, shape):
    x = torch.full((4, 2), 0.3)
    found = []
    for run in (
        lambda model: SEA(model, FAST).explain(x).output,
        lambda model: score_maps(model, x, 0, {"a": x.add(1)}, ["deletion:mean"]),
    ):
        with pytest.warns(AssumptionWarning) as heard:
            run(lambda x: end(x.sum(1)).reshape(shape if len(x) == 4 else (len(x), *shape[1:])))
        found += [str(one.message) for one in heard]
    expected = "from 0 to 1" if isinstance(end, nn.Sigmoid) else "taken for a logit"
    assert len(found) == 2
    assert all(expected in message for message in found)


def test_logits_that_happen_to_sum_to_1_stay_logits():
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[4.0, -1.0, -2.0], [0.0, 0.0, 0.0]]))
    assert SEA(model, FAST).explain(torch.ones(1, 3)).output.kind == "logits"


def test_a_model_without_gradients_is_told_by_its_values():
    def model(x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy().mean(1))

    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    with pytest.warns(AssumptionWarning, match="from 0 to 1"):
        compute_maps(model, x, 0, ["occlusion"])


def test_half_precision_probabilities_are_recognised():
    rows = torch.randn(8, 1000).mul(3).softmax(1).bfloat16()
    assert find_output(rows).kind == "probabilities"


def test_what_the_caller_says_counts():
    outputs = torch.tensor([[0.7, 0.2, 0.1]])
    assert find_output(outputs, "logits") == Output("logits")
    with pytest.raises(InputError, match="run from -1 to 2"):
        find_output(torch.tensor([[2.0, -1.0]]), "probabilities")
    with pytest.raises(InputError, match="sum to 1"):
        find_output(torch.tensor([[0.7, 0.7]]), "probabilities")
    with pytest.raises(InputError, match="'logits', 'probabilities', 'sigmoid', 'labels', 'value'"):
        SEA(build("logits"), FAST, output="softmax")
    with pytest.raises(InputError, match="got 3"):
        compute_maps(build("logits"), torch.rand(1, 64), methods=FAST, output=3)


def test_a_notice_is_one_warning_a_call_and_one_check(x):
    sea = SEA(build("value"), FAST)
    for _ in range(2):
        with pytest.warns(AssumptionWarning, match='output="value"') as heard:
            e = sea.explain(x)
        assert len(heard) == 1
        (check,) = [c for c in e.checks if c.level == "warn" and c.subject == "model"]
        assert "one output" in check.message
        assert 'output="value"' in check.advice
    assert e.output.kind == "sigmoid"
    assert not [c for c in SEA(build("value"), FAST, output="value").explain(x).checks if c.advice]


def test_logits_of_an_unknown_model_are_said_both_ways_where_these_differ(x):
    outputs = torch.tensor([[4.0, 4.0, -4.0]])

    def run(outputs, **said):
        model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 3))
        with torch.no_grad():
            model[1].weight.zero_()
            model[1].bias.copy_(outputs[0])
        return SEA(model, FAST, **said).explain(x)

    with pytest.warns(
        AssumptionWarning, match=r'0\.50 here.*0\.98\)\. Say so with output="logits"'
    ):
        e = run(outputs)
    assert not [check for check in e.checks if "logits" in check.message]
    with pytest.warns(AssumptionWarning, match='one is right\\. Say so with output="logits"'):
        run(torch.tensor([[4.0, -4.0, -4.0]]))
    with warnings.catch_warnings(action="error"):
        run(outputs, output="logits")
        SEA(load_cnn(), FAST).explain(torch.rand(1, 1, 28, 28))


class Pair(nn.Module):
    """Returns features and logits."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(1)
        return flat, flat[:, :2] - flat[:, 2:4]


def test_of_several_tensors_the_first_is_taken_with_the_line_that_takes_another(x):
    with pytest.warns(AssumptionWarning, match=r"target=lambda output: output\[1\]\[:, 3\]"):
        e = SEA(Pair(), FAST, output="logits").explain(x)
    assert any("several tensors" in check.message for check in e.checks)
    second = SEA(Pair(), budget=40).explain(x, target=lambda output: output[1][:, 1])
    torch.testing.assert_close(second.score, Pair()(x)[1][:, 1])


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (lambda x: x.detach().numpy()[:, :2], "sea_nn.NumpyModel"),
        (lambda x: {"boxes": x}, "target=lambda output"),
        (lambda x: x.unsqueeze(1), "target=lambda output"),
        (lambda x: [x, x], "target=lambda output"),
    ],
)
def test_what_cannot_be_read_comes_with_the_line_to_write(model, hint):
    with pytest.raises((InputError, KindError), match=hint):
        SEA(model, budget=40).explain(torch.ones(1, 6))
    with pytest.raises(KindError, match=r"sea_nn.NumpyModel\(model.predict_proba\)"):
        SEA(object())


def test_what_was_assumed_is_said(x):
    e = SEA(build("logits"), budget=40).explain(x)
    assert e.assumed[0].startswith("outputs are logits: 3 columns")
    own = float(build("logits")(x).detach()[0, e.target[0]].sigmoid())
    assert f"a softmax says {float(e.score[0]):.2f}" in e.assumed[0]
    assert f'it would be {own:.2f}: output="sigmoid"' in e.assumed[0]
    assert "blurred" in e.assumed[1]
    told = SEA(build("logits"), budget=40, output="logits", absent="mean").explain(x).assumed
    assert told[0].endswith("said by the caller")
    assert "mean" in told[1]
    assert told[1].endswith("said by the caller)")


def test_a_score_is_what_the_model_says_of_the_class(kind, x):
    model = build(kind)
    target = torch.tensor([0, 2, 1, 0]) if kind != "value" else 0
    e = SEA(model, FAST, output=kind).explain(x, target)
    said = truth(kind, model(x).detach()).gather(1, e.target[:, None])[:, 0]
    torch.testing.assert_close(e.score, said)
    assert e.output == Output(kind)


def test_rise_weighs_masks_by_the_score(kind, x):
    model, x = build(kind), torch.ones_like(x[:1])
    seen: list[Tensor] = []

    def spy(points: Tensor) -> Tensor:
        seen.append(points)
        return model(points)

    options = {"rise": {"n_masks": 300}}
    found = compute_maps(spy, x, 0, ["rise"], options=options, output=kind, limit=64)
    masks = torch.cat([points for points in seen if points.min() < 1])  # masks times ones
    assert masks.shape == (300, 1, 8, 8)
    assert 0 <= masks.min() <= masks.max() <= 1
    assert abs(float(masks.mean()) - 0.5) < 0.03
    weights = truth(kind, model(masks).detach())[:, 0]
    expected = torch.einsum("k,khw->hw", weights, masks[:, 0]) / (300 * 0.5)
    torch.testing.assert_close(found.maps["rise"][0, 0], expected)
    if kind != "value":
        assert (found.maps["rise"] >= 0).all()


@pytest.mark.parametrize("member", ["saliency", "occlusion", "lime", "kernel_shap"])
def test_gradients_and_fits_explain_the_models_own_output(member, kind):
    x = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    model = build(kind, 6)
    maps = compute_maps(model, x, 0, [member], output=kind).maps[member]
    same = compute_maps(model, x, 0, [member], output="value").maps[member]
    assert torch.equal(maps, same)


def test_answers_are_scores(kind, x):
    model, target = build(kind), torch.zeros(4, dtype=torch.long)
    left = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    left[..., :4] = True
    answers = ask_only(model, x, target, left, "baseline", kind)
    torch.testing.assert_close(answers[:, 0], truth(kind, model(x * left).detach())[:, 0])


CURVES = ("deletion:mean", "insertion:mean", "aupc_windows:mean")


@pytest.mark.parametrize("name", CURVES)
def test_curves_follow_the_score(kind, x, name):
    model, maps = build(kind), {"a": torch.rand(4, 8, 8)}
    scores = score_maps(model, x, 0, maps, [name], random=False, output=kind)
    curve = scores.curves[name][:, 0]
    start = truth(kind, model(x).detach())[:, 0]
    end = -1 if name.startswith("insertion") else 0
    torch.testing.assert_close(curve[:, end], start)


def test_keeping_asks_whether_the_class_is_still_predicted(kind, x):
    model, sets = build(kind), torch.rand(4, 2, 8, 8) > 0.5
    if kind == "value":
        with pytest.raises(InputError, match="output is a value"):
            query_sets(model, x, 0, sets, output=kind)
        return
    kept, _ = query_sets(model, x, 0, sets, torch.zeros(()), output=kind)
    said = truth(kind, model((x * sets).flatten(0, 1).unsqueeze(1)).detach())
    holds = said[:, 0] > 0.5 if kind in ("sigmoid", "labels") else said.argmax(1) == 0
    assert torch.equal(kept.predicted, holds.view(4, 2))


def test_one_sigmoid_column_can_be_kept(x):
    def model(x: Tensor) -> Tensor:
        return x.flatten(1).sum(1) - 20  # of about 32

    most = x[:, None, 0].flatten(2).argsort(2, descending=True).argsort(2).view(4, 1, 8, 8)
    sets = torch.cat([most < 58, most < 6], 1)
    kept, _ = query_sets(model, x, 0, sets, torch.zeros(()), output="sigmoid")
    assert kept.predicted.tolist() == [[True, False]] * 4


@pytest.mark.parametrize(
    ("kind", "change", "match"),
    [
        ("logits", torch.nan, r"NaN for .* inputs with features hidden"),
        ("probabilities", -2, "outside 0 to 1"),
    ],
)
def test_answers_with_features_hidden_that_make_no_sense_are_refused(kind, change, match, x):
    def model(points: Tensor) -> Tensor:
        rows = build(kind)(points)
        return torch.where((points == 0).flatten(1).any(1, keepdim=True), rows + change, rows)

    maps = {"a": torch.rand(4, 8, 8)}
    with pytest.raises(InputError, match=match):
        score_maps(model, x, 0, maps, ["deletion:black"], bounds=(0, 1), output=kind)
    with pytest.raises(InputError, match=match):
        ask_only(model, x, 0, torch.rand(4, 2, 8, 8) > 0.5, "baseline", kind)


def test_of_several_values_the_caller_chooses(x):
    with pytest.raises(InputError, match="target=0 to 2"):
        SEA(build("logits"), FAST, output="value").explain(x)
    e = SEA(build("logits"), FAST, output="value").explain(x, 2)
    assert e.name(0) == "output 2"


def test_a_budget_learns_the_score_of_every_kind(kind, x):
    model = build(kind)
    e = SEA(model, budget=24, output=kind).explain(x[:2], 0)
    said = truth(kind, model(x[:2]).detach())[:, 0]
    torch.testing.assert_close(e.score, said)
    whole = torch.ones(2, 1, *e.shape, dtype=torch.bool)
    torch.testing.assert_close(e.predict(whole)[:, 0], said, atol=2e-3, rtol=0)
    assert e.unit == ("value" if kind == "value" else "log-odds")


def test_rows_of_a_data_set_have_the_score(kind, x, tmp_path):
    pytest.importorskip("pyarrow", reason="whole data sets need pyarrow")
    model = build(kind)
    explain_dataset(x, SEA(model, FAST, output=kind), tmp_path / "out", quiet=True)
    said = truth(kind, model(x).detach())
    for i, one in enumerate(read_dataset(tmp_path / "out")):
        target = one.row["target"]
        assert one.row["score"] == pytest.approx(float(said[i, target]), abs=1e-6)
        assert one.row["unit"] == ("value" if kind == "value" else "probability")
        assert one.to_explanation().output.kind == kind


def test_the_page_shows_the_score(kind):
    row = torch.rand(1, 6, generator=torch.Generator().manual_seed(0))
    model = build(kind, 6)
    session = Session(of_columns("mine", model, Columns("abcdef", examples=row, output=kind)))
    session.choose(session.subject.examples[0])
    said = truth(kind, model(row).detach())[0]
    for answer in session.top():
        assert answer.score == pytest.approx(float(said[answer.target]), abs=1e-6)


def test_words_and_files_say_value_or_probability(kind, x, tmp_path):
    e = SEA(build(kind), FAST, output=kind).explain(x, 0)
    again = Explanation.load(e.save(tmp_path / "x.safetensors"))
    assert again.output.kind == again.provenance.call["output"] == kind
    head = next(line for line in e.summary().splitlines() if line.startswith("input "))
    value = kind == "value"
    assert ("value" in head, "probability" in head) == (value, not value)
    assert e.name(0) == ("value" if value else "class 0")
    written = f"{float(e.score[0]):.4g}" if value else f"{float(e.score[0]):.2f}"
    drawn = [text.get_text() for text in e[:1].plot("strip").findobj(Text)]
    assert any(f"{e.name(0)} {written}" in text.replace("\n", " ") for text in drawn)
    page = write_report(e, tmp_path / "report.html").read_text()
    assert f'"unit":"{"value" if value else "probability"}"' in page
    assert f'"written":"{written}"' in page


MODEL_FILE = """
import torch
from torch import nn
from sea_nn.vision.images import Preprocess

def make():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(48, {columns}), nn.{end}
    return nn.Sequential(*layers), Preprocess(4, 4)
"""


def test_the_command_line_says_what_outputs_are_and_what_it_assumes(kind, sea, tmp_path):
    columns, end = ENDS[kind]
    (tmp_path / "mine.py").write_text(MODEL_FILE.format(columns=columns, end=end))
    command = ["explain", ASSETS / "cat.jpg", "-m", f"{tmp_path / 'mine.py'}:make", "--json"]
    command += ["--methods", "saliency", "--no-report", "-o", tmp_path / "out"]
    document = json.loads(sea(*command, "--model-output", kind)[0])
    (one,) = document["inputs"]
    unit = "value" if kind == "value" else "probability"
    assert one["output"] == kind
    assert unit in one["target"]
    assert one["predicted"][0][unit] == pytest.approx(one["target"][unit])
    assert not [c for c in document["checks"] if c["subject"] == "model"]
    checks = json.loads(sea(*command)[0])["checks"]
    notes = [c["advice"] for c in checks if c["subject"] == "model"]
    assert bool(notes) == (kind in ("probabilities", "labels", "value"))
    assert all("--model-output" in note for note in notes)
