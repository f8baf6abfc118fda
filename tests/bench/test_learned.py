"""The experiments about the function learned from answers, and the methods it is compared with."""

import numpy as np
import pytest
import torch
from PIL import Image

from sea_bench.data import Item
from sea_bench.experiments import find_experiments, magnitudes
from sea_bench.experiments import region_searches as searches
from sea_bench.experiments.copies import MODEL
from sea_bench.experiments.experiment import Experiment, Map
from sea_bench.experiments.explainer import Explainer
from sea_bench.experiments.inputs import Inputs, choose_inputs
from sea_bench.experiments.magnitudes import MAGNITUDES
from sea_bench.experiments.measurements import KINDS, find_metric
from sea_bench.experiments.predictions import ESTIMATE, FUNCTIONS, Known
from sea_bench.experiments.tables import write_page
from sea_nn import SEA
from sea_nn.function.answers_function import place_units
from sea_nn.metrics import score_maps
from sea_nn.metrics.bootstrap import bootstrap_difference, bootstrap_mean
from sea_nn.vision.images import Preprocess
from sea_nn.vision.models import LoadedModel

SEARCHES = {
    "greedy_regions": searches._search_greedily,
    "bidirectional_regions": searches._search_both_ends,
    "window_regions": searches._search_windows,
}


def small(**settings) -> Experiment:
    settings = {"maps": (Map("VG", "member", ("saliency",)),), "metrics": ("gini",), **settings}
    return Experiment("small", "", "", "fashion_sample", "fashion", n_inputs=2, **settings)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_sorts_cells_that_add_up_at_its_price(name):
    worth, asked = torch.rand(2, 64, generator=torch.Generator().manual_seed(0)), 0

    def value(sets):
        nonlocal asked
        asked += 2 * sets.shape[1]
        return (sets.float() @ worth.unsqueeze(2))[..., 0]

    order = SEARCHES[name](value, 2, torch.device("cpu"))
    assert torch.equal(order, worth.argsort(1, descending=True))
    assert asked == searches.COSTS[name]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_takes_every_cell_once_where_all_tie(name):
    order = SEARCHES[name](lambda sets: torch.zeros(sets.shape[:2]), 2, torch.device("cpu"))
    assert torch.equal(order.sort(1).values, torch.arange(64).expand(2, -1))


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
    assert experiment.count_evaluations(experiment.maps[0], (1, 28, 28)) == 20


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
    """Answers additive in log-odds: what is linear there is exact, and f is not far."""
    generator = torch.Generator().manual_seed(0)
    sets = torch.rand(1, 400, 16, generator=generator) < 0.5
    worth = torch.rand(16, generator=generator).double()
    log_odds = sets.double() @ worth - 4
    none, all_ = torch.tensor([-4.0]).double(), worth.sum()[None] - 4
    known = Known(sets[:, :300], log_odds[:, :300], none, all_, worth[None], (4, 4))
    truth = log_odds[:, 300:].sigmoid()
    error = {k: (make(known)(sets[:, 300:]) - truth).abs().max() for k, make in FUNCTIONS.items()}
    assert error["additive in log-odds"] < 0.05
    assert error["f"] < 0.1 < error["constant"]
    assert place_units(16, (4, 4)).shape[0] == known.n


def test_predictions_are_measured_for_every_function_and_count():
    experiment = small(
        kind="predictions", metrics=("r2_random@30", "rms_random@30", "rms_prefixes@30")
    )
    inputs = choose_inputs(experiment, 2)
    scores = KINDS["predictions"](Explainer(experiment, inputs), inputs.read(range(2)))
    assert scores.methods == (*FUNCTIONS, ESTIMATE)
    rms = scores.mean("rms_random@30")
    assert rms["f"] < rms["constant"]
    assert scores.metrics["r2_random@30"].middle == "median"
    again = KINDS["predictions"](Explainer(experiment, inputs), inputs.read(range(1, 2)))
    for name in experiment.metrics:  # an input's numbers do not depend on its block
        assert torch.allclose(again.values[name][0], scores.values[name][1], atol=1e-5)


def test_a_median_withstands_one_input_that_is_far_off():
    scores = torch.tensor([[0.1, 0.2], [0.2, 0.3], [0.3, 0.4], [-900.0, 0.5], [0.4, 0.6]])
    found = bootstrap_mean(scores, middle="median")
    assert found.mean.tolist() == pytest.approx([0.2, 0.4])
    assert bool((found.low <= found.mean).all() and (found.mean <= found.high).all())
    apart = bootstrap_difference(scores, 0, middle="median")
    assert apart.mean.tolist() == pytest.approx([0.0, 0.1])


def test_the_page_says_how_far_ours_are_from_the_best_of_the_others(tmp_path):
    names = ("ours", "good", "bad")
    experiment = small(maps=tuple(Map(n, "member") for n in names), against="ours", ours=("ours",))
    inputs = choose_inputs(small(), 2)
    batch = inputs.read(range(2))
    noise = torch.rand(2, 28, 28, generator=torch.Generator().manual_seed(0))
    maps = {"ours": noise, "good": noise**9, "bad": noise**0.1}
    scores = score_maps(None, batch.x, None, maps, ["gini"], random=False)
    text = write_page(experiment, scores, [], (), tmp_path).read_text()
    line = next(line for line in text.splitlines() if line.startswith("| gini"))
    assert "good" in line  # the best of the others
    assert "| *-" in line  # ours is behind it


def test_the_groups_of_the_learned_function():
    counts = {"predicts": 7, "budgets": 7, "mass": 4, "smallest": 1, "twice": 2}
    assert {group: len(find_experiments(group)) for group in counts} == counts


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
    loaded = LoadedModel(EitherHalf(), recipe, ("a", "b"), "either", "")
    experiment = small(
        kind="copies",
        metrics=("second_over_first", "off_by"),
        maps=(Map("SEA", "budget", (), budget=300), Map("VG", "member", ("saliency",))),
    )
    inputs = Inputs((loaded,), items, (1, 1), (0, 0), None, None, ())
    explainer = Explainer(experiment, inputs)
    monkeypatch.setattr(Explainer, "spend", spend_without_convolutions)
    scores = KINDS["copies"](explainer, inputs.read(range(2)))
    share = scores.mean("second_over_first")
    assert share[MODEL] == pytest.approx(0, abs=1e-3)
    assert share["f of SEA"] < 0.8  # a sum would say 1
    assert share["random"] > 0.9
    assert scores.mean("off_by")[MODEL] == 0


class TwoPatches(torch.nn.Module):
    """Log-odds that are a sum: 3 for stripes at the top left, 1 for those at the bottom right."""

    def __init__(self):
        super().__init__()
        self.base = torch.nn.Parameter(torch.tensor(-2.0))

    def forward(self, x):
        first, second = (part.var((1, 2, 3)) / 0.25 for part in (x[..., :4, :4], x[..., -4:, -4:]))
        odds = self.base + 3 * first + second
        return torch.stack([torch.zeros_like(odds), odds], 1)


def test_values_that_are_the_models_follow_its_answers(monkeypatch):
    picture = Image.fromarray(np.tile(np.arange(32) % 2 * 255, (32, 1)).astype(np.uint8))
    mask = np.zeros((32, 32), np.float32)
    mask[:4, :4] = 1
    items = tuple(Item(str(i), lambda: picture, 1, masks={"first": lambda: mask}) for i in range(2))
    recipe = Preprocess(resize=32, crop=32, channels=1, mean=(0.0,), std=(1.0,))
    loaded = LoadedModel(TwoPatches(), recipe, ("a", "b"), "patches", "")
    maps = (Map("SEA", "budget", (), budget=400), Map("VG", "member", ("saliency",)))
    experiment = small(kind="magnitudes", metrics=tuple(MAGNITUDES), maps=maps)
    inputs = Inputs((loaded,), items, (1, 1), (0, 0), "first", None, ())
    explainer = Explainer(experiment, inputs)
    monkeypatch.setattr(Explainer, "spend", spend_without_convolutions)
    monkeypatch.setattr(magnitudes, "CONVOLUTIONAL", ("saliency", "input_x_gradient"))
    scores = KINDS["magnitudes"](explainer, inputs.read(range(2)))
    assert scores.methods == ("SEA", "SEA, always monotone", "VG", "random")
    asked, said = scores.mean("mass_asked"), scores.mean("mass_said")
    assert asked["SEA"] == pytest.approx(0.75, abs=0.01)  # 3 of 4
    assert said["SEA"] == pytest.approx(0.75, abs=0.1)
    same = scores.mean("off_same_order")
    assert same["SEA"] == scores.mean("off_probability")["SEA"] < same["random"]
    for name, least in (("off_probability", 0.05), ("off_log_odds", 0.5)):
        off = scores.mean(name)
        assert off["SEA"] < least < off["random"]
        assert off["SEA, always monotone"] < least  # there is nothing against here


def spend_without_convolutions(self, budget, x, target):
    """The members of a budget need convolutions, which this model has none of."""
    sea = SEA(self.inputs.loaded.model, ("saliency", "input_x_gradient"), budget=budget)
    return sea.explain(x, target, quiet=True)
