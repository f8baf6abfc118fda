"""The questions to the model: an orthogonal design, exact for effects that add up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sea_nn import SEA, SEAConfig, ensemble
from sea_nn.config import count_questions
from sea_nn.errors import InputError
from sea_nn.pipeline import learn
from sea_nn.questions.answers import HalfAnswers, divide, join_answers, split
from sea_nn.questions.ask import make_ask


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def additive(truth: Tensor):
    """A model whose answer is the sum of the features' effects: [N, *shape]."""

    def ask(sets: Tensor) -> Tensor:
        values = truth.unsqueeze(1)
        return torch.where(sets, values, -values).flatten(2).sum(2)

    return ask


@pytest.mark.parametrize(
    ("shape", "count"),
    [*((shape, 16) for shape in ((28, 28), (5, 7), (4, 4), (224, 30), (64,), (16,))),
     ((28, 28), 4), ((28, 30), 64), ((64,), 64), ((16, 33), 256)],
)  # fmt: skip
def test_each_split_halves_the_regions_and_no_two_repeat_each_other(
    shape: tuple[int, ...], count: int
) -> None:
    regions = divide(torch.ones(1, *shape), count)
    sets = split(regions, count)
    assert sets.shape == (1, count - 1, *shape)
    present = torch.stack([sets[0][:, regions[0] == k].all(1) for k in range(count)], 1)
    absent = torch.stack([~sets[0][:, regions[0] == k].any(1) for k in range(count)], 1)
    assert bool((present ^ absent).all())  # a region is never cut
    signs = present.double() * 2 - 1
    assert torch.equal(signs.sum(1), torch.zeros(count - 1, dtype=torch.float64))
    assert torch.equal(signs @ signs.T, count * torch.eye(count - 1, dtype=torch.float64))


@pytest.mark.parametrize("count", [16, 64])
def test_the_regions_effects_are_exact_where_effects_add_up(count: int) -> None:
    heat, truth = seeded(3, 12, 20), seeded(3, 12, 20, seed=1) - 0.3
    answers = HalfAnswers.of(additive(truth), heat, count)
    regions = answers.regions[0].flatten(1)
    effects = torch.zeros(3, count, dtype=torch.float64).scatter_add_(1, regions, truth.flatten(1))
    first = torch.stack([(regions == k).long().argmax(1) for k in range(count)], 1)
    inside = answers.sets.flatten(2).gather(2, first.unsqueeze(1).expand(3, count - 1, count))
    design = inside.double() * 2 - 1
    found = torch.einsum("nr,nrk->nk", answers.preference, design) / count
    torch.testing.assert_close(found, effects - effects.mean(1, keepdim=True))
    drawn = answers.map().flatten(1)
    best, least = (answers.map().flatten(1).gather(1, first.gather(1, k)) for k in (
        effects.argmax(1, keepdim=True), effects.argmin(1, keepdim=True)
    ))  # fmt: skip
    assert bool((best > least).all())
    assert drawn.shape == regions.shape


def test_even_heat_gives_equal_cells_and_heat_draws_the_cuts_together() -> None:
    even = divide(torch.ones(1, 32, 32))
    assert torch.equal(even[0].flatten().bincount(), torch.full((16,), 64))
    heat = torch.zeros(1, 32, 32)
    heat[0, :8, :8] = 1
    regions = divide(heat)
    assert int((regions == 0).sum()) < 64 < int((regions == 15).sum())
    assert torch.equal(divide(torch.zeros(1, 32, 32)), even)  # no heat at all: by area


@pytest.mark.parametrize(("shape", "count"), [((3,), 3), ((2, 2), 4), ((1, 40), 16), ((3, 40), 15)])
def test_small_inputs_have_as_many_regions_as_they_can(shape: tuple[int, ...], count: int) -> None:
    assert len(divide(seeded(1, *shape)).unique()) == count


def test_a_member_that_foretells_the_answers_counts_for_more() -> None:
    truth = seeded(2, 16, 16)
    heatmaps = torch.stack([truth, 1 - truth, seeded(2, 16, 16, seed=3)], 1)
    answers = HalfAnswers.of(additive(truth - 0.5), heatmaps.mean(1))
    cosine = answers.agreement(heatmaps)
    assert bool((cosine[:, 0] > cosine[:, 2]).all() and (cosine[:, 2] > cosine[:, 1]).all())
    rows, weights = join_answers(answers, heatmaps, torch.ones(2, 3, dtype=torch.float64))
    assert rows.shape == (2, 4, 16, 16)
    assert weights.shape == (2, 4)
    assert bool((weights[:, 0] > weights[:, 1]).all())
    assert float(rows[:, 3].amin()) == 0
    assert float(rows[:, 3].amax()) == 1


def test_a_method_without_a_vote_has_none_after_the_answers_either() -> None:
    heatmaps = seeded(1, 3, 8, 8)
    answers = HalfAnswers.of(additive(heatmaps[:, 0]), heatmaps.mean(1))
    _, weights = join_answers(
        answers, heatmaps, torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    )
    assert float(weights[0, 1]) == 0


def test_answers_lift_what_the_members_miss() -> None:
    heatmaps, truth = seeded(1, 2, 32, 32), torch.zeros(1, 32, 32, dtype=torch.float64)
    truth[0, 8:16, 16:24] = 1 / 64
    plain = ensemble(heatmaps)
    asked = learn(heatmaps, ask=additive(truth))
    inside = truth[0] > 0
    before, after = (
        e.attribution[0][inside].sum() / e.attribution[0].sum() for e in (plain, asked)
    )
    assert float(after) > 2 * float(before)
    assert asked.answers is not None
    assert asked.answers.preference.shape == (1, count_questions(16) // 2)


def test_a_batch_is_its_inputs_one_by_one() -> None:
    heatmaps, truth = seeded(3, 2, 12, 12), seeded(3, 12, 12, seed=4) - 0.5
    config = SEAConfig(rounds=2)
    together = learn(heatmaps, config, ask=additive(truth)).attribution
    for k in range(3):
        alone = learn(heatmaps[k : k + 1], config, ask=additive(truth[k : k + 1])).attribution
        torch.testing.assert_close(alone, together[k : k + 1], rtol=1e-9, atol=0)


def test_more_regions_are_more_questions_and_a_finer_answer() -> None:
    truth = torch.zeros(1, 32, 32, dtype=torch.float64)
    truth[0, 12:16, 20:24] = 1
    heatmaps = seeded(1, 2, 32, 32)
    coarse, fine = (
        learn(heatmaps, SEAConfig(regions=count), ask=additive(truth)) for count in (16, 64)
    )
    assert coarse.answers is not None
    assert fine.answers is not None
    assert fine.answers.preference.shape == (1, 63)
    shares = [float((e.attribution * truth).sum() / e.attribution.sum()) for e in (coarse, fine)]
    assert shares[1] > shares[0]
    with pytest.raises(InputError, match="4, 16, 64, 256"):
        SEAConfig(regions=20)


def test_answers_about_smaller_regions_count_for_more() -> None:
    heatmaps, weights = seeded(1, 2, 16, 16), torch.ones(1, 2, dtype=torch.float64)
    said = []
    for count in (16, 64):
        answers = HalfAnswers.of(lambda sets: torch.zeros(sets.shape[:2]), heatmaps.mean(1), count)
        said.append(float(join_answers(answers, heatmaps, weights)[1][0, -1]))
    assert said[1] / said[0] == pytest.approx((63 / 15) ** 0.5)


def test_rounds_say_how_often_the_model_is_asked() -> None:
    truth, calls = seeded(1, 8, 8), []

    def ask(sets: Tensor) -> Tensor:
        calls.append(sets)
        return additive(truth)(sets)

    for rounds in (0, 1, 3):
        calls.clear()
        learn(seeded(1, 2, 8, 8), SEAConfig(rounds=rounds), ask=ask)
        assert len(calls) == rounds
    assert not torch.equal(calls[0], calls[1])  # asked again about the map learned from the first


@pytest.mark.parametrize(
    ("answer", "says"),
    [(lambda s: torch.zeros(1, 2), "one number a set"),
     (lambda s: torch.full(s.shape[:2], torch.nan), "NaN")],
)  # fmt: skip
def test_bad_answers_are_refused(answer, says: str) -> None:
    with pytest.raises(InputError, match=says):
        learn(seeded(1, 2, 8, 8), ask=answer)


def test_answers_that_say_nothing_leave_the_members_alone() -> None:
    heatmaps = seeded(2, 3, 8, 8)
    result = learn(heatmaps, ask=lambda sets: torch.zeros(sets.shape[:2]))
    heat = heatmaps.flatten(2).mean(2)  # the weights that even out spread
    torch.testing.assert_close(result.attribution, ensemble(heatmaps, weights=heat).attribution)


class Softmax(nn.Module):
    def __init__(self, n: int, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(n, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


@pytest.mark.parametrize("absent", ["baseline", "mean"])
def test_the_answer_is_what_one_half_keeps_minus_what_the_other_does(absent: str) -> None:
    model, x = Softmax(2 * 6 * 6), seeded(2, 2, 6, 6).float()
    sets = torch.zeros(2, 2, 6, 6, dtype=torch.bool)
    sets[:, 0, :3], sets[:, 1, :, 2:] = True, True
    target = torch.tensor([2, 0])
    fill = (
        x.mean((2, 3), keepdim=True).expand_as(x) if absent == "mean" else torch.full_like(x, 0.3)
    )
    found = make_ask(model, x, target, absent=absent, baselines=0.3)(sets)
    for i in range(2):
        for r in range(2):
            pair = [torch.where(side, x[i], fill[i]) for side in (sets[i, r], ~sets[i, r])]
            with torch.no_grad():
                one, other = model(torch.stack(pair)).softmax(1)[:, target[i]]
            assert float(found[i, r]) == pytest.approx(float(one - other), abs=1e-6)


def test_asking_counts_its_evaluations_and_leaves_the_model_as_it_was() -> None:
    model, x, counted = Softmax(36).train(), seeded(3, 1, 6, 6).float(), []
    model.linear.weight.grad = torch.ones_like(model.linear.weight)
    sets = torch.ones(3, 5, 6, 6, dtype=torch.bool)
    make_ask(model, x, 1, outputs=model(x).detach(), tick=counted.append)(sets)
    assert sum(counted) == 3 * 5 * 2
    assert model.training
    assert bool((model.linear.weight.grad == 1).all())


def test_sets_of_another_shape_are_refused() -> None:
    ask = make_ask(Softmax(36), torch.rand(1, 1, 6, 6), 0)
    with pytest.raises(InputError, match=r"features \[6, 6\]"):
        ask(torch.ones(1, 2, 5, 6, dtype=torch.bool))


def test_what_absence_means_is_checked() -> None:
    x = torch.rand(1, 1, 6, 6)
    with pytest.raises(InputError, match="absent must be one of blur, mean, baseline"):
        make_ask(Softmax(36), x, 0, absent="grey")
    with pytest.raises(InputError, match="must broadcast to x"):
        make_ask(Softmax(36), x, 0, absent="baseline", baselines=torch.zeros(5))


@pytest.mark.parametrize("shape", [(7,), (2, 30), (1, 12, 12)])
def test_sea_asks_about_tables_series_and_images(shape: tuple[int, ...]) -> None:
    x = seeded(2, *shape).float()
    model = Softmax(x[0].numel())
    methods = ("saliency", "input_x_gradient")
    found = SEA(model, methods, SEAConfig(rounds=2)).explain(x)
    assert found.provenance.evaluations["sea"] == 2 * 2 * count_questions(16)
    assert bool(found.attribution.isfinite().all())
    # By default only images are asked about: only they were measured.
    default = SEA(model, methods).explain(x).provenance.evaluations["sea"]
    assert default == (2 * count_questions(16) if len(shape) == 3 else 0)


def test_questions_cost_at_most_a_tenth_of_the_paper_ensemble() -> None:
    x = seeded(1, 1, 8, 8).float()
    spent = SEA(Softmax(64), "paper").explain(x).provenance.evaluations
    asked = spent.pop("sea")
    assert 0 < asked <= sum(spent.values()) / 10


def test_inputs_nobody_votes_for_have_no_map_and_no_nan():
    heatmaps = seeded(2, 3, 8, 8)
    weights = torch.tensor([[1.0, 1, 1], [0, 0, 0]]).double()
    answers = HalfAnswers.of(additive(seeded(2, 8, 8, seed=1)), heatmaps.mean(1))
    rows, pulls = join_answers(answers, heatmaps, weights)
    assert rows.isfinite().all()
    assert pulls.isfinite().all()
    assert (pulls[1] == 0).all()
    alone = join_answers(
        HalfAnswers.of(additive(seeded(2, 8, 8, seed=1)[:1]), heatmaps[:1].mean(1)),
        heatmaps[:1],
        weights[:1],
    )
    assert torch.allclose(pulls[:1], alone[1])
