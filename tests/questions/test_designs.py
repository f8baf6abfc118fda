"""Designs of sets to ask about, and the search that uses them."""

from itertools import pairwise

import pytest
import torch

from sea_nn.questions.designs import (
    around,
    every_set,
    find_effects,
    halves,
    paired,
    spread_sets,
    windows,
)
from sea_nn.questions.search import Search, plan_questions


def _generator(seed):
    return torch.Generator().manual_seed(seed)


def test_sizes_of_random_sets_are_spread_evenly():
    sizes = spread_sets(60, 16, _generator(0)).sum(1)
    assert sizes.min() >= 1
    assert sizes.max() <= 15
    assert bool((sizes.bincount(minlength=16)[1:] == 4).all())


def test_pairs_are_complements():
    sets = paired(spread_sets(5, 9, _generator(0)))
    assert bool((sets[:5] ^ sets[5:]).all())


def test_sets_around_a_score_follow_it_and_wide_ones_do_not():
    score = torch.arange(32.0).flip(0)[None]
    close, far = (around(score, 400, s, _generator(1))[0].double() for s in (0.1, torch.inf))
    assert close[:, :8].mean() > 0.8 > 0.2 > close[:, -8:].mean()
    assert abs(far[:, :8].mean() - far[:, -8:].mean()) < 0.1


def test_an_inputs_sets_do_not_depend_on_its_batch():
    score = torch.rand(3, 16, generator=torch.Generator().manual_seed(0))
    together = around(score, 6, 0.5, _generator(4))
    assert torch.equal(together[2:], around(score[2:], 6, 0.5, _generator(4)))


def test_every_set_is_there_once():
    sets = every_set(4)
    assert len(sets.unique(dim=0)) == len(sets) == 14
    assert bool(sets.any(1).all())
    assert not bool(sets.all(1).any())


def test_halves_tell_additive_effects_exactly_up_to_a_constant():
    worth = torch.rand(1, 20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))[None]
    sets = halves(order, 2, 16)
    assert bool(sets[0][:, order[0, :2]].all())
    assert not bool(sets[0][:, order[0, 18:]].any())
    effects = find_effects((sets.double() @ worth[:, :, None])[:, :, 0], 16)
    wanted = worth.gather(1, order[:, 2:18])
    torch.testing.assert_close(effects, wanted - wanted.mean(1, keepdim=True))


@pytest.mark.parametrize("n", [2, 3, 10, 16, 49, 64, 100])
def test_windows_cover_the_order_and_overlap(n):
    width, lows = windows(n)
    covered = {k for low in lows for k in range(low, low + width)}
    assert covered == set(range(n))
    assert all(b - a < width or width == 1 for a, b in pairwise(lows))


@pytest.mark.parametrize("n", [1, 2, 5, 64, 196])
@pytest.mark.parametrize("questions", [1, 29, 123, 507, 1019])
def test_a_plan_never_asks_more_than_allowed(n, questions):
    asked = 0

    def ask(sets):
        nonlocal asked
        asked += sets.shape[1]
        return sets.double().sum(2) / n * 6 - 3

    ends = torch.tensor([-3.0]), torch.tensor([3.0])
    search = Search(ask, *ends, torch.ones(1, n))
    search.find_order = lambda: search.order  # only the count is of interest here
    search.run(plan_questions(questions, n))
    assert asked <= questions
    if n == 64 and questions >= 29:
        assert asked >= 0.9 * questions


@pytest.mark.parametrize("questions", [123, 507])
def test_a_search_finds_the_features_that_matter(questions):
    worth = torch.zeros(2, 64)
    worth[0, [5, 20, 40]] = worth[1, [63, 0, 31]] = 1.0

    def ask(sets):
        return -5 + 10 * ((sets.float() @ worth[:, :, None])[:, :, 0] / 3).sqrt()

    ends = torch.full((2,), -5.0), torch.full((2,), 5.0)
    search = Search(ask, *ends, torch.ones(2, 64), (8, 8))
    order = search.run(plan_questions(questions, 64))
    for i in range(2):
        assert set(order[i, :3].tolist()) == set(worth[i].nonzero().flatten().tolist())


def test_where_every_set_was_asked_about_the_order_is_greedy_on_the_answers():
    """Feature 0 is worth most alone, 1 and 2 only together: no submodular function says that."""

    def ask(sets):
        s = sets.double()
        return 3 * s[..., 0] + 5 * s[..., 1] * s[..., 2] - 4 + 0.1 * s[..., 3]

    ends = torch.tensor([-4.0]), torch.tensor([4.1])
    search = Search(ask, *ends, torch.ones(1, 5))
    order = search.run(plan_questions(30, 5))

    def better(chosen):
        x = torch.zeros(1, 1, 5, dtype=torch.bool)
        x[..., list(chosen)] = True
        return float(ask(x).sigmoid() - ask(~x).sigmoid())

    taken = []
    for _ in range(4):
        taken.append(max(set(range(5)) - set(taken), key=lambda k: better([*taken, k])))
        assert order[0, len(taken) - 1] == taken[-1]
