"""The design of questions: balanced, never twice, within the budget, to a good order."""

import pytest
import torch
from torch import Tensor, nn

from sea_nn.errors import InputError
from sea_nn.features import TABLE, Features
from sea_nn.function.function import read
from sea_nn.function.process import SetProcess
from sea_nn.model.opening import open_model
from sea_nn.questions.absent import prepare
from sea_nn.questions.design import design, split_evenly
from sea_nn.questions.learn import AnswersMap, learn_from_answers
from tests.helpers.networks import ask_only


def run(n: int, questions: int, worth: Tensor, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """All sets with the empty and the whole one, and those of each round."""
    ends = torch.stack([torch.zeros(n), torch.ones(n)]).expand(len(worth), -1, -1).double()

    def answer(x: Tensor) -> Tensor:
        return (x.double() * worth[:, None]).sum(2) - 2

    asked, rounds = [], design(ends, answer(ends), questions, link="log-odds", seed=seed)
    try:
        sets = next(rounds)
        while True:
            asked.append(sets)
            sets = rounds.send(answer(sets))
    except StopIteration:
        return torch.cat([ends, *asked], 1), asked


def test_as_many_sets_are_asked_about_as_there_are_questions_and_none_twice() -> None:
    worth = torch.rand(2, 12, generator=torch.Generator().manual_seed(0)).double()
    for questions in (1, 2, 7, 30, 90):
        every, asked = run(12, questions, worth)
        assert sum(part.shape[1] for part in asked) == questions
        sets = every[0]
        assert len(sets.unique(dim=0)) == len(sets)


def test_every_set_is_asked_about_where_questions_are_enough() -> None:
    every, asked = run(4, 100, torch.ones(1, 4).double())
    assert sum(part.shape[1] for part in asked) == 14
    assert len(every[0].unique(dim=0)) == 16


def test_splits_are_balanced_and_cross_evenly() -> None:
    generator = torch.Generator().manual_seed(0)
    for layout in (None, (4, 4)):
        halves = split_evenly(16, 15, layout, generator)
        signs = 2 * halves - 1
        assert bool((halves.sum(1) == 8).all())
        assert torch.equal(signs @ signs.T, 16 * torch.eye(15).double())
    first = split_evenly(16, 1, (4, 4), generator).view(4, 4)
    assert int((first.diff(dim=0) != 0).sum() + (first.diff(dim=1) != 0).sum()) == 4


def test_other_sizes_have_splits_too() -> None:
    for n in (2, 3, 5, 14, 65):
        halves = split_evenly(n, min(n, 6), None, torch.Generator().manual_seed(0))
        assert halves.shape == (min(n, 6), n)
        assert bool(((halves.sum(1) > 0) & (halves.sum(1) < n)).all())


def test_the_order_of_an_additive_model_is_found() -> None:
    worth = torch.tensor([[3.0, 0.1, 0.2, 2.0, 0.0, 0.15, 1.0, 0.05, 0.1, 0.0]]).double()

    def ask(sets: Tensor) -> Tensor:
        return ((sets.double() * worth[:, None]).sum(2) - 2).sigmoid()

    whole = ask(torch.ones(1, 1, 10))[:, 0]
    found = learn_from_answers(
        ask, whole, torch.zeros(1, 0, 10), 48, features=Features(TABLE, (10,))
    )
    assert found.order[0, :3].tolist() == [0, 3, 6]
    unseen = torch.rand(1, 50, 10, generator=torch.Generator().manual_seed(1)) < 0.5
    error = found.function.score(unseen.double()) - ask(unseen)
    assert float(error.abs().mean()) < 0.02


def test_of_two_copies_one_suffices_and_neither_is_needed_alone() -> None:
    """p is high with feature 0 or 1, which stand for each other; feature 2 adds a little."""

    def ask(sets: Tensor) -> Tensor:
        x = sets.double()
        return (4 * torch.maximum(x[..., 0], x[..., 1]) + x[..., 2] - 3).sigmoid()

    whole = ask(torch.ones(1, 1, 8))[:, 0]
    features = Features(TABLE, (8,))
    found = learn_from_answers(ask, whole, torch.zeros(1, 0, 8), 100, features=features)
    kept = found.keep[0]
    first, second = kept[:2].sort(descending=True).values
    assert float(second) < 0.1 * float(first)  # what suffices: one of them
    both = found.remove[0]
    assert float((both[0] - both[1]).abs()) < 0.2 * float(both[:2].max())  # both must go
    total = to_total(found.gains)
    for one in (found.attribution, found.keep, found.remove):
        assert abs(float(one.sum()) - total) < 0.05 * total + 0.2


def to_total(gains: Tensor) -> float:
    return float(gains.clamp(min=0).sum())


def test_another_seed_asks_other_questions_and_the_same_seed_the_same() -> None:
    worth = torch.rand(1, 12, generator=torch.Generator().manual_seed(0)).double()
    first, second, other = (run(12, 40, worth, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_more_than_256_features_and_more_than_a_thousand_answers_work() -> None:
    n = 300
    worth = torch.linspace(1, 0, n).expand(1, -1).double() / 20

    def ask(sets: Tensor) -> Tensor:
        return ((sets.double() * worth[:, None]).sum(2) - 4).sigmoid()

    whole = ask(torch.ones(1, 1, n))[:, 0]
    found = learn_from_answers(ask, whole, torch.zeros(1, 0, n), 60, features=Features(TABLE, (n,)))
    assert sorted(found.order[0].tolist()) == list(range(n))
    generator = torch.Generator().manual_seed(0)
    many = (torch.rand(1, 1300, 20, generator=generator) < 0.5).double()
    said = many @ worth[0, :20]
    process = SetProcess.fit(many, said, steps=3)
    assert float((read(process.predict(many).mean, "value") - said).abs().mean()) < 0.05


def test_rounding_in_the_answers_changes_no_question_and_no_order() -> None:
    """Two computers, or one thread and two, give answers that differ in their last bits."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(8, 16, 12, generator=generator).double()
    worth = torch.randn(8, 1, 12, generator=generator).double()

    def learn(noise: float) -> AnswersMap:
        other = torch.Generator().manual_seed(1)

        def ask(sets: Tensor) -> Tensor:
            said = (torch.tanh(sets.double() @ weight - 1) * worth).sum(2)
            return (said + noise * torch.randn(said.shape, generator=other)).sigmoid()

        whole = ask(torch.ones(8, 1, 16))[:, 0]
        return learn_from_answers(
            ask, whole, torch.zeros(8, 0, 16), 90, features=Features(TABLE, (16,))
        )

    first, second = learn(0.0), learn(1e-5)
    same = (first.asked.sets[:, :-8] == second.asked.sets[:, :-8]).flatten(1).all(1)
    assert int(same.sum()) >= 7
    places = torch.stack([first.order, second.order]).argsort(2).double()
    assert float((places[0] - places[1]).abs().mean()) < 0.1


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
