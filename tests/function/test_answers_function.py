"""The function learned from answers: its laws, its ends, planted truths, and what it cannot say."""

import itertools

import pytest
import torch
from sea_bench.experiments.planted import RULES, measure

from sea_nn.function.answers_fit import FREE, HELD, MONOTONE, fit_answers, group_units
from sea_nn.function.answers_function import (
    AnswersFunction,
    concave_slopes,
    place_units,
)
from sea_nn.function.answers_order import (
    Correction,
    fit_and_check,
    order_by_wish,
    order_features,
)
from sea_nn.questions.designs import every_set, paired, spread_sets
from tests.reference.answers import fit_by_autograd


def _problem(count=2, n=9, asked=40, seed=0):
    """Inputs whose log-odds are a concave function of the features left."""
    generator = torch.Generator().manual_seed(seed)
    sets = torch.stack([paired(spread_sets(asked // 2, n, generator)) for _ in range(count)])
    worth = torch.rand(count, n, generator=generator, dtype=torch.float64)
    worth = worth / worth.sum(1, keepdim=True)

    def truth(x):
        return -4 + 8 * (x.double() @ worth[:, :, None])[:, :, 0].sqrt()

    return sets, truth(sets), torch.full((count,), -4.0), torch.full((count,), 4.0), truth


def _every(n):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=n)), dtype=torch.float64)


@pytest.fixture(scope="module")
def learned():
    sets, answers, none, all_, _ = _problem(n=6)
    return fit_answers(sets, answers, none, all_)


def _check_submodular(f, monotone):
    sets = _every(6)
    value = f.value(sets.expand(len(f.all), -1, -1))
    code = {tuple(s.int().tolist()): i for i, s in enumerate(sets)}
    for s, i in code.items():
        for a, b in itertools.combinations([k for k in range(6) if not s[k]], 2):
            with_a, with_b = list(s), list(s)
            with_a[a] = with_b[b] = 1
            both = [max(p) for p in zip(with_a, with_b, strict=True)]
            va, vb, vab = (value[:, code[tuple(t)]] for t in (with_a, with_b, both))
            assert not monotone or bool((va >= value[:, i] - 1e-12).all())
            assert bool((va + vb >= value[:, i] + vab - 1e-9).all())


def test_value_is_monotone_and_submodular_without_evidence_against(learned):
    _check_submodular(learned, monotone=True)


@pytest.mark.parametrize("link", ["log-odds", "value"])
def test_a_free_function_is_submodular_also_where_features_only_lower_the_answer(link):
    sets, answers, none, all_, _ = _problem(n=6)
    f = fit_answers(sets, -answers, -none, -all_, link=link, against=FREE)
    _check_submodular(f, monotone=False)
    ends = torch.stack([torch.zeros(6), torch.ones(6)]).expand(2, -1, -1)
    wanted = torch.tensor([[4.0, -4.0]]).double().expand(2, -1)
    torch.testing.assert_close(f.predict(ends), wanted)


def test_evidence_against_stays_submodular_but_can_fall():
    f = AnswersFunction(
        *(
            torch.ones(1, 2, 1),
            torch.ones(1, 1),
            torch.tensor([[0.0, 5.0]]),
            torch.tensor([[-3.0]]),
        ),
        *(torch.tensor([[-1.0]]), torch.tensor([[1.0]])),
    )
    value = f.value(torch.tensor([[[0.0, 0], [1, 0], [0, 1], [1, 1]]]))[0]
    assert value[3] < value[1]
    assert value[1] + value[2] >= value[0] + value[3]


@pytest.mark.parametrize("link", ["log-odds", "value"])
@pytest.mark.parametrize("against", [MONOTONE, HELD, FREE])
def test_ends_are_the_models_own(link, against):
    sets, answers, none, all_, _ = _problem()
    f = fit_answers(sets, answers, none, all_, link=link, against=against)
    ends = f.predict(torch.stack([torch.zeros(2, 9), torch.ones(2, 9)], 1))
    torch.testing.assert_close(ends, torch.stack([none, all_], 1).double(), atol=1e-9, rtol=0)


def test_gains_sum_to_all_minus_none_and_never_grow(learned):
    for order in (order_features(learned, 2, 6), torch.arange(6).flip(0).expand(2, -1)):
        gains = learned.gains(order)
        torch.testing.assert_close(gains.sum(1), torch.full((2,), 8.0).double())
        assert bool((gains >= 0).all())
        assert bool((gains.diff(dim=1) <= 1e-9).all())


@pytest.mark.parametrize(("noise", "free"), [(0.0, True), (0.5, False)])
def test_where_the_whole_input_has_less_a_free_function_may_be_somewhat_worse(noise, free):
    draws = torch.Generator().manual_seed(3)
    sets = torch.rand(1, 12, 6, generator=draws) < 0.5
    worth = torch.tensor([1.0, -1, -1, -1, -1, -1])  # a monotone function has no map
    answers = sets.float() @ worth + noise * torch.randn(1, 12, generator=draws) - 1
    f, _ = fit_and_check(sets, answers, torch.tensor([-1.0]), worth.sum()[None] - 1)
    order = order_features(f, 1, 6)
    assert bool(f.against.any()) == free
    assert (float(f.gains(order)[0, 0]) > 0.5) == free
    if free:
        assert order[0, 0] == 0


def test_gains_of_a_class_that_nothing_supports_are_negative_and_sum():
    sets, answers, none, all_, _ = _problem()
    gains = fit_answers(sets, -answers, -none, -all_).gains(torch.arange(9).expand(2, -1))
    torch.testing.assert_close(gains.sum(1), torch.full((2,), -8.0).double())
    assert bool((gains <= 0).all())


def test_concave_slopes_are_those_of_the_upper_hull():
    curve = torch.tensor([[0.0, 0.0, 2.0, 3.0, 3.0]], dtype=torch.float64)
    both, falling = torch.cat([curve, -curve]), torch.tensor([[False], [True]])
    wanted = torch.tensor([[1.0, 1, 1, 0], [-1, -1, -1, 0]]).double()
    torch.testing.assert_close(concave_slopes(both, falling), wanted)


def test_a_batch_is_learned_as_its_inputs_alone_and_again_alike(monkeypatch):
    sets, answers, none, all_, _ = _problem(3)
    heat = torch.rand(3, 9, generator=torch.Generator().manual_seed(1))
    together = fit_answers(sets, answers, none, all_, heat=heat).weight
    again = fit_answers(sets, answers, none, all_, heat=heat).weight
    assert torch.equal(together, again)
    for i in range(3):
        alone = fit_answers(*(t[i : i + 1] for t in (sets, answers, none, all_)), heat=heat[i:][:1])
        torch.testing.assert_close(alone.weight, together[i : i + 1])
    monkeypatch.setattr("sea_nn.function.answers_fit.ROOM", 1)
    parts = fit_answers(sets, answers, none, all_, heat=heat)
    torch.testing.assert_close(parts.weight, together)


def test_some_inputs_may_be_free_to_have_evidence_against():
    sets, answers, none, all_, _ = _problem(3)
    kinds = (MONOTONE, HELD, FREE)
    mixed = fit_answers(sets, answers, none, all_, against=torch.tensor(kinds)).against
    for i, kind in enumerate(kinds):
        given = (t[[i]] for t in (sets, answers, none, all_))
        torch.testing.assert_close(fit_answers(*given, against=kind).against, mixed[[i]])
    assert bool((mixed[0] == 0).all())
    assert not torch.allclose(fit_answers(sets, answers, none, all_, against=HELD).against, mixed)


def test_it_predicts_sets_it_was_not_asked_about():
    sets, answers, none, all_, truth = _problem(4, asked=60)
    f, estimate = fit_and_check(sets, answers, none, all_)
    new = spread_sets(100, 9, torch.Generator().manual_seed(5)).expand(4, -1, -1)
    wanted = truth(new).sigmoid()
    error = (f.score(new) - wanted).square().mean()
    assert error < 0.1 * wanted.var()
    assert estimate.shape == (4,)
    assert bool((estimate < 0.25).all())


def test_a_function_is_free_only_where_answers_left_out_say_so():
    sets, answers, none, all_, _ = _problem(3, asked=60)
    worth = torch.tensor([3.0, -2, 1, 0, 0, 2, -1, 1, 0]).double()
    answers[1], all_[1] = sets[1].double() @ worth - 4, worth.sum() - 4  # some speak against
    answers[2], all_[2] = -4.0, -4.0  # says the same of everything
    f, error = fit_and_check(sets, answers, none, all_)
    assert (f.against.sum(1) > 0).tolist() == [False, True, False]
    assert float(error[1]) < 0.05
    order = torch.arange(9).expand(3, -1)
    gains = f.gains(order).sum(1)
    torch.testing.assert_close(gains, (all_ - none).double())
    assert f.find_against()[1].topk(2).indices.tolist() == [1, 6]
    assert bool((f.gains(order)[2] == 0).all())


def test_fewer_answers_than_groups_have_no_error_estimate():
    sets, answers, none, all_, _ = _problem(asked=2)
    assert bool(fit_and_check(sets, answers, none, all_)[1].isnan().all())


def test_heat_decides_where_nothing_was_asked():
    none, all_ = torch.tensor([-3.0]), torch.tensor([3.0])
    heat = torch.tensor([[0.0, 0.1, 5.0, 0.2]])
    f = fit_answers(torch.zeros(1, 0, 4), torch.zeros(1, 0), none, all_, heat=heat)
    assert order_features(f, 1, 4)[0, 0] == 2


def _planted(rule, n=6):
    sets = every_set(n)[None]
    answers = torch.where(rule(sets), 3.0, -3.0)
    return fit_answers(sets, answers, torch.tensor([-3.0]), torch.tensor([3.0]), steps=200)


def test_or_of_two_features_is_learned_and_nothing_else_counts():
    f = _planted(lambda s: s[..., 0] | s[..., 1])
    sets = every_set(6)[None]
    torch.testing.assert_close(
        f.score(sets).round(), (sets[..., 0] | sets[..., 1]).double(), atol=0, rtol=0
    )
    order = order_features(f, 1, 6)
    assert set(order[0, :2].tolist()) == {0, 1}


def test_and_is_beyond_a_submodular_function_but_its_features_come_first():
    """AND is supermodular: either feature alone must be given some worth, or both none."""
    f = _planted(lambda s: s[..., 0] & s[..., 1])
    assert set(order_features(f, 1, 6)[0, :2].tolist()) == {0, 1}
    one, both = f.score(torch.tensor([[[1.0, 0, 0, 0, 0, 0], [1.0, 1, 0, 0, 0, 0]]]))[0]
    assert both > 0.5 > one


def test_the_correction_follows_what_a_submodular_function_cannot():
    sets = every_set(6)[None]
    answers = torch.where(sets[..., 0] ^ sets[..., 1], 3.0, -3.0)
    f = fit_answers(sets, answers, torch.tensor([-3.0]), torch.tensor([3.0]))
    corrected = Correction(f, sets, answers)
    wanted = answers.sigmoid()
    off = [(g.score(sets) - wanted).square().mean() for g in (f, corrected)]
    assert off[1] < off[0]


class _ByNumber:
    """A score that tells features from each other by nothing."""

    def score(self, x):
        return x.double().mean(2)


def test_orders_by_wish_follow_the_order_found_where_nothing_else_tells():
    found = torch.tensor([[3, 0, 2, 1], [1, 2, 3, 0]])
    keep, remove = order_by_wish(_ByNumber(), found, say=0.1)
    assert torch.equal(keep, found)
    assert torch.equal(remove, found)


def test_places_of_units_cover_the_grid():
    places = place_units(12, (3, 4))
    assert places.shape == (12, 8)
    assert bool((places[:, 0] == 0).all())
    assert float(places.min()) >= -6


def test_rows_are_the_functions_of_some_inputs(learned):
    x = torch.rand(2, 5, 6, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(learned.rows(slice(1, 2)).predict(x[1:]), learned.predict(x)[1:])


@pytest.mark.parametrize("link", ["log-odds", "value"])
@pytest.mark.parametrize("against", [MONOTONE, HELD, FREE])
def test_the_fit_is_that_of_autograd_and_pytorchs_adam(link, against):
    sets, answers, none, all_, _ = _problem(count=3)
    generator = torch.Generator().manual_seed(1)
    answers = answers + 0.5 * torch.randn(answers.shape, generator=generator)
    all_ = torch.tensor([4.0, -4.5, 4.0])  # the second has less support than the empty input
    answers[2] -= 6  # of the third, many sets have less than that
    given = {
        "heat": torch.rand(3, 9, generator=generator),
        "counted": torch.rand(answers.shape, generator=generator) < 0.8,
        "link": link,
        "against": against,
    }
    fast = fit_answers(sets, answers, none, all_, places=place_units(9), **given).parts()
    slow = fit_by_autograd(sets, answers, none, all_, **given).parts()
    for name, part in slow.items():
        torch.testing.assert_close(fast[name], part.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_planted_rules_are_found_by_every_draw_of_the_sets(rule):
    found = measure(rule, 256, draws=4)
    assert float(found.r2.min()) > (0.85 if rule.name == "majority of five" else 0.98)
    assert bool((found.second <= 0.1).all())
    assert bool((found.order >= found.best - 0.01).all())
    assert bool((found.keeps == 1).all())


def test_units_start_as_groups_of_features_that_replace_each_other():
    sets = every_set(6)[None]
    x = sets.double()
    answers = 3 * torch.maximum(x[..., 1], x[..., 4]) + 2 * x[..., 2] - 3
    groups = group_units(sets, answers, torch.tensor([-3.0]), torch.tensor([2.0]))[0].exp()
    assert bool((groups[:, 0] == 1).all())
    members = [(groups[:, u] > 0.5).nonzero().flatten().tolist() for u in (1, 2)]
    assert sorted(members) == [[1, 4], [2]]
