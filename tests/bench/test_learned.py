"""The experiments about the function learned from answers, and the methods it is compared with."""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from sea_bench.data import Item
from sea_bench.experiments.comparison import Comparison, Map
from sea_bench.experiments.experiment import Compared, Findings, Run
from sea_bench.experiments.inputs import Inputs, choose_inputs
from sea_bench.experiments.maps import COSTS, Explainer, count_evaluations
from sea_bench.experiments.measurements import MODEL, measure
from sea_bench.experiments.metrics import find_metric
from sea_bench.experiments.pages import write_page
from sea_bench.experiments.predictions import OURS, SAME
from sea_bench.experiments.rivals import Known, greedy, list_functions
from sea_bench.experiments.store import Store
from sea_nn import SEA
from sea_nn.metrics import bootstrap_difference, bootstrap_mean, score_maps
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel


def small(**settings) -> Comparison:
    settings = {"maps": (Map("VG", "member", ("saliency",)),), "metrics": ("gini",), **settings}
    given = {"n_inputs": 2, "classifier": "fashion", **settings}
    return Comparison("small", "", "", "fashion_sample", **given)


def test_greed_sorts_cells_that_add_up_at_its_price():
    worth, asked = torch.rand(2, 64, generator=torch.Generator().manual_seed(0)), 0

    def value(sets):
        nonlocal asked
        asked += sets.shape[1]
        return (sets.float() @ worth.unsqueeze(2))[..., 0]

    order = greedy(value, 2, 64, both=True)
    assert torch.equal(order, worth.argsort(1, descending=True))
    assert asked == COSTS["greedy_regions"]
    order = greedy(lambda sets: torch.zeros(sets.shape[:2]), 2, 9)
    assert torch.equal(order.sort(1).values, torch.arange(9).expand(2, -1))


def test_a_budget_map_is_what_a_user_gets():
    maps = (Map("b", "budget", (), budget=20), Map("k", "keep", (), budget=20))
    experiment = small(maps=(*maps, Map("VG", "member", ("saliency",))))
    inputs = choose_inputs(experiment, 2)
    batch = inputs.read(range(2))
    found, seconds = Explainer(experiment, inputs).explain_timed(batch.x, batch.target)
    mine = SEA(inputs.loaded.model, budget=20).explain(batch.x, batch.target)
    assert torch.equal(found["b"], mine.attribution[:, 0])
    order = mine.average(found["k"][:, None])[:, 0].argsort(1, descending=True)
    assert torch.equal(order, mine.top(1.0, keep=True))
    assert seconds["b"] > 0
    assert count_evaluations(experiment.maps[0], (1, 28, 28)) == 20


@pytest.mark.parametrize("wish", ["half", "most", "break"])
def test_the_smallest_set_is_that_of_trying_every_size(wish):
    inputs = choose_inputs(small(), 2)
    batch, model = inputs.read(range(2)), inputs.loaded.model
    maps = torch.rand(2, 28, 28, generator=torch.Generator().manual_seed(0))
    metric = find_metric(f"smallest_{wish}:mean")
    scores = score_maps(model, batch.x, batch.target, {"m": maps}, [metric], random=False)
    order = maps.flatten(1).argsort(1, descending=True)
    for row, target in enumerate(batch.target.tolist()):
        x = batch.x[row].flatten()
        whole = model(batch.x[[row]]).softmax(1)[0, target]
        for step in range(65):
            shown = torch.zeros(784, dtype=torch.bool)
            shown[order[row, : step * 784 // 64]] = True
            left = torch.where(shown != (wish == "break"), x, x.mean()).view(1, 1, 28, 28)
            answer = model(left).softmax(1)[0]
            kept = answer[target] >= (0.5 if wish == "half" else 0.9 * whole)
            if answer.argmax() != target if wish == "break" else kept:
                break
        assert float(scores.values[metric.name][row, 0]) == pytest.approx(step / 64)


def test_functions_that_fit_the_truth_predict_it():
    """Answers additive in log-odds: what is linear there is exact, and a process is not far."""
    generator = torch.Generator().manual_seed(0)
    sets = torch.rand(1, 400, 16, generator=generator) < 0.5
    worth = torch.rand(16, generator=generator).double()
    chance = (sets.double() @ worth - 4).sigmoid()
    none, all_ = torch.tensor([-4.0]).double().sigmoid(), (worth.sum()[None] - 4).sigmoid()
    known = Known(sets[:, :300], chance[:, :300], none, all_, (4, 4))
    error = {
        name: (learn(known)(sets[:, 300:]) - chance[:, 300:]).abs().max()
        for name, learn in list_functions().items()
    }
    assert error["linear in log-odds"] < 0.05
    assert error["plain process, blurred masks"] < 0.1
    assert error["Kernel SHAP"] < error["constant"]


def test_predictions_are_measured_for_every_function_and_count():
    experiment = small(kind="predictions", metrics=("r2@30", "error@30"))
    inputs = choose_inputs(experiment, 2)
    scores = measure(Explainer(experiment, inputs), inputs.read(range(2)))
    assert scores.methods == (OURS, SAME, *list_functions())
    error = scores.mean("error@30")
    assert error[OURS] < error["constant"]
    assert scores.metrics["r2@30"].middle == "median"
    again = measure(Explainer(experiment, inputs), inputs.read(range(1, 2)))
    rivals = slice(1, None)
    for name in experiment.metrics:  # a rival's numbers do not depend on its block
        assert torch.allclose(
            again.values[name][0, rivals], scores.values[name][1, rivals], atol=1e-5
        )


def test_a_median_withstands_one_input_that_is_far_off():
    scores = torch.tensor([[0.1, 0.2], [0.2, 0.3], [0.3, 0.4], [-900.0, 0.5], [0.4, 0.6]])
    found = bootstrap_mean(scores, middle="median")
    assert found.mean.tolist() == pytest.approx([0.2, 0.4])
    assert bool((found.low <= found.mean).all() and (found.mean <= found.high).all())
    apart = bootstrap_difference(scores, 0, middle="median")
    assert apart.mean.tolist() == pytest.approx([0.0, 0.1])


def test_the_page_says_how_far_ours_are_from_the_best_of_the_others(tmp_path):
    experiment = small(maps=tuple(Map(n, "member") for n in ("ours", "good", "bad")))
    batch = choose_inputs(small(), 2).read(range(2))
    noise = torch.rand(2, 28, 28, generator=torch.Generator().manual_seed(0))
    maps = {"ours": noise, "good": noise**9, "bad": noise**0.1}
    scores = score_maps(None, batch.x, None, maps, ["gini"], random=False)
    given = (
        Findings([Compared(scores, "ours", ours=("ours",))]),
        Run("small", 1, 2, Store(tmp_path)),
    )
    text = write_page(experiment, *given, tmp_path, 2, "").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| gini"))
    assert "good" in line  # the best of the others
    assert "| *-" in line  # ours is behind it


class EitherHalf(torch.nn.Module):
    """Sure of class 1 if the left or the right half has stripes: the second half adds nothing."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(20.0))

    def forward(self, x):
        left, right = (part.var((1, 2, 3)) for part in x.chunk(2, 3))
        best = self.slope * torch.maximum(left, right) - 2
        return torch.stack([torch.zeros_like(best), best], 1)


def test_a_second_copy_adds_nothing_to_a_model_that_needs_one(monkeypatch):
    picture = Image.fromarray(np.tile(np.arange(32) % 2 * 255, (32, 1)).astype(np.uint8))
    half = np.zeros((32, 32), np.float32)
    half[:, :16] = 1
    masks = {"first": lambda: half, "second": lambda: half[:, ::-1].copy()}
    items = tuple(Item(str(i), lambda: picture, 1, masks=masks) for i in range(2))
    recipe = Preprocess(resize=32, crop=32, channels=1, mean=(0.0,), std=(1.0,))
    loaded = LoadedModel(EitherHalf(), recipe, ("a", "b"), "either")
    maps = Map("SEA", "budget", (), budget=150), Map("VG", "member", ("saliency",))
    experiment = small(kind="copies", metrics=("second_over_first", "off_by"), maps=maps)
    inputs = Inputs(loaded, items, (1, 1))
    explainer = Explainer(experiment, inputs)
    # The members of a budget need convolutions, which this model has none of.
    sea = partial(SEA, loaded.model, ("saliency", "input_x_gradient"))
    monkeypatch.setattr(Explainer, "spend", lambda _, b, *given: sea(budget=b).explain(*given))
    scores = measure(explainer, inputs.read(range(2)))
    share = scores.mean("second_over_first")
    assert share[MODEL] == pytest.approx(0, abs=1e-3)
    assert share["f of SEA"] < 0.8  # a sum would say 1
    assert share["random"] > 0.9
    assert scores.mean("off_by")[MODEL] == 0
