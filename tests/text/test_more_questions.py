"""Texts explained in rounds, from earlier answers, and as pairs of texts."""

import pytest
import torch

from sea_nn import SEA, Explanation, Running
from sea_nn.errors import InputError, KindError
from tests.helpers.texts import SHORT, TEXT


@pytest.fixture(scope="module")
def first(parts):
    """An explanation of two texts of 4 and 10 words, the second cut short."""
    return SEA.for_text(*parts, budget=24).explain([SHORT, TEXT], target=0)


def test_a_function_on_each_round_sees_the_text_and_may_end_its_questions(parts):
    seen = []

    def watch(e):
        seen.append(e)
        return len(seen) < 2

    e = SEA.for_text(*parts, budget=64).explain([TEXT], target=0, running=Running(on_round=watch))
    assert [one.texts for one in seen] == [e.texts] * 2
    assert e.function.n_answers == seen[-1].function.n_answers < 60
    assert seen[0].asked.sets.shape[1] < seen[1].asked.sets.shape[1]
    assert any("on_round asked for no more" in check.message for check in e.checks)


def test_time_and_tolerance_end_the_questions(parts):
    sea = SEA.for_text(*parts, budget=40)
    whole = sea.explain([TEXT], target=0)
    for stop in (Running(seconds=0.0), Running(tolerance=10.0)):
        e = sea.explain([TEXT], target=0, running=stop)
        assert e.function.n_answers < whole.function.n_answers
        assert e.attribution.shape == whole.attribution.shape


def test_earlier_answers_count_as_asked(parts, first):
    sea = SEA.for_text(*parts, budget=24)
    again = sea.explain([SHORT, TEXT], target=0, previous=first)
    assert again.evaluations["questions"] == 1  # the whole text
    assert torch.equal(again.order, first.order)
    # The same answers, whose scales were sought in other rounds.
    torch.testing.assert_close(again.attribution, first.attribution, atol=5e-3, rtol=0.1)
    other = sea.explain([SHORT, TEXT], target=1, previous=first)
    assert other.evaluations["questions"] == 1
    fresh = sea.explain([SHORT], target=1)  # every subset of 4 words was asked
    torch.testing.assert_close(other[0].attribution, fresh.attribution, atol=1e-4, rtol=1e-3)
    more = SEA.for_text(*parts, budget=60).explain([SHORT, TEXT], target=0, previous=first)
    assert 0 < more.evaluations["questions"] <= 60


def test_earlier_answers_about_something_else_are_refused(parts, first, tmp_path):
    sea = SEA.for_text(*parts, budget=24)
    with pytest.raises(
        InputError, match="previous must have one entry for each of the 1 texts; got 2"
    ):
        sea.explain([SHORT], previous=first)
    with pytest.raises(InputError, match="another text"):
        sea.explain(["film was not good", TEXT], previous=first)
    with pytest.raises(InputError, match="absent='delete'"):
        SEA.for_text(*parts, budget=24, absent="delete").explain([SHORT, TEXT], previous=first)
    loaded = Explanation.load(first.save(tmp_path / "e.safetensors"))
    with pytest.raises(InputError, match="loaded from a file"):
        sea.explain([SHORT, TEXT], previous=loaded)
    with pytest.raises((InputError, KindError), match="must be an Explanation"):
        sea.explain([SHORT], previous="e")


def test_a_language_model_goes_on_with_the_same_continuation(speaker):
    sea = SEA.for_text(*speaker, budget=24)
    e = sea.explain(["the film was"], target=(" good", " bad"))
    again = sea.explain(["the film was"], target=(" good", " bad"), previous=e)
    assert again.evaluations["questions"] == 1  # the whole text
    with pytest.raises(InputError, match="previous explains"):
        sea.explain(["the film was"], target=" bad", previous=e)


def test_the_smallest_set_counts_no_words_that_take_no_part(parts):
    e = SEA.for_text(*parts, budget=20).explain(["film was [SEP]"], target=0)
    assert len(e.texts[0]) == 3
    for keep in (True, False):
        assert int(e.smallest(keep=keep, share=0.99).count) <= 2
        assert not e.smallest(keep=keep, share=0.99).mask[0, 2]


def test_a_pair_of_texts_is_read_as_the_tokenizer_reads_pairs(parts, reader):
    model, tokenizer = parts
    e = SEA.for_text(model, tokenizer, budget=40).explain([("was it bad", "the film was bad")])
    assert [len(piece.split()) for piece in e.texts[0]] == [1] * 7
    assert "".join(e.texts[0]) == "was it bad\nthe film was bad"
    given = tokenizer("was it bad", "the film was bad", return_tensors="pt")
    said = model(**given).logits[0].detach().softmax(0)
    assert float(e.score[0]) == pytest.approx(float(said.max()), abs=1e-5)
    several = reader.explain([("bad", "film"), SHORT])
    assert [len(text) for text in several.texts] == [2, 4]
