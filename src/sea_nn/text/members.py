"""Members for texts: one signed number a word, by embeddings, by attention or by leaving it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.members.registry import Entry, Member, Methods, expand_methods
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import take
from sea_nn.text.model import End, TextModel
from sea_nn.text.reading import NOBODY, Reading


@dataclass
class Question:
    """What is explained of one text; its embeddings and the first gradient are computed once.

    Attributes:
        model: the model.
        reading: the text.
        ends: a language model's continuations; none of a classifier.
        read: what of the columns is explained: [P, K] -> [P].
        count: is told how many evaluations are about to be made.
    """

    model: TextModel
    reading: Reading
    ends: Sequence[End]
    read: Callable[[Tensor], Tensor]
    count: Callable[[int], None] = lambda rows: None

    @classmethod
    def of(cls, evaluator: Evaluator) -> Question:
        """The question that an opened ``AskedText`` is asked."""
        asked: Any = evaluator.model.model
        meter: Any = evaluator.model.meter

        def read(columns: Tensor) -> Tensor:
            target = evaluator.target
            return take(columns, target.expand(len(columns), *target.shape[1:]))

        return cls(asked.model, asked.reading, asked.ends, read, meter.add)

    def ask(self, sets: Tensor) -> Tensor:
        """``read`` with only these features left: bool [R, n] -> [R]."""
        self.count(len(sets))
        return self.read(self.model.ask(self.reading, sets, self.ends)).float()

    @cached_property
    def embedded(self) -> Tensor:
        """The embeddings of the text's tokens, [L, D]."""
        return self.model.embed(self.reading)

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of ``read`` at them, [L, D]."""
        return self.differentiate(self.embedded.unsqueeze(0))[0]

    def differentiate(self, points: Tensor, hold: bool = False) -> Tensor:
        """The gradients of ``read`` at embeddings [P, L, D]."""
        self.count(len(points))
        return self.model.differentiate(self.reading, points, self.ends, self.read, hold)

    def sum_words(self, by_token: Tensor) -> Tensor:
        """Sums over each word's tokens: [L] -> [n]."""
        owner = self.reading.owner.to(by_token.device)
        sums = by_token.new_zeros(len(self.reading) + 1)  # the last is of what is nobody's
        return sums.index_add_(0, owner % len(sums), by_token)[:-1]


def saliency(q: Question) -> Tensor:
    """The length of the gradient in each token's embedding, summed over the word."""
    return q.sum_words(q.gradient.norm(dim=1))


def input_x_gradient(q: Question) -> Tensor:
    """The gradient times the embedding, summed over the word."""
    return q.sum_words((q.gradient * q.embedded).sum(1))


def integrated_gradients(q: Question, n_steps: int = 16) -> Tensor:
    """Gradients along the way from absent words' embeddings to the text's, times the way.

    Special tokens stay as they are. Midpoints of ``n_steps`` equal steps.
    """
    stays = (q.reading.owner == NOBODY).to(q.embedded.device)[:, None]
    way = q.embedded - torch.where(stays, q.embedded, q.model.embed_absent())
    left = 1 - (torch.arange(n_steps, device=way.device) + 0.5) / n_steps
    gradients = q.differentiate(q.embedded - left.to(way)[:, None, None] * way)
    return q.sum_words((gradients.mean(0) * way).sum(1))


def attention_rollout(q: Question) -> Tensor:
    """How far attention, multiplied over layers, reaches from the output to each word.

    After Abnar and Zuidema (2020): half attention, half the residual, averaged over heads. It does
    not depend on the target. The output reads the last token of language models and of
    classifiers without a first special token, the mean of all where the model says
    ``pooling = "mean"``, else the first token.
    """
    q.count(1)
    flow = torch.eye(len(q.reading.owner), device=q.model.device)
    for layer in q.model.attend(q.reading):
        mixed = layer + torch.eye(len(layer), device=layer.device)
        flow = mixed / mixed.sum(1, keepdim=True) @ flow
    if getattr(q.model.module, "pooling", "") == "mean":
        return q.sum_words(flow.mean(0))
    last = q.model.language or int(q.reading.owner[0]) != NOBODY
    return q.sum_words(flow[-1 if last else 0])


def attention_lrp(q: Question) -> Tensor:
    """Input times gradient with attention, norms and activations held as they are.

    Layer-wise relevance propagation with rules that conserve it; see ``sea_nn.members.attention``.
    """
    gradient = q.differentiate(q.embedded.unsqueeze(0), hold=True)[0]
    return q.sum_words((gradient * q.embedded).sum(1))


def leave_one_out(q: Question) -> Tensor:
    """What is lost where one word is absent."""
    n = len(q.reading)
    whole = torch.ones(n + 1, n, dtype=torch.bool, device=q.model.device)
    whole[1:] ^= torch.eye(n, dtype=torch.bool, device=q.model.device)
    said = q.ask(whole)
    return said[0] - said[1:]


def _make(
    function: Callable[..., Tensor], cost: Any = 1, signed: bool = True, **defaults: Any
) -> Member:
    """A member as the ensemble has them: of an opened ``AskedText`` and not of a ``Question``."""

    def run(evaluator: Evaluator, **options: Any) -> Tensor:
        if "question" not in evaluator.cache:
            evaluator.cache["question"] = Question.of(evaluator)
        return function(evaluator.cache["question"], **options).unsqueeze(0)

    return Member(function.__name__, run, cost, signed, defaults=defaults, native=True)


MEMBERS: dict[str, Member] = {
    member.name: member
    for member in (
        _make(saliency, signed=False),
        _make(input_x_gradient),
        _make(integrated_gradients, lambda options, shape: options["n_steps"], n_steps=16),
        _make(attention_rollout, signed=False),
        _make(attention_lrp),
        _make(leave_one_out, lambda options, shape: shape[0] + 1),
    )
}


def expand(methods: Methods) -> tuple[Entry, ...]:
    """The members that methods name: names, or pairs of a name and its options.

    Those that are not made for the model are left out, and a check says so.
    """
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",")]
    found: list[Any] = []
    for method in methods:  # type: ignore[union-attr]
        name, own = method if isinstance(method, tuple) else (method, {})
        if name not in MEMBERS:
            raise InputError(f"members for texts are {', '.join(MEMBERS)}; got {name!r}")
        if "baselines" in own:
            raise InputError(f"{name} has no option 'baselines': say absent= to SEA.for_text")
        found.append((MEMBERS[name], own))
    if not found:
        raise InputError(f"name at least one member: {', '.join(MEMBERS)}")
    return expand_methods(found, optional=True)
