"""Members for texts: one signed number a word, by embeddings, by attention or by leaving it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.config import check_whole
from sea_nn.errors import InputError
from sea_nn.text.model import End, TextModel
from sea_nn.text.reading import NOBODY, Reading

STEPS = 16


@dataclass
class Question:
    """What is explained of one text, and what the first pass said.

    Attributes:
        model: the model.
        reading: the text.
        ends: a language model's continuations; none of a classifier.
        read: what of the columns is explained: [P, K] -> [P].
        embedded: the embeddings of the text's tokens, [L, D], and their owners, [L].
        gradient: of ``read`` in the embeddings, [L, D].
        value: ``read`` of the whole text; set when it is first read.
    """

    model: TextModel
    reading: Reading
    ends: Sequence[End]
    read: Callable[[Tensor], Tensor]
    embedded: tuple[Tensor, Tensor] | None = None
    gradient: Tensor | None = None
    value: Tensor | None = None

    def find_value(self) -> Tensor:
        """``read`` of the whole text; the model is asked if no pass has told it yet."""
        if self.value is None:
            n, device = len(self.reading), self.model.device
            whole = torch.ones(1, n, dtype=torch.bool, device=device)
            self.value = self.read(self.model.ask(self.reading, whole, self.ends)).float()
        return self.value

    def sum_words(self, by_token: Tensor, owner: Tensor) -> Tensor:
        """Sums over each word's tokens: [L] and owners [L] -> [n]."""
        sums = by_token.new_zeros(len(self.reading) + 1)
        index = torch.where(owner < 0, len(self.reading), owner)
        return sums.index_add_(0, index, by_token)[:-1]


def saliency(q: Question) -> Tensor:
    """The length of the gradient in each token's embedding, summed over the word."""
    gradient, (_, owner) = _first(q)
    return q.sum_words(gradient.norm(dim=1), owner)


def input_x_gradient(q: Question) -> Tensor:
    """The gradient times the embedding, summed over the word."""
    gradient, (embedded, owner) = _first(q)
    return q.sum_words((gradient * embedded).sum(1), owner)


def integrated_gradients(q: Question, n_steps: int = STEPS) -> Tensor:
    """Gradients along the way from absent words' embeddings to the text's, times the way.

    Special tokens stay as they are. Midpoints of ``n_steps`` equal steps.
    """
    _, (embedded, owner) = _first(q)
    absent = q.model.embed_absent().expand_as(embedded)
    start = torch.where((owner == NOBODY)[:, None], embedded, absent)
    at = (torch.arange(n_steps, device=embedded.device) + 0.5) / n_steps
    points = start + at.to(embedded)[:, None, None] * (embedded - start)
    _, gradients = q.model.slopes(q.reading, points, q.ends, q.read)
    return q.sum_words((gradients.mean(0) * (embedded - start)).sum(1), owner)


def attention_rollout(q: Question) -> Tensor:
    """How far attention, multiplied over layers, reaches from the output to each word.

    After Abnar and Zuidema (2020): half attention, half the residual, averaged over heads. It does
    not depend on the target. The output reads the last token of language models and of
    classifiers without a first special token, the mean of all where the model says
    ``pooling = "mean"``, else the first token.
    """
    rollout: Tensor | None = None
    for layer in q.model.attend(q.reading):
        mixed = (layer + torch.eye(len(layer), device=layer.device)) / 2
        mixed = mixed / mixed.sum(1, keepdim=True)
        rollout = mixed if rollout is None else mixed @ rollout
    if rollout is None:
        raise InputError("the model has no layer of attention")
    _, owner = q.embedded or q.model.embed(q.reading)
    if getattr(q.model.module, "pooling", "") == "mean":
        return q.sum_words(rollout.mean(0), owner)
    last = q.model.language or int(owner[0]) != NOBODY
    return q.sum_words(rollout[-1 if last else 0], owner)


def attention_lrp(q: Question) -> Tensor:
    """Input times gradient with attention, norms and activations held as they are.

    Layer-wise relevance propagation with rules that conserve it; see ``sea_nn.members.attention``.
    """
    q.embedded = q.embedded or q.model.embed(q.reading)
    embedded, owner = q.embedded
    _, gradient = q.model.slopes(q.reading, embedded.unsqueeze(0), q.ends, q.read, hold=True)
    return q.sum_words((gradient[0] * embedded).sum(1), owner)


def leave_one_out(q: Question) -> Tensor:
    """What is lost where one word is absent."""
    n = len(q.reading)
    sets = ~torch.eye(n, dtype=torch.bool, device=q.model.device)
    return q.find_value() - q.read(q.model.ask(q.reading, sets, q.ends)).float()


def _first(q: Question) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The gradient of the first pass, and the embeddings."""
    if q.gradient is None or q.embedded is None:
        q.embedded = q.model.embed(q.reading)
        point = q.embedded[0].unsqueeze(0)
        columns, gradient = q.model.slopes(q.reading, point, q.ends, q.read)
        q.gradient, q.value = gradient[0], q.read(columns).float()
    return q.gradient, q.embedded


Member = Callable[..., Tensor]
MEMBERS: dict[str, Member] = {
    own.__name__: own
    for own in (
        saliency,
        input_x_gradient,
        integrated_gradients,
        attention_rollout,
        attention_lrp,
        leave_one_out,
    )
}


def find_price(methods: Sequence[str], options: Mapping[str, Mapping[str, Any]], n: int) -> int:
    """The evaluations that members cost for a text of n features.

    The first pass, with its gradient, is one for all of them; it is needed without members, too.

    >>> find_price(("saliency", "input_x_gradient"), {}, 20), find_price(("leave_one_out",), {}, 20)
    (1, 21)
    """
    steps = int(options.get("integrated_gradients", {}).get("n_steps", STEPS))
    more = {"integrated_gradients": steps, "leave_one_out": n}
    more |= {"attention_rollout": 1, "attention_lrp": 1}
    return 1 + sum(more.get(name, 0) for name in methods)


def check_methods(
    methods: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """The members by name, each once; unknown names and options are refused."""
    names = (methods,) if isinstance(methods, str) else tuple(dict.fromkeys(methods))
    for name in (*names, *options):
        if name not in MEMBERS:
            raise InputError(f"members for texts are {', '.join(MEMBERS)}; got {name!r}")
    if not names:
        raise InputError("name at least one member")
    for name, own in options.items():
        if set(own) - ({"n_steps"} if name == "integrated_gradients" else set()):
            raise InputError(f"{name} has no option {', '.join(own)}")
        if "n_steps" in own:
            check_whole("n_steps", own["n_steps"], 1)
    return names
