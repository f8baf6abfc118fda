"""Random explanations obey their laws, and the fuzz sees one that does not."""

from torch import nn

from scripts.fuzz import LAWS, draw_case, fuzz, look, tabulate


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
