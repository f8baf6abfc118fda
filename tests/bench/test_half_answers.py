"""The rival that asks as release 0.1 did."""

import pytest
import torch
from torch import Tensor, nn

from sea_bench.experiments.half_answers import ask_both, join_answers
from sea_nn import ensemble
from sea_nn.questions.ask import make_ask_only

ONES = torch.ones(2, 3, dtype=torch.float64)


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def additive(truth: Tensor):
    """A model whose answer is the sum of the positions' effects, [N, H, W]."""

    def ask(sets: Tensor) -> Tensor:
        values = truth.unsqueeze(1)
        return torch.where(sets, values, -values).flatten(2).sum(2)

    return ask


def test_the_painted_answers_rank_regions_by_their_effects_where_these_add_up():
    truth = torch.arange(16.0).reshape(1, 4, 4).repeat_interleave(8, 1).repeat_interleave(8, 2)
    asked = []

    def ask(sets: Tensor) -> Tensor:
        asked.append(sets)
        return additive(truth.double())(sets)

    even = torch.ones(1, 1, 32, 32, dtype=torch.float64)  # without heat regions are squares
    rows, _ = join_answers(ask, even, torch.ones(1, 1, dtype=torch.float64))
    assert asked[0].shape == (1, 15, 32, 32)
    middle = rows[0, 1, 4::8, 4::8].flatten()
    assert middle.argsort().tolist() == list(range(16))
    assert float(rows[0, 1].amin()) == 0
    assert float(rows[0, 1].amax()) == 1


def test_a_member_that_foretells_the_answers_counts_for_more():
    truth = seeded(2, 16, 16)
    heatmaps = torch.stack([truth, 1 - truth, seeded(2, 16, 16, seed=3)], 1)
    rows, weights = join_answers(additive(truth - 0.5), heatmaps, ONES)
    assert rows.shape == (2, 4, 16, 16)
    pull = weights[:, :3] / heatmaps.flatten(2).mean(2)
    assert bool((pull[:, 0] > pull[:, 2]).all() and (pull[:, 2] > pull[:, 1]).all())


def test_answers_that_say_nothing_leave_the_members_alone():
    heatmaps = seeded(2, 3, 8, 8)
    rows, weights = join_answers(lambda sets: torch.zeros(sets.shape[:2]), heatmaps, ONES)
    heat = heatmaps.flatten(2).mean(2)  # the weights that even out spread
    found = ensemble(rows, weights=weights, quiet=True).attribution
    torch.testing.assert_close(found, ensemble(heatmaps, weights=heat).attribution)


def test_inputs_nobody_votes_for_have_no_weight_and_no_nan():
    votes = torch.tensor([[1.0, 0, 1], [0, 0, 0]]).double()
    rows, pulls = join_answers(additive(seeded(2, 8, 8, seed=1)), seeded(2, 3, 8, 8), votes)
    assert rows.isfinite().all()
    assert (pulls[1] == 0).all()
    assert pulls[0, 1] == 0
    assert (pulls[0, [0, 2, 3]] > 0).all()


@pytest.mark.parametrize("absent", ["baseline", "mean"])
def test_both_halves_are_asked_about(absent):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    x, sets = seeded(2, 1, 6, 6).float(), seeded(2, 4, 6, 6, seed=2) > 0.5
    found = ask_both(model, x, torch.tensor([2, 0]), absent=absent)(sets)
    only = make_ask_only(model, x, torch.tensor([2, 0]), absent=absent)
    torch.testing.assert_close(found, only(sets) - only(~sets))
