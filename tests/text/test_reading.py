"""How texts are read, from Python and by ``sea explain --text``."""

import json
from types import SimpleNamespace

import pytest
import torch

from sea_nn import Explanation
from sea_nn.errors import InputError, KindError
from sea_nn.text import ZeroShot, load_text_model
from sea_nn.text.assemble import cut_pieces
from sea_nn.text.model import AskedText
from sea_nn.text.reading import NOBODY, check_spans, find_sentences, find_words, read_text
from tests.helpers.texts import (
    TEXT,
    make_byte_tokenizer,
    make_classifier,
    make_language_model,
    make_tokenizer,
)


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


TEXT = "the film was not bad"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model = make_classifier(2, id2label={0: "negative", 1: "positive"})
    model.save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def test_texts_are_explained_at_the_command_line(sea, folder, tmp_path):
    given = ("--model", f"hf:{folder}", "--budget", "20", "--target", "positive", "-o", tmp_path)
    out, err = sea("explain", "--text", TEXT, "--text", "good plot", *given, drawn=True)
    assert err == ""
    assert {file.name for file in tmp_path.iterdir()} == {"text-1", "text-2", "report.html"}
    found = [Explanation.load(tmp_path / f"text-{k}/explanation.safetensors") for k in (1, 2)]
    assert ["".join(e.texts[0]) for e in found] == [TEXT, "good plot"]
    assert [e.labels for e in found] == [("positive",)] * 2
    assert (tmp_path / "text-1/words.png").is_file()
    assert TEXT in out
    assert "positive" in out
    assert "film" in (tmp_path / "report.html").read_text()


def test_the_document_has_every_word(sea, folder, tmp_path):
    out, _ = sea("explain", "--text", TEXT, "--model", f"hf:{folder}", "--budget", "20", "--json",
                 "--no-report", "--target", "1", "--not", "0", "-o", tmp_path)  # fmt: skip
    told = json.loads(out)
    (one,) = told["inputs"]
    assert one["text"] == TEXT
    assert one["target"]["label"] == "positive"
    assert one["target"]["not"]["label"] == "negative"
    assert len({word["feature"] for word in one["top"]}) == 5
    signed = one["gains"]["for"] - one["gains"]["against"]
    assert signed == pytest.approx(sum(word["gain"] for word in one["top"]), abs=1e-3)
    assert told["report"] is None


def test_an_encoder_is_a_classifier_of_labels(sea, folder, tmp_path):
    out, _ = sea("explain", "--text", "good film", "--model", f"hf:{folder}", "--labels",
                 "good film, bad plot", "--budget", "20", "-o", tmp_path)  # fmt: skip
    assert "text-1: the model says good film " in out
    assert isinstance(load_text_model(folder, ["good", "bad"])[0], ZeroShot)


def test_pickles_are_refused_and_not_opened(tmp_path):
    model = make_classifier()
    model.config.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="they may run code"):
        load_text_model(tmp_path)


def test_code_in_the_folder_is_not_run(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    facts = json.loads((tmp_path / "config.json").read_text())
    facts["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    load_text_model(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_folders_without_a_model_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"no folder .* with \.safetensors"):
        load_text_model(tmp_path)
    make_classifier().bert.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="BertModel"):
        load_text_model(tmp_path)


def test_language_models_are_read_too(tmp_path):
    make_language_model().save_pretrained(tmp_path)
    make_byte_tokenizer().save_pretrained(tmp_path)
    model, tokenizer = load_text_model(tmp_path)
    assert model.can_generate()
    assert tokenizer.decode(tokenizer.encode("the film")) == "the film"


@pytest.mark.parametrize(
    ("spans", "said"),
    [([(0, 99)], "characters"), ([(3, 3)], "characters"), ([(0, 4), (2, 6)], "overlap"),
     (["the"], "characters")],
)  # fmt: skip
def test_spans_that_cannot_be_are_refused(spans, said):
    with pytest.raises(InputError, match=said):
        check_spans("the film was bad", spans)


def test_spans_of_the_callers_own_are_the_features(tokenizer):
    reading = read_text(tokenizer, "the film was bad", [(9, 16), (0, 8)])
    assert reading.words == ["the film", "was bad"]
