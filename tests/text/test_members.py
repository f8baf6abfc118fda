"""Members for texts, against Captum and by hand."""

import pytest
import torch
from captum.attr import DeepLift, LayerIntegratedGradients

from sea_nn import SEA
from sea_nn.call import count_price
from sea_nn.errors import InputError
from sea_nn.text import members
from sea_nn.text.members import MEMBERS, Question, expand
from sea_nn.text.model import TextModel
from sea_nn.text.reading import read_text
from tests.helpers.texts import (
    make_byte_tokenizer,
    make_classifier,
    make_language_model,
    make_tokenizer,
)

TEXT = "the acting was not bad"


@pytest.fixture(scope="module")
def question():
    model, tokenizer = make_classifier(), make_tokenizer()
    reading = read_text(tokenizer, TEXT)
    return Question(TextModel(model, tokenizer), reading, (), lambda columns: columns[:, 1])


def by_token(question):
    """The gradient in the embeddings by hand, with the embeddings."""
    model, ids = question.model.module, question.reading.given["input_ids"].unsqueeze(0)
    embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, attention_mask=torch.ones_like(ids)).logits
    return torch.autograd.grad(logits[0, 1], embedded)[0][0], embedded[0].detach()


def sum_by_hand(question, values):
    owner = question.reading.owner
    return torch.stack([values[owner == k].sum() for k in range(len(question.reading))])


def test_gradients_by_hand(question):
    gradient, embedded = by_token(question)
    expected = sum_by_hand(question, gradient.norm(dim=1))
    torch.testing.assert_close(members.saliency(question), expected)
    expected = sum_by_hand(question, (gradient * embedded).sum(1))
    torch.testing.assert_close(members.input_x_gradient(question), expected)


def test_integrated_gradients_are_captums(question):
    model, ids = question.model.module, question.reading.given["input_ids"].unsqueeze(0)
    special = question.reading.owner < 0
    baseline = torch.where(special, ids, question.model.mask)

    def forward(tokens, mask):
        return model(input_ids=tokens, attention_mask=mask).logits

    theirs = LayerIntegratedGradients(forward, model.get_input_embeddings()).attribute(
        ids, baseline, target=1, n_steps=64, method="riemann_middle",
        additional_forward_args=(torch.ones_like(ids),),
    )  # fmt: skip
    ours = members.integrated_gradients(question, n_steps=64)
    torch.testing.assert_close(ours, sum_by_hand(question, theirs[0].sum(1)), atol=1e-4, rtol=1e-3)


def test_integrated_gradients_add_up_to_the_change_of_the_logit(question):
    nothing = question.model.ask(question.reading, torch.zeros(1, 5, dtype=torch.bool))[0, 1]
    ours = members.integrated_gradients(question, n_steps=128)
    assert float(ours.sum()) == pytest.approx(
        float(question.ask(torch.ones(1, 5, dtype=torch.bool))[0] - nothing), rel=0.02
    )


def test_leaving_one_word_out_by_hand(question):
    found = members.leave_one_out(question)
    for k in range(5):
        sets = torch.ones(1, 5, dtype=torch.bool)
        sets[0, k] = False
        lost = (
            question.ask(torch.ones(1, 5, dtype=torch.bool))[0]
            - question.model.ask(question.reading, sets)[:, 1]
        )
        assert float(found[k]) == pytest.approx(float(lost), abs=1e-5)


def test_rollout_by_hand(question):
    model, ids = question.model.module, question.reading.given["input_ids"].unsqueeze(0)
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
    expected = sum_by_hand(question, flow[0])
    torch.testing.assert_close(members.attention_rollout(question), expected)


def test_relevance_by_attention_is_not_the_plain_gradient(question):
    found = members.attention_lrp(question)
    assert found.shape == (5,)
    assert bool(found.isfinite().all())
    assert not torch.allclose(found, members.input_x_gradient(question))


def test_rollout_of_a_language_model_reads_the_last_token():
    model, tokenizer = make_language_model(), make_byte_tokenizer()
    reading = read_text(tokenizer, "the film was bad")
    asked = TextModel(model, tokenizer, language=True, absent="delete")
    q = Question(asked, reading, [(5,)], lambda columns: columns[:, 0])
    found = members.attention_rollout(q)
    assert float(found.sum()) == pytest.approx(1, abs=1e-4)
    assert bool((found > 0).all())


@pytest.mark.parametrize(
    "names", [(name,) for name in MEMBERS] + [("saliency", "input_x_gradient")]
)
def test_prices_are_what_members_spend(question, names):
    sea = SEA.for_text(question.model.module, make_tokenizer(), methods=names, budget=40)
    e, price = sea.explain([TEXT]), count_price(expand(names), (len(question.reading),))
    assert e.evaluations["members"] == price - (len(names) > 1)  # these two share a gradient
    assert sum(e.provenance.evaluations.values()) == sum(e.evaluations.values())


def test_options_come_with_the_names(question):
    methods = ["saliency", ("integrated_gradients", {"n_steps": 3})]
    sea = SEA.for_text(question.model.module, make_tokenizer(), methods=methods, budget=40)
    assert sea.explain([TEXT]).evaluations["members"] == 4


def test_unknown_members_and_options_are_refused():
    with pytest.raises(InputError, match="members for texts"):
        expand(("lime",))
    with pytest.raises(InputError, match="no option"):
        expand([("saliency", {"n_steps": 3})])
    with pytest.raises(InputError, match="n_steps"):
        expand([("integrated_gradients", {"n_steps": 0})])
    with pytest.raises(InputError, match="at least one"):
        expand(())


def test_deep_lift_has_no_rule_for_a_transformer(question):
    """Why it is no member: of attention and norms it takes the gradient, so it does not add up."""
    reading = question.reading
    embedded = question.model.embed(reading)
    absent = question.model.embed_absent().expand_as(embedded)
    start = torch.where((reading.owner < 0)[:, None], embedded, absent)

    class ByEmbeddings(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, embedded):
            mask = torch.ones(embedded.shape[:2], dtype=torch.int64)
            return self.model(inputs_embeds=embedded, attention_mask=mask).logits

    model, point = ByEmbeddings(question.model.module), embedded[None].clone().requires_grad_()
    with pytest.warns(UserWarning, match="hooks"):
        theirs = DeepLift(model).attribute(point, start[None], target=1)[0]
    with torch.no_grad():
        change = float((model(embedded[None]) - model(start[None]))[0, 1])
    assert abs(float(theirs.detach().sum()) - change) > 0.25 * abs(change)
