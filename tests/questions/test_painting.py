"""How gains are drawn over positions, and how the first cells are sorted in quarters."""

import pytest
import torch

from sea_nn.features import Features
from sea_nn.questions.designs import around, choose_open
from sea_nn.questions.finer import can_refine, count_questions, sort_finer
from sea_nn.questions.learn import learn_from_answers
from sea_nn.questions.painting import add_densities, blend, correlate, paint_in_order
from sea_nn.questions.search import plan_questions


def _draw(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_map_keeps_the_order_of_its_score_and_sums_to_the_gains():
    score, gains = _draw(2, 6, 6), torch.tensor([[3.0, 3.0, 0.5, 0.0]]).expand(2, -1)
    sizes = torch.tensor([9, 9, 9, 9])
    map_ = paint_in_order(score, gains, sizes).float()
    assert torch.equal(map_.flatten(1).argsort(1), score.flatten(1).argsort(1))
    torch.testing.assert_close(map_.sum((1, 2)), gains.sum(1))
    # the k largest have what the first features of their area gain, up to the tilt
    found = map_.flatten(1).sort(dim=1, descending=True).values.cumsum(1)
    wanted = (gains / 9).repeat_interleave(9, 1).cumsum(1)
    torch.testing.assert_close(found, wanted.float(), rtol=0.03, atol=0.03)
    # equal gains keep their order without being told apart by more than the tilt
    top = map_.flatten(1).topk(18, 1).values
    assert bool((top[:, 0] < 1.05 * top[:, -1]).all())


def test_a_class_without_support_has_an_empty_map():
    assert not paint_in_order(_draw(1, 4), torch.zeros(1, 2), torch.tensor([2, 2])).any()


def test_more_answers_follow_the_cells_fewer_the_heat():
    earliness, heat, one = torch.tensor([[1.0, 0.5]]), torch.tensor([[1.0, 3.0]]), torch.ones(1)
    for sharpness, first in ((0.5, 1), (50.0, 0)):
        assert int(blend(earliness, heat, sharpness, one).argmax()) == first
    assert int(blend(earliness, heat, 0.5, 0 * one).argmax()) == 0  # heat that is not trusted
    assert bool(blend(earliness, torch.zeros(1, 2), 1.0, one).isfinite().all())


def test_heat_is_trusted_as_far_as_the_answers_bear_it_out():
    generator = torch.Generator().manual_seed(0)
    sets = torch.rand(3, 200, 16, generator=generator) < torch.rand(200, 1, generator=generator)
    worth = torch.rand(16, generator=generator).double()
    scores = (sets.double() @ worth - 3).sigmoid()
    heat = torch.stack([worth, 1 - worth, torch.ones(16).double()])  # right, wrong, says nothing
    agreed = correlate(sets, scores, heat)
    assert float(agreed[0]) > 0.5
    assert float(agreed[1]) < -0.5  # though larger sets have more heat and higher scores
    assert float(agreed[2]) == 0
    assert correlate(sets, torch.ones(3, 200), heat).tolist() == [0, 0, 0]


def test_regions_and_heat_are_added_as_densities():
    heat, effects = torch.zeros(1, 8, 8), torch.zeros(1, 8, 8)
    heat[0, 0, 0], effects[0, 4:, 4:] = 1.0, 1.0
    both = add_densities(heat.double(), effects.double(), torch.ones(1), 1.0)
    assert bool((both[0, 6, 6] > both[0, 2, 2]).all())
    assert int(both.argmax()) == 0  # one pixel holds all heat, the region has many


def test_sets_are_chosen_where_the_answer_is_open():
    sets = torch.eye(6, dtype=torch.bool)[None]
    sure = torch.tensor([[0.0, 1.0, 0.5, 0.5, 1.0, 0.0]])
    draws = torch.Generator().manual_seed(0)
    chosen = choose_open(sets, sure, torch.zeros(1, 6), 2, draws)[0].nonzero()[:, 1]
    assert chosen.tolist() == [2, 3]  # places 0, 2, 4 and 1, 3, 5 have one open set each
    sizes = around(torch.zeros(1, 32), 50, 1.0, torch.Generator().manual_seed(0), most=7).sum(2)
    assert (int(sizes.min()), int(sizes.max())) == (1, 7)


def test_quarters_of_the_first_cells_are_sorted_by_what_they_do():
    features = Features.of(torch.zeros(2, 1, 32, 32)).to_ask_about()
    fine = features.on_grid((16, 16))
    worth = _draw(2, 256)

    def ask(sets):  # what a quarter is worth adds up
        quarters = fine.sum(sets.flatten(0, 1).double()).view(*sets.shape[:2], 256) / 4
        return (quarters @ worth[:, :, None])[..., 0]

    coarse = features.sum(fine.expand(worth))
    order = coarse.argsort(1, descending=True)
    found, quarters = sort_finer(ask, features, order, torch.ones(2, 32, 32), 2)
    assert found.n == 256
    assert torch.equal(quarters.sort(1).values, torch.arange(256).expand(2, -1))
    taken = worth.gather(1, quarters)
    assert bool((taken[:, 8:24].diff(dim=1) <= 0).all())  # the last window is in order
    # a cell's quarters stay in its place beyond the windows
    parent = fine.sum(features.expand(torch.arange(64.0).expand(2, -1))) / 4
    assert torch.equal(parent.gather(1, quarters)[:, 24::4].long(), order[:, 6:])
    assert count_questions(2) == 120


def test_only_cells_of_images_have_quarters():
    assert can_refine(Features.of(torch.zeros(1, 3, 16, 16)).to_ask_about())
    assert not can_refine(Features.of(torch.zeros(1, 3, 9, 9)).to_ask_about())
    assert not can_refine(Features.of(torch.zeros(1, 100)).to_ask_about())
    mask = torch.arange(256).view(16, 16) % 7
    assert not can_refine(Features.of(torch.zeros(1, 3, 16, 16), feature_mask=mask))


@pytest.mark.parametrize("questions", [30, 124])
def test_few_questions_find_the_region_that_matters(questions):
    worth = torch.zeros(32, 32, dtype=torch.float64)
    worth[17:22, 9:14] = 1 / 25  # off the cells of 4 x 4 pixels

    def ask_only(sets):
        return (12 * (sets.double() * worth).sum((2, 3)) - 6).sigmoid()

    heat = 1 + torch.arange(32.0).expand(1, 32, 32) / 32
    found = learn_from_answers(ask_only, torch.tensor([6.0]).sigmoid(), heat, questions)
    asked = found.asked.sets
    assert asked.shape[1] >= 0.85 * questions
    assert bool(((asked > 0) & (asked < 1)).any())  # of some cells, parts were left
    top = found.attribution[0].flatten().topk(25).indices
    assert float(worth.flatten()[top].sum()) > 0.4
    assert found.order[0, 0] in (34, 35, 42, 43)


def test_halves_are_recalled_for_another_class():
    worth = torch.rand(2, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    worth[0, :8, :8] += 4.0
    worth[1, 24:, 24:] += 4.0

    def ask_only(target):
        part = worth[target] / worth[target].sum()
        return lambda sets: (12 * (sets.double() * part).sum((2, 3)) - 6).sigmoid()

    whole, heat = torch.tensor([6.0]).sigmoid(), torch.ones(1, 32, 32)
    first = learn_from_answers(ask_only(0), whole, heat, 30)
    features = Features.of(torch.zeros(1, 1, 32, 32)).to_ask_about()
    sets = first.asked.sets
    said = torch.stack([_score_share(worth[1], features, one) for one in sets[0]])[None]
    other = learn_from_answers(ask_only(1), whole, heat, 30, known=(sets, said))
    assert torch.equal(other.asked.sets, sets)  # nothing more was asked
    assert bool(other.attribution[0, 24:, 24:].mean() > other.attribution[0, :8, :8].mean())


def _score_share(worth, features, left):
    part = features.sum((worth / worth.sum())[None])[0]
    return (12 * (left.double() * part).sum() - 6).sigmoid()


@pytest.mark.parametrize("questions", [2, 29, 45, 130, 500, 1000, 3000])
@pytest.mark.parametrize("image", [True, False])
def test_a_plan_spends_what_it_may(questions, image):
    plan = plan_questions(questions, 64, image=image)
    spent = 2 * plan.halves + 2 * sum(plan.pairs) + 60 * len(plan.lows)
    spent += count_questions(plan.finer) + 24 * plan.confirm
    assert 0.7 * questions - 2 <= spent <= questions
