"""What happens on a bad day, as a table: an error that says what to do, or a defined result."""

import numpy as np
import pytest
import torch

from sea_nn import (
    DSF,
    SEA,
    About,
    Constraints,
    Explanation,
    Running,
    SEAConfig,
    ensemble,
    read_dataset,
)
from sea_nn.errors import InputError, KindError
from tests.helpers.functions import maps

GOOD = maps(2, shape=(4, 5)).float()


def edited(value, *index):
    bad = GOOD.clone()
    bad[index] = value
    return bad


@pytest.fixture(scope="module")
def explained():
    return SEA(torch.nn.Linear(5, 2), ("saliency",), budget=20).explain(torch.rand(2, 5))


ERRORS = {
    "nan": (edited(float("nan"), 1, 2, 0, 0), "input 1, method 2 holds NaN"),
    "infinite": (edited(float("inf"), 0, 1, 3, 3), "input 0, method 1 holds NaN or infinite"),
    "below zero": (edited(-0.1, 0, 0, 0, 0), r"leaves \[0, 1\].*scale"),
    "above one": (edited(1.5, 0, 0, 0, 0), r"leaves \[0, 1\].*scale"),
    "bytes 0..255": ((GOOD * 255).to(torch.uint8), r"leaves \[0, 1\]"),
    "no method": (torch.zeros(2, 0, 4, 5), r"at least one method.*\[2, 0, 4, 5\]"),
    "no features": (torch.zeros(2, 3, 0), r"one feature.*\[2, 3, 0\]"),
    "too few axes": (torch.zeros(2, 3), "unsqueeze"),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize(
    "config", [SEAConfig(), SEAConfig.paper("fmnist")], ids=["default", "paper"]
)
def test_refused_with_advice(name, config):
    heatmaps, words = ERRORS[name]
    with pytest.raises(InputError, match=words):
        ensemble(heatmaps, config)


def test_what_is_not_a_tensor_is_refused_or_read():
    with pytest.raises(KindError, match=r"torch.stack"):
        ensemble([GOOD, "map"])
    with pytest.raises(KindError, match="complex"):
        ensemble(GOOD.to(torch.complex64))
    for bad in (GOOD.to("meta"), GOOD.to_sparse()):
        with pytest.raises(KindError, match="dense tensor that holds real numbers"):
            ensemble(bad)
    assert torch.equal(ensemble(np.asarray(GOOD)).attribution, ensemble(GOOD).attribution)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": torch.rand(2, 6, device="meta")}, "meta device"),
        ({"x": torch.rand(2, 6).to_sparse()}, "sparse or nested"),
        ({"about": About(kind="table")}, "kind must be a Kind"),
        ({"about": About(kind=np.zeros(2))}, "kind must be a Kind"),
        ({"background": torch.rand(2, 6, device="meta")}, "background must be"),
        ({"about": About(images="picture.png")}, "images must be a tensor; got str"),
        (
            {"constraints": Constraints(torch.ones(6, dtype=torch.bool), epsilon="small")},
            "epsilon must be a finite number above 0",
        ),
    ],
)
def test_what_explain_cannot_use_is_named(given, message):
    sea = SEA(torch.nn.Linear(6, 2), ("saliency",), SEAConfig(epochs=2))
    with pytest.raises((InputError, KindError), match=message):
        sea.explain(**{"x": torch.rand(2, 6), **given})


@pytest.mark.parametrize(
    ("budget", "given", "message"),
    [
        (None, {"internal_batch_size": "all"}, "internal_batch_size must be a whole number"),
        (None, {"feature_mask": "columns"}, "feature_mask must be a tensor of whole numbers"),
        (
            None,
            {"running": lambda: Running(seconds=3)},
            "seconds is about questions",
        ),
        (None, {"labels": 3}, "labels must be a list"),
        (40, {"previous": 3}, "previous must be an Explanation"),
        (40, {"running": lambda: Running(seconds="soon")}, "seconds must be a finite"),
        (
            40,
            {"running": lambda: Running(tolerance=float("nan"))},
            "tolerance must be a finite",
        ),
        (40, {"x": torch.rand(1, 1, 2, 4, 4, 4)}, r"\[N, C, H, W\]"),
        (40, {"x": torch.rand(1, 16, 20, 3)}, r"permute\(0, 3, 1, 2\)"),
        (40, {"x": torch.rand(1, 28, 28, 1)}, r"permute\(0, 3, 1, 2\)"),
        (10**9, {"x": torch.rand(2, 40)}, "at most 100,000 are asked about 40 features"),
    ],
)
def test_what_a_call_cannot_follow_is_named_before_the_work(budget, given, message):
    def model(x):
        raise AssertionError("the model was asked")

    sea = SEA(model, ("saliency",), budget=budget)

    def call():
        made = {k: v() if callable(v) else v for k, v in given.items()}
        sea.explain(**{"x": torch.rand(2, 6), **made})

    with pytest.raises((InputError, KindError), match=message):
        call()


ROWS, PICTURE, BACKGROUND = torch.rand(2, 6), torch.rand(1, 1, 8, 8), torch.rand(9, 6)
PLAIN = {"methods": "saliency"}


@pytest.mark.parametrize(
    ("made", "given", "message"),
    [
        ({"config": SEAConfig(grid=(2, 2))}, {"feature_mask": torch.eye(8).long()}, "grid has no"),
        ({"budget": 40, "grid": (2, 2)}, {"feature_mask": torch.eye(8).long()}, "grid has no"),
        ({"budget": 40, "grid": (2,)}, {"x": ROWS}, "grid .* inputs of the kind 'table'"),
        ({"config": SEAConfig(grid=(2, 2))}, {"x": (ROWS, ROWS)}, "grid .* several inputs"),
        (PLAIN | {"grid": (2, 2)}, {}, r"grid is about questions.*SEAConfig\(grid=\)"),
        (PLAIN | {"absent": "mean"}, {}, "absent is about questions"),
        ({"budget": 40, "config": SEAConfig()}, {}, "config has no effect beside a budget"),
        ({"budget": 40, "methods": "fast"}, {}, "say it once"),
        ({"output": "logits"}, {"target": lambda output: output[:, 0]}, "output has no effect"),
        ({}, {"target": torch.sum, "labels": ["a", "b"]}, "labels has no effect"),
        (PLAIN, {"background": torch.rand(3, 1, 8, 8)}, "background= has no effect without"),
        ({"absent": "mean"}, {"background": PICTURE}, "background= has no effect beside absent"),
        ({"absent": "background"}, {}, "need background=, inputs like x"),
        (PLAIN, {"x": ROWS, "baselines": 0.5}, "baselines have no effect"),
        (PLAIN | {"budget": 40}, {"baselines": 0.5}, "baselines have no effect"),
        (
            PLAIN | {"budget": 40},
            {"x": ROWS, "baselines": 0.5, "background": BACKGROUND},
            "baselines have no effect",
        ),
    ],
)
def test_what_has_no_effect_beside_the_rest_is_refused_before_the_work(made, given, message):
    def model(*x):
        raise AssertionError("the model was asked")

    with pytest.raises(InputError, match=message):
        SEA(model, **made).explain(**{"x": PICTURE} | given)
    with pytest.raises(InputError, match="epsilon is"):
        ensemble(GOOD, epsilon=0.5)


def test_a_budget_beyond_all_sets_asks_about_all_of_them():
    e = SEA(torch.nn.Linear(4, 2), ("saliency",), budget=10**9).explain(torch.rand(1, 4))
    assert e.asked.sets.shape[1] == 2**4 - 1  # the whole input is known


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.average(None), "maps must be a dense tensor; got NoneType"),
        (lambda e: e.average(torch.ones(2, 5)), r"maps must be \[2, k, 5\]; got \[2, 5\]"),
        (lambda e: e.spread([1.0]), "values must be a dense tensor; got list"),
        (lambda e: e.spread(torch.ones(1, 5)), r"values must be \[2, 5\]; got \[1, 5\]"),
        (lambda e: e.smallest(share="half"), "above 0 and below 1; got 'half'"),
        (lambda e: e.plot(kind=np.zeros(2)), "unknown kind of plot"),
    ],
)
def test_what_an_explanation_is_asked_wrongly_is_said(explained, call, message):
    with pytest.raises((InputError, KindError), match=message):
        call(explained)


SEEDS, CONFIGS = ("a", 1.5, 2**70, True), ({}, {"epochs": 2}, "paper")
WEIGHTS = ([1.0, 2.0], [-1.0, 1, 1], [float("nan"), 1, 1], [[1.0, 1, 1]], ["a", "b", "c"])


@pytest.mark.parametrize(
    ("call", "values", "message"),
    [
        (Explanation.load, (3,), "got int"),
        (read_dataset, (3,), "got int"),
        (DSF(4), (None,), "got NoneType"),
        (lambda weights: ensemble(GOOD, weights=weights), WEIGHTS, "weights must be"),
        (lambda config: ensemble(GOOD, config), CONFIGS, "config must be a SEAConfig"),
        (lambda config: SEA(DSF(4), config=config), CONFIGS, "config must be a SEAConfig"),
        (lambda seed: SEAConfig(seed=seed), SEEDS, "seed must be"),
        (lambda seed: DSF(3, seed=seed), SEEDS, "seed must be"),
        (lambda seed: SEA(DSF(4), seed=seed), SEEDS, "seed must be"),
        (DSF(4, (3,)).top, (2.5, "3", None, -1), "budget must be a whole number"),
        (lambda n: DSF(n, (3,)), (2.5, 0), "n must be a whole number"),
        (lambda widths: DSF(4, widths), (3, (2.5,)), "widths must be a (list|whole)"),
        (lambda batch: DSF(4, (3,), batch=batch), (1.5,), "batch must be a whole number"),
    ],
)
def test_values_of_another_kind_are_named(call, values, message):
    for value in values:
        with pytest.raises((InputError, KindError), match=message):
            call(value)


def test_too_many_features_are_refused_before_learning():
    maps = torch.zeros(1, 1, (1 << 22) + 1)
    maps[..., 0] = 1
    with pytest.raises(InputError, match="at most 2\\^22 = 4,194,304 features"):
        ensemble(maps, SEAConfig(epochs=10**9))


def test_a_grid_needs_images():
    with pytest.raises(InputError, match="grid=None"):
        ensemble(torch.rand(1, 2, 9), SEAConfig.paper("cub"))


@pytest.mark.parametrize("config", [SEAConfig(), SEAConfig.paper("fmnist"), SEAConfig.paper("cub")])
def test_an_empty_batch_gives_an_empty_result(config):
    result = ensemble(torch.zeros(0, 3, 8, 8), config)
    assert result.attribution.shape == (0, 8, 8)
    assert result.order.shape[0] == result.gains.shape[0] == 0


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
@pytest.mark.filterwarnings("ignore:thresholds above")
@pytest.mark.parametrize(
    "config", [SEAConfig(), SEAConfig.paper("fmnist")], ids=["default", "paper"]
)
def test_a_constant_map_does_not_count(value, config):
    padded = torch.cat([GOOD, torch.full_like(GOOD[:, :1], value)], 1)
    with pytest.warns(UserWarning, match=r"method 3 \(and 1 more\) is constant"):
        result = ensemble(padded, config)
    expected = ensemble(GOOD, config)
    torch.testing.assert_close(result.attribution, expected.attribution, rtol=1e-5, atol=1e-6)


KINDS = {
    "float64": GOOD.double(),
    "half": GOOD.half(),
    "bfloat16": GOOD.bfloat16(),
    "integers": (GOOD > 0.5).int(),
    "booleans": GOOD > 0.5,
    "requires grad": GOOD.clone().requires_grad_(),
    "non-contiguous": GOOD.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "expanded": GOOD[:, :1].expand(-1, 3, -1, -1),
    "duplicates": torch.cat([GOOD, GOOD], 1),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_tensors_have_defined_results(name):
    heatmaps = KINDS[name]
    before = heatmaps.clone()
    result = ensemble(heatmaps)
    double = name == "float64"
    assert result.attribution.dtype == (torch.float64 if double else torch.float32)
    assert result.attribution.shape == (2, 4, 5)
    assert torch.isfinite(result.attribution).all()
    assert not result.attribution.requires_grad
    assert torch.equal(heatmaps, before)
    assert heatmaps.grad is None if heatmaps.requires_grad else True
    plain = ensemble(heatmaps.detach().double().contiguous()).attribution
    torch.testing.assert_close(result.attribution.double(), plain, rtol=1e-5, atol=1e-6)
