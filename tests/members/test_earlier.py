"""Maps of members that were computed before: used again where they are the same, else not."""

import copy

import pytest
import torch
from torch import nn

from sea_nn.members.run import compute_maps

X = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
HOW = {"methods": ("saliency", "integrated_gradients"), "baselines": torch.zeros(6)}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def found(model):
    return compute_maps(model, X, [0, 1], **HOW)


def test_same_call_takes_the_maps_and_asks_the_model_once(model, found):
    again = compute_maps(model, X.clone(), [0, 1], **HOW, earlier=[found])
    assert again.reused
    assert all(again.maps[name] is found.maps[name] for name in found.maps)
    assert not compute_maps(model, X, [0, 2], **HOW, earlier=[found]).reused


@pytest.mark.parametrize("change", ["weights", "input", "baselines", "methods", "options", "seed"])
def test_maps_are_computed_anew_where_anything_is_different(model, found, change):
    model, x, how = copy.deepcopy(model), X.clone(), dict(HOW)
    if change == "weights":
        model[0].weight.data.mul_(1.05)
    elif change == "input":
        x[0, 0] += 1e-6
    elif change == "baselines":
        how["baselines"] = torch.full((6,), 1e-6)
    elif change == "options":
        how["options"] = {"integrated_gradients": {"n_steps": 7}}
    else:
        how |= {"methods": ("saliency",)} if change == "methods" else {"seed": 1}
    assert not compute_maps(model, x, [0, 1], **how, earlier=[found]).reused


def test_a_baseline_that_the_caller_changes_afterwards_is_another_one(model):
    baseline = torch.zeros(6)
    found = compute_maps(model, X, 0, "saliency", baselines=baseline)
    baseline += 1
    again = compute_maps(model, X, 0, "saliency", baselines=baseline, earlier=[found])
    assert not again.reused
