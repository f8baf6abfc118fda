"""Asking the model about sets of features."""

import pytest
import torch
from torch import Tensor, nn

from sea_nn.errors import InputError
from sea_nn.model.opening import open_model
from sea_nn.questions.absent import prepare
from tests.helpers.asking import ask_only


class Softmax(nn.Module):
    def __init__(self, n: int, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(n, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


@pytest.mark.parametrize("absent", ["baseline", "mean"])
def test_the_answer_is_what_the_set_alone_keeps(absent: str) -> None:
    model = Softmax(2 * 6 * 6)
    x = torch.rand(2, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    sets = torch.zeros(2, 2, 6, 6, dtype=torch.bool)
    sets[:, 0, :3], sets[:, 1, :, 2:] = True, True
    target = torch.tensor([2, 0])
    fill = (
        x.mean((2, 3), keepdim=True).expand_as(x) if absent == "mean" else torch.full_like(x, 0.3)
    )
    found = ask_only(model, x, target, sets, absent, baselines=0.3)
    for i in range(2):
        for r in range(2):
            with torch.no_grad():
                said = model(torch.where(sets[i, r], x[i], fill[i])[None]).softmax(1)
            assert float(found[i, r]) == pytest.approx(float(said[0, target[i]]), abs=1e-6)


def test_asking_counts_its_evaluations_and_leaves_the_model_as_it_was() -> None:
    model, x = Softmax(36).train(), torch.rand(3, 1, 6, 6)
    model.linear.weight.grad = torch.ones_like(model.linear.weight)
    sets = torch.ones(3, 5, 6, 6, dtype=torch.bool)
    with open_model(model, x, 1, hiding=prepare(x, "mean"), output="logits") as probe:
        probe.ask(sets)
        assert probe.meter.rows == {"members": 0, "questions": 3 + 3 * 5, "checks": 0}
    assert model.training
    assert bool((model.linear.weight.grad == 1).all())


def test_sets_and_baselines_of_another_shape_are_refused() -> None:
    model, x = Softmax(36), torch.rand(1, 1, 6, 6)
    with pytest.raises(InputError, match=r"features \[6, 6\]"):
        ask_only(model, x, 0, torch.ones(1, 2, 5, 6, dtype=torch.bool))
    with pytest.raises(InputError, match="must broadcast to x"):
        ask_only(model, x, 0, torch.ones(1, 2, 6, 6), "baseline", baselines=torch.zeros(5))
