"""Members for texts; texts explained in rounds, from earlier answers, and as pairs."""

import pytest
import torch
from captum.attr import LayerIntegratedGradients

from sea_nn import SEA, Explanation, Running
from sea_nn.errors import InputError, KindError
from sea_nn.members.registry import count_price
from sea_nn.model.opening import open_model
from sea_nn.text import members
from sea_nn.text.members import MEMBERS, expand
from sea_nn.text.model import AskedText
from sea_nn.text.reading import read_text
from tests.helpers.texts import SHORT, TEXT

SAID = "the acting was not bad"


@pytest.fixture(scope="module")
def asked(parts):
    return AskedText(*parts, read_text(parts[1], SAID), 1)


@pytest.fixture(scope="module")
def probe(asked):
    with open_model(asked, torch.ones(1, 5), 1, output="logits") as probe:
        yield probe


def find_ids(asked):
    return asked.reading.given["input_ids"].unsqueeze(0)


def sum_by_hand(asked, values):
    owner = asked.reading.owner
    return torch.stack([values[owner == k].sum() for k in range(len(asked.reading))])[None]


def test_gradients_by_hand(asked, probe):
    model, ids = asked.module, find_ids(asked)
    embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, attention_mask=torch.ones_like(ids)).logits
    gradient = torch.autograd.grad(logits[0, 1], embedded)[0][0]
    expected = sum_by_hand(asked, gradient.norm(dim=1))
    torch.testing.assert_close(members.saliency(probe), expected)
    expected = sum_by_hand(asked, (gradient * embedded[0].detach()).sum(1))
    torch.testing.assert_close(members.input_x_gradient(probe), expected)


def test_integrated_gradients_are_captums(asked, probe):
    model, ids = asked.module, find_ids(asked)
    baseline = torch.where(asked.reading.owner < 0, ids, asked.mask)

    def forward(tokens, mask):
        return model(input_ids=tokens, attention_mask=mask).logits

    theirs = LayerIntegratedGradients(forward, model.get_input_embeddings()).attribute(
        ids, baseline, target=1, n_steps=64, method="riemann_middle",
        additional_forward_args=(torch.ones_like(ids),),
    )  # fmt: skip
    ours = members.integrated_gradients(probe, n_steps=64)
    torch.testing.assert_close(ours, sum_by_hand(asked, theirs[0].sum(1)), atol=1e-4, rtol=1e-3)
    change = asked(torch.ones(1, 5)) - asked(torch.zeros(1, 5))
    assert float(ours.sum()) == pytest.approx(float(change[0, 1]), rel=0.05)


def test_leaving_one_word_out_by_hand(asked, probe):
    expected = asked(torch.ones(1, 5))[:, 1] - asked(1 - torch.eye(5))[:, 1]
    torch.testing.assert_close(members.leave_one_out(probe)[0], expected)


def test_rollout_by_hand(asked, probe):
    model, ids = asked.module, find_ids(asked)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        layers = model(ids, torch.ones_like(ids), output_attentions=True).attentions
    finally:
        model.set_attn_implementation(before)
    flow = torch.eye(ids.shape[1])
    for layer in layers:
        mixed = layer[0].mean(0) / 2 + torch.eye(ids.shape[1]) / 2
        flow = mixed @ flow
    expected = sum_by_hand(asked, flow[0])
    torch.testing.assert_close(members.attention_rollout(probe), expected)


def test_rollout_of_a_language_model_reads_the_last_token(speaker):
    reading = read_text(speaker[1], "the film was bad")
    asked = AskedText(*speaker, reading, 0, ((5,),), absent="delete")
    with open_model(asked, torch.ones(1, 4), 0, output="value") as probe:
        found = members.attention_rollout(probe)
    assert float(found.sum()) == pytest.approx(1, abs=1e-4)
    assert bool((found > 0).all())


@pytest.mark.parametrize(
    "names", [(name,) for name in MEMBERS] + [("saliency", "input_x_gradient")]
)
def test_prices_are_what_members_spend(asked, parts, names):
    sea = SEA.for_text(*parts, methods=names, budget=40)
    e, price = sea.explain([SAID]), count_price(expand(names), (len(asked.reading),))
    assert e.evaluations["members"] == price - (len(names) > 1)  # these two share a gradient
    assert sum(e.provenance.evaluations.values()) == sum(e.evaluations.values())


def test_options_come_with_the_names(parts):
    methods = ["saliency", ("integrated_gradients", {"n_steps": 3})]
    sea = SEA.for_text(*parts, methods=methods, budget=40)
    assert sea.explain([SAID]).evaluations["members"] == 4


def test_unknown_members_and_options_are_refused():
    for methods, said in (
        (("lime",), "members for texts"),
        ((), "at least one"),
        ([("saliency", {"n_steps": 3})], "no option"),
        ([("integrated_gradients", {"n_steps": 0})], "n_steps"),
    ):
        with pytest.raises(InputError, match=said):
            expand(methods)


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
