"""How texts are read: which token belongs to which word."""

from dataclasses import replace

import pytest
import torch

from sea_nn.errors import InputError, KindError
from sea_nn.text.model import TextModel
from sea_nn.text.reading import NOBODY, check_spans, find_sentences, find_words, read_text
from tests.helpers.texts import (
    TEXT,
    SlowTokenizer,
    make_byte_tokenizer,
    make_classifier,
    make_language_model,
    make_tokenizer,
)


def test_words_keep_their_punctuation_and_ideographs_stand_alone():
    text = "It's fine, really.\n好片 ok"
    assert [text[a:b] for a, b in find_words(text)] == [
        "It's", "fine,", "really.", "好", "片", "ok",
    ]  # fmt: skip


def test_sentences_end_with_marks_or_lines_and_not_inside_numbers():
    text = ' It cost 3.50! "Why?" she said.\nNo mark here'
    found = [text[a:b] for a, b in find_sentences(text)]
    assert found == ["It cost 3.50!", '"Why?"', "she said.", "No mark here"]


def test_the_tokens_of_a_word_are_its_own_and_special_ones_nobodys():
    tokenizer = make_tokenizer()
    reading = read_text(tokenizer, "acting was bad")
    assert reading.words == ["acting", "was", "bad"]
    tokens = tokenizer.convert_ids_to_tokens(reading.given["input_ids"].tolist())
    assert tokens == ["[CLS]", "act", "##ing", "was", "bad", "[SEP]"]
    assert reading.owner.tolist() == [NOBODY, 0, 0, 1, 2, NOBODY]


def test_an_unknown_word_takes_part_though_its_token_is_special():
    reading = read_text(make_tokenizer(), "the ☃ was bad")
    assert reading.words == ["the", "☃", "was", "bad"]


def test_special_tokens_written_in_the_text_take_no_part():
    reading = read_text(make_tokenizer(), "bad [SEP] film")
    assert reading.words == ["bad", "film"]


@pytest.mark.parametrize("text", ["[CLS] [SEP]", "[MASK]"])
def test_a_text_of_special_tokens_alone_is_refused(text):
    with pytest.raises(InputError, match="special tokens alone"):
        read_text(make_tokenizer(), text)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_is_refused(text):
    with pytest.raises(InputError, match="empty"):
        read_text(make_tokenizer(), text)


def test_what_is_no_text_is_refused():
    with pytest.raises(KindError, match="of them; got list"):
        read_text(make_tokenizer(), ["a"])


def test_tokens_sentences_and_spans_are_features_too():
    tokenizer = make_tokenizer()
    assert read_text(tokenizer, "acting was bad", "tokens").words == ["act", "ing", "was", "bad"]
    assert read_text(tokenizer, "bad film. good plot.", "sentences").words == [
        "bad film.", "good plot.",
    ]  # fmt: skip
    reading = read_text(tokenizer, "the film was bad", [(9, 16), (0, 8)])
    assert reading.words == ["the film", "was bad"]
    outside = read_text(tokenizer, "the film was bad", [(13, 16)])
    assert outside.words == ["bad"]
    assert outside.owner.tolist() == [NOBODY] * 4 + [0, NOBODY]


@pytest.mark.parametrize(
    ("spans", "said"),
    [([(0, 99)], "characters"), ([(3, 3)], "characters"), ([(0, 4), (2, 6)], "overlap"),
     (["the"], "characters")],
)  # fmt: skip
def test_spans_that_cannot_be_are_refused(spans, said):
    with pytest.raises(InputError, match=said):
        check_spans("the film was bad", spans)


def test_a_long_text_is_cut_and_that_is_said():
    tokenizer = make_tokenizer()
    reading = read_text(tokenizer, " ".join(["bad"] * 20), limit=10)
    assert len(reading) == 8
    assert len(reading.owner) == 10
    assert reading.given["input_ids"][-1] == tokenizer.sep_token_id
    assert "last 12 of 22 take no part" in reading.note
    end = read_text(tokenizer, "good " + " ".join(["bad"] * 19), limit=10, keep_end=True)
    assert end.words == ["bad"] * 8


def test_a_long_text_keeps_every_word():
    assert len(read_text(make_tokenizer(), " ".join(["bad"] * 600))) == 600


def test_a_tokenizer_that_does_not_say_where_tokens_stand_is_refused():
    with pytest.raises(InputError, match="does not say where"):
        read_text(SlowTokenizer(), "the film was bad")


@pytest.mark.parametrize("how", ["delete", "pad"])
def test_a_start_stands_where_nothing_is_left(how):
    tokenizer = make_byte_tokenizer()
    model = TextModel(make_language_model(), tokenizer, language=True, absent=how)
    reading = read_text(tokenizer, "the film")
    whole, nothing = (model.hide(reading, torch.tensor([s] * 2), (5,)) for s in (True, False))
    assert whole["input_ids"].tolist() == [*tokenizer("the film")["input_ids"], 5]
    assert nothing["input_ids"].tolist() == [tokenizer.bos_token_id, 5]
    assert nothing["attention_mask"].tolist() == [1, 1]
    with pytest.raises(InputError, match="would read nothing"):
        model.hide(replace(reading, start=None), torch.tensor([False, False]))


@pytest.mark.parametrize("how", ["mask", "delete", "pad"])
def test_absent_words_by_hand(how):
    tokenizer = make_tokenizer()
    model = TextModel(make_classifier(), tokenizer, absent=how)
    reading = read_text(tokenizer, "acting was bad")
    for left in ([False, True, True], [True, False, True]):
        ids, counts = [], []
        for token, owner in zip(reading.given["input_ids"].tolist(), reading.owner, strict=True):
            stays = owner == NOBODY or left[owner]
            if stays or how != "delete":
                instead = tokenizer.mask_token_id if how == "mask" else 0
                ids.append(token if stays else instead)
                counts.append(int(stays or how == "mask"))
        row = model.hide(reading, torch.tensor(left))
        assert row["input_ids"].tolist() == ids
        assert row["attention_mask"].tolist() == counts


def test_blank_tokens_go_with_the_word_after_them():
    reading = read_text(make_byte_tokenizer(), "the  film\n\nwas")
    assert reading.words == ["the", "film", "was"]
    assert reading.owner.tolist() == sorted(reading.owner.tolist())
    assert set(reading.owner.tolist()) == {0, 1, 2}


def test_every_character_of_the_sample_is_some_words():
    reading = read_text(make_tokenizer(), TEXT)
    assert reading.words == TEXT.split()
