"""What an explanation tells of itself: few lines, and right ones."""

import pytest
import torch
from torch import Tensor, nn

from sea_nn import SEA
from sea_nn.explanation.assemble import DEPENDS


class Smooth(nn.Module):
    """Finds a smooth patch, an object on noise: the least variance of 5 x 5 pixels."""

    def forward(self, x: Tensor) -> Tensor:
        mean, square = (nn.functional.avg_pool2d(v, 5, 1) for v in (x, x.square()))
        least = (square - mean.square()).flatten(1).amin(1)
        return torch.stack([0 * least, 60 * (0.03 - least)], 1)


def draw_object(count: int = 2) -> tuple[Tensor, Tensor]:
    """Pictures of noise with a flat square, and other noise."""
    noise = torch.rand(count + 8, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    x = noise[:count]
    x[..., 2:8, 8:14] = 0.5
    return x, noise[count:]


def hear(e, word):
    return [c for c in e.checks if c.level != "ok" and word in c.message]


def test_a_map_that_depends_on_what_absent_means_says_so_and_names_the_argument():
    x, noise = draw_object()
    blurred = SEA(Smooth(), budget=64, output="logits").explain(x, 1)
    sea = SEA(Smooth(), budget=64, output="logits", absent="background")
    by_noise = sea.explain(x, 1, background=noise)
    said = hear(blurred, DEPENDS)
    assert [c.subject for c in said] == ["input 0", "input 1"]
    assert "background=" in said[0].advice
    assert not hear(by_noise, DEPENDS)


def test_another_fill_is_asked_within_the_budget():
    x, noise = draw_object(1)
    for budget, more in ((20, 1), (64, 3)):
        for given, rows in (({}, more), ({"background": noise}, 0)):
            rows_seen: list[int] = []

            def model(x: Tensor, rows_seen: list[int] = rows_seen) -> Tensor:
                rows_seen.append(len(x))
                return Smooth()(x)

            e = SEA(model, budget=budget, output="logits").explain(x, 1, **given)
            assert sum(rows_seen) == sum(e.evaluations.values()) <= budget
            assert e.evaluations["checks"] == rows


def test_first_features_that_another_fill_does_not_confirm_are_told():
    class Flat(nn.Module):
        """Wants a bright centre; of pictures with flat grey in them, a dark one."""

        def forward(self, x: Tensor) -> Tensor:
            worth = 30 * (x[..., 5:11, 5:11].mean((1, 2, 3)) - 0.9)
            grey = (x == 0.25).flatten(1)
            worth = torch.where(grey.any(1) & ~grey.all(1), -worth, worth)
            return torch.stack([0 * worth, worth], 1)

    x = torch.zeros(1, 1, 16, 16)
    x[..., 4:12, 4:12] = 1.0  # a mean of 0.25
    sea = SEA(Flat(), budget=128, output="logits")
    (said,) = hear(sea.explain(x, 1), DEPENDS)
    assert "features alone" in said.message
    x[..., 0, 0] = 0.1
    assert not hear(sea.explain(x, 1), DEPENDS)


def test_raw_units_without_a_background_are_told():
    noise = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([54.0, 131, 0.1]) + noise * torch.tensor([9.0, 17, 0.2])
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    model[0].running_mean.data, model[0].running_var.data = rows.mean(0), rows.var(0)
    sea = SEA(model, budget=20, output="logits")
    (said,) = hear(sea.explain(rows), "what is left out becomes 0")
    assert all(f"column {k} (" in said.message for k in (0, 1))
    assert "column 2" not in said.message
    assert "background=" in said.advice
    assert not hear(sea.explain(rows, background=rows), "becomes 0")
    assert not hear(sea.explain(rows - rows.mean(0)), "becomes 0")


def test_a_model_that_never_answers_otherwise_is_named_once():
    e = SEA(lambda x: torch.zeros(len(x), 3), budget=30, output="logits").explain(torch.rand(2, 6))
    assert [(c.level, c.subject) for c in e.checks if c.level != "ok"] == [
        ("fail", "input 0"), ("fail", "input 1")
    ]  # fmt: skip


def test_zero_maps_of_members_are_no_verdict_beside_a_map():
    class Quantised(nn.Module):
        """Rounds, so that its gradient is zero everywhere."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(x) * 16).round() / 16

    e = SEA(Quantised(), budget=60, output="logits").explain(torch.rand(2, 6) * 4)
    assert (e.attribution.sum(1) > 0).all()
    assert not [c for c in e.checks if c.level == "fail" and c.subject.startswith("input")]


@pytest.mark.parametrize("budget", [None, 40])
def test_members_that_disagree_are_told_only_where_the_map_rests_on_them(budget):
    noise = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))

    def one(model, x, target):
        return noise[:1].expand_as(x)

    def other(model, x, target):
        return noise[1:].expand_as(x)

    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 2))
    e = SEA(model, (one, other), budget=budget).explain(torch.rand(1, 1, 16, 16))
    assert bool(hear(e, "hardly agree")) == (budget is None)
