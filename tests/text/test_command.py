"""``sea explain --text`` and the folders it reads."""

import json

import pytest
import torch

from sea_nn import Explanation
from sea_nn.errors import InputError
from sea_nn.text import ZeroShot, load_text_model
from tests.helpers.command import sea
from tests.helpers.texts import (
    make_byte_tokenizer,
    make_classifier,
    make_language_model,
    make_tokenizer,
)

__all__ = ["sea"]

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


def test_unknown_classes_and_rivals_without_targets_are_refused(sea, folder, tmp_path):
    given = ("--text", TEXT, "--model", f"hf:{folder}", "-o", tmp_path / "out")
    _, err = sea("explain", *given, "--not", "negative", code=2)
    assert "--not needs a --target" in err
    _, err = sea("explain", *given, "--target", "positve", code=2)
    assert "near: positive" in err


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
