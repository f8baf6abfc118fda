"""Asking the model about sets of features."""

import pytest
import torch
from torch import nn

from sea_nn.errors import InputError
from sea_nn.features import Features
from sea_nn.model.opening import open_model
from sea_nn.questions.absent import prepare
from sea_nn.questions.learn import learn_from_answers
from tests.helpers.asking import ask_only

model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))


def test_asking_counts_its_evaluations_and_leaves_the_model_as_it_was() -> None:
    model.train()
    model[1].weight.grad = torch.ones_like(model[1].weight)
    sets, x = torch.ones(3, 5, 6, 6, dtype=torch.bool), torch.rand(3, 1, 6, 6)
    with open_model(model, x, 1, hiding=prepare(x, "mean"), output="logits") as probe:
        probe.ask(sets)
        assert probe.meter.rows == {"members": 0, "questions": 3 + 3 * 5, "checks": 0}
    assert model.training
    assert bool((model[1].weight.grad == 1).all())


def test_sets_and_baselines_of_another_shape_are_refused() -> None:
    x = torch.rand(1, 1, 6, 6)
    with pytest.raises(InputError, match=r"features \[6, 6\]"):
        ask_only(model, x, 0, torch.ones(1, 2, 5, 6, dtype=torch.bool))
    with pytest.raises(InputError, match="must broadcast to x"):
        ask_only(model, x, 0, torch.ones(1, 2, 6, 6), "baseline", baselines=torch.zeros(5))


def test_no_two_positions_of_a_map_of_cells_tie():
    features = Features.of(torch.zeros(1, 1, 12, 12)).on_grid((4, 4))
    worth = torch.linspace(1, -1, 16)  # half of the cells gain nothing

    def ask(sets):
        left = features.sum(sets[0].float()) / features.count()
        return (left @ worth).sigmoid()[None]

    whole = worth.sum(0, keepdim=True).sigmoid()
    found = learn_from_answers(ask, whole, torch.zeros(1, 0, 12, 12), 40, features=features)
    assert float(found.gains[0, -1]) < 0
    assert len(found.attribution.unique()) == found.attribution.numel()
    total = found.gains.clamp(min=0).sum()
    torch.testing.assert_close(found.attribution.sum(), total)
