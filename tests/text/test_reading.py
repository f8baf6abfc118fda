"""How texts are read: which token belongs to which word."""

from types import SimpleNamespace

import pytest
import torch

from sea_nn.errors import InputError, KindError
from sea_nn.text.assemble import cut_pieces
from sea_nn.text.model import AskedText
from sea_nn.text.reading import NOBODY, find_sentences, find_words, read_text
from tests.helpers.texts import TEXT


@pytest.fixture(scope="module")
def tokenizer(parts):
    return parts[1]


def test_words_keep_their_punctuation_and_ideographs_stand_alone():
    text = "It's fine, really.\n好片 ok"
    assert [text[a:b] for a, b in find_words(text)] == [
        "It's", "fine,", "really.", "好", "片", "ok",
    ]  # fmt: skip


def test_sentences_end_with_marks_or_lines_and_not_inside_numbers():
    text = ' It cost 3.50! "Why?" she said.\nNo mark here'
    found = [text[a:b] for a, b in find_sentences(text)]
    assert found == ["It cost 3.50!", '"Why?"', "she said.", "No mark here"]


def test_the_tokens_of_a_word_are_its_own_and_special_ones_nobodys(tokenizer):
    reading = read_text(tokenizer, "acting was bad")
    assert reading.words == ["acting", "was", "bad"]
    tokens = tokenizer.convert_ids_to_tokens(reading.given["input_ids"].tolist())
    assert tokens == ["[CLS]", "act", "##ing", "was", "bad", "[SEP]"]
    assert reading.owner.tolist() == [NOBODY, 0, 0, 1, 2, NOBODY]


@pytest.mark.parametrize(
    ("text", "features", "words"),
    [
        (TEXT, "words", TEXT.split()),
        ("the ☃ was bad", "words", ["the", "☃", "was", "bad"]),  # an unknown word is one
        ("bad [SEP] film", "words", ["bad", "film"]),  # a special token is none
        ("acting was bad", "tokens", ["act", "ing", "was", "bad"]),
        ("bad film. good plot.", "sentences", ["bad film.", "good plot."]),
        (" ".join(["bad"] * 600), "words", ["bad"] * 600),
        ("bad \U0001f44e\U0001f3fd film", "words", ["bad", "\U0001f44e\U0001f3fd", "film"]),
        ("fi\u0301lm ba\u0308d", "words", ["fi\u0301lm", "ba\u0308d"]),  # accents of their own
        ("\u05e1\u05e8\u05d8 film", "words", ["\u05e1\u05e8\u05d8", "film"]),  # from right to left
        ("\u0641\u064a\u0644 film", "words", ["\u0641\u064a\u0644", "film"]),
        ("bad\u200b film\ttoo\r\n", "words", ["bad\u200b", "film", "too"]),
    ],
)
def test_what_the_features_of_a_text_are(tokenizer, text, features, words):
    reading = read_text(tokenizer, text, features)
    assert reading.words == words
    pieces, places = cut_pieces(reading)
    assert "".join(pieces) == text
    assert [pieces[k].strip() for k in places] == words or features == "tokens"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[CLS] [SEP]", "special tokens alone"),
        ("[MASK]", "special tokens alone"),
        ("", "empty"),
        ("  \n", "empty"),
        (["a"], r"a pair .* got \['a'\]"),
    ],
)
def test_what_is_no_text_is_refused(tokenizer, text, said):
    with pytest.raises((InputError, KindError), match=said):
        read_text(tokenizer, text)
    with pytest.raises(InputError, match="does not say where"):
        read_text(SimpleNamespace(is_fast=False), "the film was bad")


def test_a_long_text_is_cut_and_that_is_said(tokenizer):
    reading = read_text(tokenizer, " ".join(["bad"] * 20), limit=10)
    assert len(reading) == 8
    assert len(reading.owner) == 10
    assert reading.given["input_ids"][-1] == tokenizer.sep_token_id
    assert "last 12 of 22 take no part" in reading.note
    end = read_text(tokenizer, "good " + " ".join(["bad"] * 19), limit=10, keep_end=True)
    assert end.words == ["bad"] * 8


@pytest.mark.parametrize("how", ["delete", "pad"])
def test_a_start_stands_where_nothing_is_left(speaker, how):
    tokenizer = speaker[1]
    asked = AskedText(*speaker, read_text(tokenizer, "the film"), absent=how)
    whole, nothing = (asked.hide(torch.tensor([s] * 2), (5,)) for s in (True, False))
    assert whole["input_ids"].tolist() == [*tokenizer("the film")["input_ids"], 5]
    assert nothing["input_ids"].tolist() == [tokenizer.bos_token_id, 5]
    assert nothing["attention_mask"].tolist() == [1, 1]
    asked.start = None
    with pytest.raises(InputError, match="would read nothing"):
        asked.hide(torch.tensor([False, False]))


def test_blank_tokens_go_with_the_word_after_them(speaker):
    reading = read_text(speaker[1], "the  film\n\nwas ")
    assert reading.words == ["the", "film", "was"]
    assert reading.owner.tolist() == sorted(reading.owner.tolist())
    assert set(reading.owner.tolist()) == {0, 1, 2}
