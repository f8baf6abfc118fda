"""Members for texts: one signed number a word, by embeddings, by attention or by leaving it out.

Each is given the ``Probe`` of an opened ``AskedText``, as every member is of what is explained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.members import attention
from sea_nn.members.masking import ask_masks
from sea_nn.members.registry import Entry, Member, Methods, expand_methods
from sea_nn.model.outputs import TensorModel
from sea_nn.model.probe import Probe, add_up
from sea_nn.text.reading import NOBODY


def embed(probe: Probe) -> Probe:
    """The same question asked of the embeddings of the whole text's tokens: x is [1, L, D]."""
    if "embedded" not in probe.cache:
        asked: Any = probe.model.model
        x = asked.embed(asked.reading.given["input_ids"].unsqueeze(0))
        most = asked.fit(x.shape[1])
        probe.cache["embedded"] = replace(
            probe,
            model=TensorModel(asked.read_embedded, probe.meter),
            x=x,
            limit=min(most, probe.limit or most),
            has_gradient=True,
            saved=0,
            cache={},
        )
    found: Probe = probe.cache["embedded"]
    return found


def sum_words(probe: Probe, by_token: Tensor) -> Tensor:
    """Sums over each word's tokens: [1, L] -> [1, n]."""
    asked: Any = probe.model.model
    sums = by_token.new_zeros(1, len(asked.reading) + 1)  # the last is of what is nobody's
    owner = asked.reading.owner.to(sums.device)
    return sums.index_add_(1, owner % sums.shape[1], by_token)[:, :-1]


def saliency(probe: Probe) -> Tensor:
    """The length of the gradient in each token's embedding, summed over the word."""
    return sum_words(probe, embed(probe).input_gradients().norm(dim=2))


def input_x_gradient(probe: Probe) -> Tensor:
    """The gradient times the embedding, summed over the word."""
    inner = embed(probe)
    return sum_words(probe, (inner.input_gradients() * inner.x).sum(2))


def integrated_gradients(probe: Probe, n_steps: int = 16) -> Tensor:
    """Gradients along the way from absent words' embeddings to the text's, times the way.

    Special tokens stay as they are. Midpoints of ``n_steps`` equal steps.
    """
    asked: Any = probe.model.model
    inner = embed(probe)
    stays = (asked.reading.owner == NOBODY).to(inner.x.device)[:, None]
    way = inner.x - torch.where(stays, inner.x, asked.embed(torch.tensor(asked.mask)))
    left = 1 - (torch.arange(n_steps, device=way.device) + 0.5) / n_steps
    total = torch.zeros_like(way)
    for rows, step in inner.parts(n_steps):
        points = inner.x - left[step].to(way)[:, None, None] * way
        add_up(total, rows, inner.gradient(points, rows))
    return sum_words(probe, (total / n_steps * way).sum(2))


def attention_rollout(probe: Probe) -> Tensor:
    """How far attention, multiplied over layers, reaches from the output to each word.

    After Abnar and Zuidema (2020): half attention, half the residual, averaged over heads. It does
    not depend on the target. The output reads the last token of language models and of
    classifiers without a first special token, the mean of all where the model says
    ``pooling = "mean"``, else the first token.
    """
    asked: Any = probe.model.model
    probe.meter.add(1)
    owner = asked.reading.owner
    flow = attention.roll_out(asked.attend())[0].float()
    if getattr(asked.module, "pooling", "") == "mean":
        return sum_words(probe, flow.mean(0, keepdim=True))
    last = asked.language or int(owner[0]) != NOBODY
    return sum_words(probe, flow[-1:] if last else flow[:1])


def attention_lrp(probe: Probe) -> Tensor:
    """Input times gradient with attention, norms and activations held as they are.

    Layer-wise relevance propagation with rules that conserve it; see ``sea_nn.members.attention``.
    """
    return sum_words(probe, attention.attention_lrp(embed(probe)).sum(2))


def leave_one_out(probe: Probe) -> Tensor:
    """What is lost where one word is absent."""
    n = probe.x.shape[1]
    masks = torch.cat([torch.ones(1, n), 1 - torch.eye(n)])
    said = ask_masks(probe, n + 1, masks.to(probe.x).__getitem__)
    return said[:, :1] - said[:, 1:]


MEMBERS = {
    function.__name__: Member(
        *(function.__name__, function, cost, signed), defaults=defaults, native=True
    )
    for function, cost, signed, defaults in (
        (saliency, 1, False, {}),
        (input_x_gradient, 1, True, {}),
        (integrated_gradients, "n_steps", True, {"n_steps": 16}),
        (attention_rollout, 1, False, {}),
        (attention_lrp, 1, True, {}),
        (leave_one_out, lambda options, shape: shape[0] + 1, True, {}),
    )
}


def expand(methods: Methods) -> tuple[Entry, ...]:
    """The members that methods name: names, or pairs of a name and its options.

    Those that are not made for the model are left out, and a check says so.
    """
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",")]
    pairs: Any = [m if isinstance(m, tuple) else (m, {}) for m in methods]  # type: ignore[union-attr]
    if not pairs or any(name not in MEMBERS for name, _ in pairs):
        raise InputError(f"members for texts are {', '.join(MEMBERS)}: name at least one of these")
    named: Any = [(MEMBERS[name], own) for name, own in pairs]
    return expand_methods(named, optional=True)
