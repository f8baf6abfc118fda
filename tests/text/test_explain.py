"""Explanations of texts, against models asked one subset at a time."""

from dataclasses import replace

import pytest
import torch

from sea_nn import SEA, Explanation
from sea_nn.errors import AssumptionWarning, InputError, KindError, MemberError
from sea_nn.text import ZeroShot
from sea_nn.text.model import AskedText
from sea_nn.text.reading import read_text
from tests.helpers.texts import (
    SHORT,
    TEXT,
    make_byte_tokenizer,
    make_classifier,
    make_tokenizer,
    transformers,
)


def ask_slowly(model, tokenizer, text, left, how):
    """The logits with only some words left, made from the text's tokens by hand."""
    given = tokenizer(text, return_offsets_mapping=True)
    ids, counts = [], []
    for token, (start, end) in zip(given["input_ids"], given["offset_mapping"], strict=True):
        stays = start == end or text[:start].count(" ") in left
        if stays or how != "delete":
            instead = tokenizer.mask_token_id if how == "mask" else tokenizer.pad_token_id
            ids.append(token if stays else instead)
            counts.append(int(stays or how == "mask"))
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([counts])).logits[0]


@pytest.mark.parametrize("how", ["mask", "delete", "pad"])
def test_every_subset_is_answered_as_the_model_answers_it(parts, how):
    model, tokenizer = parts
    sea = SEA.for_text(model, tokenizer, budget=20, absent=how)
    e = sea.explain(["acting was not bad"], target=1)
    assert e.function.n_answers == 15  # and the whole text
    for left, said in zip(e.asked.sets[0].tolist(), e.asked.answers[0], strict=True):
        left = [k for k, stays in enumerate(left) if stays]
        slow = ask_slowly(model, tokenizer, "acting was not bad", left, how).softmax(0)[1]
        torch.testing.assert_close(said, slow.double().logit(), atol=1e-4, rtol=1e-3)


def test_continuations_are_read_as_the_model_says_them(speaker):
    model, tokenizer = speaker
    reading = read_text(tokenizer, "the film was")
    ends = [tuple(tokenizer.encode(end)) for end in (" very good", " bad", " b")]
    assert len({len(end) for end in ends}) > 1
    sets = torch.cartesian_prod(*[torch.tensor([False, True])] * 3)
    found = AskedText(*speaker, reading, 0, ends, absent="delete")(sets)
    words = ["the", " film", " was"]
    for row, left in zip(found, sets.tolist(), strict=True):
        tokens = [t for w, stays in zip(words, left, strict=True) if stays
                  for t in tokenizer.encode(w)] or [tokenizer.bos_token_id]  # fmt: skip
        for value, end in zip(row, ends, strict=True):
            with torch.no_grad():
                said = model(torch.tensor([tokens + list(end)])).logits[0].log_softmax(1)
            slow = sum(said[len(tokens) - 1 + j, t] for j, t in enumerate(end))
            torch.testing.assert_close(value, slow, atol=1e-4, rtol=1e-4)


def test_one_text_has_one_number_a_word_of_the_predicted_class(parts):
    e = SEA.for_text(*parts, budget=24).explain(TEXT)
    assert e.kind == "text"
    assert e.attribution.shape == (1, 10)
    assert "".join(e.texts[0]) == TEXT
    assert e.methods == ("saliency", "input_x_gradient")
    assert e.name_feature(int(e.order[0, 0])) in TEXT.split()
    total = float(e.function.all - e.function.none)
    assert float(e.gains.sum()) == pytest.approx(total, abs=1e-3)
    said = parts[0](**parts[1](TEXT, return_tensors="pt")).logits[0].detach()
    assert int(e.target[0]) == int(said.argmax())
    assert float(e.score[0]) == pytest.approx(float(said.softmax(0).max()), abs=1e-5)


def test_texts_of_different_lengths_are_explained_as_if_alone(reader):
    texts = [SHORT, TEXT]
    together = reader.explain(texts, target=0)
    assert together.attribution.shape == (2, 10)
    for i, text in enumerate(texts):
        alone, one = reader.explain([text], target=0), together[i]
        assert one.texts == alone.texts
        assert torch.equal(one.order, alone.order)
        torch.testing.assert_close(one.attribution, alone.attribution)
        torch.testing.assert_close(one.gains, alone.gains)
        everything = torch.ones(1, 1, alone.shape[0], dtype=torch.bool)
        torch.testing.assert_close(one.predict(everything), alone.predict(everything))
        torch.testing.assert_close(together.agreement[i], alone.agreement[0], equal_nan=True)
    assert not together.attribution[0, 4:].any()


def test_the_model_comes_back_as_it_was(parts):
    model, tokenizer = parts
    methods, model = ("saliency", "attention_rollout"), model.train()
    SEA.for_text(model, tokenizer, budget=24, methods=methods).explain([SHORT])
    assert model.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())
    model.eval()


def test_explanations_of_texts_can_be_saved(reader, tmp_path):
    e = reader.explain([SHORT, TEXT])
    again = Explanation.load(e.save(tmp_path / "e.safetensors"))
    assert again.texts == e.texts
    assert again.kind == "text"
    assert torch.equal(again.order, e.order)
    torch.testing.assert_close(again.attribution, e.attribution)
    torch.testing.assert_close(again.against, e.against)
    sets = torch.rand(2, 5, 10) < 0.5
    torch.testing.assert_close(again.predict(sets), e.predict(sets), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(
        again[0].predict(sets[:1, :, :4]), e.predict(sets)[:1], atol=1e-4, rtol=1e-3
    )
    assert again.summary() == e.summary()
    with pytest.raises(InputError, match="pieces"):
        replace(e[0], texts=(("one ", "two"),))


def test_classes_go_by_name(reader):
    names = ["neutral", "toxic", "other"]
    e = reader.explain([SHORT], target="toxic", labels=names)
    assert e.target.tolist() == [1]
    assert e.labels == ("toxic",)
    assert reader.explain([SHORT, TEXT], target=["LABEL_2", 0]).target.tolist() == [2, 0]
    with pytest.raises(InputError, match="no class 'toxik'; its classes: neutral, toxic, other"):
        reader.explain([SHORT], target="toxik", labels=names)


def test_a_pair_is_explained_as_one_class_against_the_other(parts, reader):
    model, tokenizer = parts
    e = reader.explain([SHORT, TEXT], target=(2, "LABEL_0"))
    assert e.target.tolist() == [2, 2]
    assert e.rival.tolist() == [0, 0]
    assert e.labels == ("LABEL_2, not LABEL_0",) * 2
    said = model(**tokenizer(SHORT, return_tensors="pt")).logits[0].detach()
    assert float(e.score[0]) == pytest.approx(float((said[2] - said[0]).sigmoid()), abs=1e-5)


def test_a_function_of_the_output_is_explained(parts, reader):
    def margin(output):
        return output.logits[:, 2] - output.logits[:, 0]

    e = reader.explain([SHORT], target=margin)
    said = parts[0](**parts[1](SHORT, return_tensors="pt")).logits[0].detach()
    assert float(e.score[0]) == pytest.approx(float(said[2] - said[0]), abs=1e-4)
    assert e.labels == ("margin",)
    assert e.unit == "value"
    assert torch.equal(e.order, reader.explain([SHORT], target=(2, 0)).order)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": 7}, "target 7 is out of range"),
        ({"target": [0, 1, 2]}, "target must have one entry for each of the 2 texts; got 3"),
        ({"target": 1.5}, "class number"),
        ({"target": (1, 1)}, "must differ"),
        ({"target": (0, 1, 2)}, "a pair"),
        ({"target": [0, (1, 2)]}, "all single, or all pairs"),
        ({"target": lambda output: output.logits}, r"one number an input, a tensor \[1\]"),
        ({"texts": []}, "no text"),
        ({"texts": ["", "bad"]}, "text 0: a text is .* not empty"),
        ({"texts": [SHORT, "[SEP]"]}, "text 1: "),
        ({"texts": [("bad", "film", "plot")]}, "pair"),
    ],
)
def test_targets_and_texts_that_are_none_are_refused(reader, given, said):
    with pytest.raises((InputError, KindError), match=said):
        reader.explain(**{"texts": [SHORT, TEXT], **given})


def test_wrong_settings_are_refused(parts, speaker):
    model, tokenizer = parts
    config = transformers.T5Config(
        vocab_size=50, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    both_ways = transformers.T5ForConditionalGeneration(config)
    for given, options, said in (
        (parts, {"absent": "blur"}, "absent must be"),
        (parts, {"features": "letters"}, "features must be"),
        (parts, {"methods": ("grad_cam",)}, "members for texts are"),
        ((model, make_tokenizer(mask=False)), {"absent": "mask"}, "no mask token"),
        ((model, "bert"), {}, "got BertForSequenceClassification and str"),
        (("bert", tokenizer), {}, r"torch.nn.Module"),
        ((both_ways, tokenizer), {}, "decoder"),
        (speaker, {"absent": "pad"}, "reads the words that are left"),
        (speaker, {"output": "logits"}, "no output="),
    ):
        with pytest.raises((InputError, KindError), match=said):
            SEA.for_text(*given, **options)
    with pytest.raises(InputError, match="budget of"):
        SEA.for_text(*parts, budget=2).explain([SHORT])
    with pytest.raises(KindError, match="with a head"):
        SEA.for_text(model.bert, tokenizer, budget=20).explain([SHORT])


def test_a_tokenizer_without_a_mask_token_deletes_and_says_so(parts):
    sea = SEA.for_text(parts[0], make_tokenizer(mask=False), budget=20)
    assert sea.absent == "delete"
    assert any("no mask token" in said for said in sea.explain([SHORT]).assumed)


def test_one_word_has_all_of_the_gain(reader):
    e = reader.explain(["bad"])
    assert e.attribution.shape == (1, 1)
    assert "suffices: bad; needed: bad" in e.summary()
    assert float(e.gains[0, 0]) == pytest.approx(float(e.function.all - e.function.none), abs=1e-4)


def test_a_text_too_long_for_the_model_says_what_takes_no_part(reader):
    text = " ".join(["bad film"] * 40)
    e = reader.explain([text])
    assert "".join(e.texts[0]) == text
    assert len(e.texts[0]) == 63  # 62 words, and the rest in one piece
    assert float(e.attribution[0, 62]) == 0
    assert int(e.order[0, -1]) == 62
    assert any("take no part" in check.message for check in e.checks)


def test_one_output_is_a_value_and_that_is_said():
    sea = SEA.for_text(make_classifier(1), make_tokenizer(), budget=20)
    with pytest.warns(AssumptionWarning, match="one output"):
        e = sea.explain([SHORT])
    assert e.unit == "value"
    labelled = make_classifier(4, problem_type="multi_label_classification")
    assert SEA.for_text(labelled, make_tokenizer()).output.kind == "sigmoid"


def test_a_language_model_is_explained_by_what_it_says_next(speaker):
    model, tokenizer = speaker
    sea = SEA.for_text(model, tokenizer, budget=24)
    e = sea.explain(["the film was"])
    said = model(**tokenizer("the film was", return_tensors="pt")).logits[0, -1]
    said = said.detach().log_softmax(0)
    assert e.labels == (repr(tokenizer.decode([int(said.argmax())])),)
    assert float(e.score[0]) == pytest.approx(float(said.max()), abs=1e-4)
    assert e.unit == "value"
    assert sea.explain(["the film was"], target=" bad").labels == ("' bad'",)
    for wrong in (10**6, ""):
        with pytest.raises(InputError, match="is a continuation"):
            sea.explain(["the film was"], target=wrong)
    with pytest.raises(KindError, match="not a function"):
        sea.explain(["the film was"], target=lambda out: out)


@pytest.mark.parametrize("rival", [" bad", " very good"])
def test_one_continuation_is_explained_against_another(speaker, rival):
    model, tokenizer = speaker
    e = SEA.for_text(model, tokenizer, budget=40).explain(["the film was"], target=(" good", rival))
    said = []
    for end in (" good", rival):
        first, rest = tokenizer.encode("the film was"), tokenizer.encode(end)
        logits = model(torch.tensor([first + rest])).logits[0].detach().log_softmax(1)
        said.append(sum(logits[len(first) - 1 + j, t] for j, t in enumerate(rest)))
    assert float(e.score[0]) == pytest.approx(float((said[0] - said[1]).sigmoid()), abs=1e-4)
    assert e.unit == "log-odds"
    assert sum(e.provenance.evaluations.values()) <= 40


def test_zero_shot_classifiers_know_the_nearest_label(parts):
    model, tokenizer = parts
    zero = ZeroShot(model.bert, tokenizer, ["good film", "bad plot"])
    e = SEA.for_text(zero, tokenizer, budget=20).explain(["good film", "bad plot"])
    assert e.target.tolist() == [0, 1]
    assert e.labels == ("good film", "bad plot")
    with pytest.raises(InputError, match="two classes"):
        ZeroShot(model.bert, tokenizer, ["only one"])


class WithoutEmbeddings(torch.nn.Module):
    """A classifier that takes token numbers and nothing else."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 3)

    def forward(self, input_ids, attention_mask):
        return (self.table(input_ids) * attention_mask.unsqueeze(2)).sum(1)


def test_a_model_without_embeddings_is_explained_by_leaving_words_out():
    model, tokenizer = WithoutEmbeddings(), make_tokenizer()
    assert SEA.for_text(model, tokenizer, budget=20).explain([SHORT]).methods == ()
    with pytest.raises(MemberError, match="no gradients of words"):
        SEA.for_text(model, tokenizer, budget=20, methods="saliency").explain([SHORT])
    methods = ("saliency", "leave_one_out")
    e = SEA.for_text(model, tokenizer, budget=24, methods=methods).explain([SHORT])
    assert e.methods == ("leave_one_out",)
    assert any("no gradients of words" in check.message for check in e.checks)


@pytest.mark.parametrize("absent", [None, "delete", "pad"])
def test_a_classifier_without_special_tokens_is_explained(absent):
    tokenizer = make_byte_tokenizer()
    config = transformers.GPT2Config(
        vocab_size=320, n_embd=16, n_layer=2, n_head=2, n_positions=64, num_labels=3
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.GPT2ForSequenceClassification(config).eval()
    for pad in (None, 0):
        model.config.pad_token_id = pad
        if absent == "pad" and pad is None:
            with pytest.raises(InputError, match="needs a model that knows its padding"):
                SEA.for_text(model, tokenizer, absent=absent).explain([SHORT])
            continue
        e = SEA.for_text(model, tokenizer, budget=16, absent=absent).explain([SHORT, "bad"])
        said = model(**tokenizer(SHORT, return_tensors="pt")).logits[0].detach()
        assert float(e.score[0]) == pytest.approx(float(said.softmax(0).max()), abs=1e-5)
        nothing = model(torch.tensor([[tokenizer.bos_token_id]])).logits[0].detach().softmax(0)
        empty = float(e[0].function.none.sigmoid())
        assert empty == pytest.approx(float(nothing[e.target[0]]), abs=1e-5)


def test_a_function_of_words_needs_no_tokenizer():
    asked = []

    def answer(texts):
        asked.extend(texts)
        return [[2.0 * ("good" in words), 3.0 * ("bad" in words)] for words in texts]

    words = ["the", "good", "film", "was", "not", "bad"]
    e = SEA.for_text(answer, budget=40).explain([words, "good film"], target=1, labels=["+", "-"])
    assert e.texts == (("the ", "good ", "film ", "was ", "not ", "bad"), ("good ", "film"))
    assert e.name_feature(int(e.order[0, 0])) == "bad"
    assert e.labels == ("-", "-")
    assert len(asked) == sum(e.provenance.evaluations.values()) <= 80
    assert all(set(row) <= set(words) for row in asked)
    with pytest.raises(InputError, match="methods and features need a tokenizer"):
        SEA.for_text(answer, methods="saliency")
    for wrong, said in (
        (3, "its words"),
        ([], "not empty"),
        ([""], "not empty"),
        (" ", "not empty"),
    ):
        with pytest.raises((InputError, KindError), match=said):
            SEA.for_text(answer, budget=20).explain([wrong])


def test_what_was_assumed_and_what_it_cost_is_said(parts):
    e = SEA.for_text(*parts, budget=40).explain([SHORT, TEXT])
    assert any("mask tokens" in said for said in e.assumed)
    assert e.evaluations["questions"] > 0
    assert sum(e.evaluations.values()) == -(-sum(e.provenance.evaluations.values()) // 2) <= 40
    assert set(e.trust) == set(e.methods)
    assert e.gain_intervals.shape == (2, 10, 2)
    sets = torch.rand(2, 5, 10) < 0.5
    score, low, high = e.predict(sets, interval=0.9)
    assert bool(((low <= score) & (score <= high)).all())
    torch.testing.assert_close(e[0].predict(sets[:1, :, :4]), score[:1])
    torch.testing.assert_close(e[0].gain_intervals[0], e.gain_intervals[0, :4])
    for wish in ("keep", "remove", "both"):
        torch.testing.assert_close(e[0].map(wish), e.map(wish)[:1, :4])
