"""Set-ups that are fine or broken are told; random explanations obey their laws."""

import pytest
from torch import nn

from scripts.fuzz import LAWS, draw_case, fuzz, look, tabulate
from sea_bench.experiments.setups import list_broken, list_fine, list_setups, list_told


@pytest.fixture(scope="module")
def setups():
    """Each with its versions that are broken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sea_bench.experiments.setups.ROUNDS", 8)
        return {one.name: (one, list_broken(one, 0)) for one in list_setups(0)}


def test_there_are_sixty_of_each(setups):
    assert sum(len(list_fine(one)) for one, _ in setups.values()) == 60
    assert sum(len(broken) for _, broken in setups.values()) == 60


@pytest.mark.parametrize("way", ["labels as targets", "a background", "one input"])
def test_fine_set_ups_are_left_in_peace(setups, way):
    assert list_told(list_fine(setups["wine, MLP"][0])[way]) == []


@pytest.mark.parametrize(
    ("name", "fault", "word"),
    [
        ("wine, MLP", "a dead layer", "hardly prefers any class"),
        ("wine, MLP", "saturated", "saturated"),
        ("wine, MLP", "classes in another order", "predicts the class explained for 0 of 8"),
        ("wine, MLP", "a detached input", "no gradient reaches its inputs"),
        ("wine, MLP", "dropout left on", "by chance"),
        ("wine, MLP", "statistics of the batch", "rest of the batch"),
        ("wine, MLP", "NaN of some inputs", "returned NaN"),
        ("wine, MLP", "values in other units", "saturated"),
        ("coloured digits, CNN", "blue, green, red", "predicts the class explained"),
        ("digits, transformer", "weights of noise", "hardly prefers any class"),
        ("digits, MLP", "trained on shuffled labels", "hardly prefers any class"),
    ],
)
def test_a_fault_is_told(setups, name, fault, word):
    told = list_told(setups[name][1][fault])
    assert any(word in line for line in told), told


class Mixing(nn.Module):
    """Adds what the rest of the batch has."""

    def forward(self, x):
        return x + 3 * x.flip(0).tanh()


def test_laws_hold_for_random_cases():
    looked, broken = fuzz(4)
    assert set(looked) == set(LAWS)
    assert not any(broken.values())
    assert f"| {LAWS['alone']} | 4 | 0 |" in list(tabulate(looked, broken))


def test_a_model_that_mixes_its_batch_breaks_a_law():
    case = draw_case(0)
    case.model.body.append(Mixing())
    assert "alone" in {law for law, wrong in look(case) if wrong}


def test_the_rounding_of_one_output_is_no_other_model():
    # Its norms were folded alone and not in a batch, which cost questions.
    assert not any(wrong for law, wrong in look(draw_case(618)))
