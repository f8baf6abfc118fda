"""Members for texts, against Captum and by hand."""

import pytest
import torch
from captum.attr import LayerIntegratedGradients

from sea_nn import SEA
from sea_nn.call import count_price
from sea_nn.errors import InputError
from sea_nn.model.opening import open_model
from sea_nn.text import members
from sea_nn.text.members import MEMBERS, expand
from sea_nn.text.model import AskedText
from sea_nn.text.reading import read_text

TEXT = "the acting was not bad"


@pytest.fixture(scope="module")
def asked(parts):
    return AskedText(*parts, read_text(parts[1], TEXT), 1)


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


def test_relevance_by_attention_is_not_the_plain_gradient(probe):
    found = members.attention_lrp(probe)
    assert found.shape == (1, 5)
    assert bool(found.isfinite().all())
    assert not torch.allclose(found, members.input_x_gradient(probe))


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
    e, price = sea.explain([TEXT]), count_price(expand(names), (len(asked.reading),))
    assert e.evaluations["members"] == price - (len(names) > 1)  # these two share a gradient
    assert sum(e.provenance.evaluations.values()) == sum(e.evaluations.values())


def test_options_come_with_the_names(parts):
    methods = ["saliency", ("integrated_gradients", {"n_steps": 3})]
    sea = SEA.for_text(*parts, methods=methods, budget=40)
    assert sea.explain([TEXT]).evaluations["members"] == 4


def test_unknown_members_and_options_are_refused():
    for methods, said in (
        (("lime",), "members for texts"),
        ((), "at least one"),
        ([("saliency", {"n_steps": 3})], "no option"),
        ([("integrated_gradients", {"n_steps": 0})], "n_steps"),
    ):
        with pytest.raises(InputError, match=said):
            expand(methods)
