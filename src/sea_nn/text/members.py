"""Members for texts: one signed number a word, by embeddings, by attention or by leaving it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError
from sea_nn.members.registry import Entry, Member, Methods, expand_methods
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import take
from sea_nn.text.model import End, TextModel
from sea_nn.text.reading import NOBODY, Reading

STEPS = 16


@dataclass
class Question:
    """What is explained of one text, and what the first gradient was.

    Attributes:
        model: the model.
        reading: the text.
        ends: a language model's continuations; none of a classifier.
        read: what of the columns is explained: [P, K] -> [P].
        count: is told how many evaluations are about to be made.
        embedded: the embeddings of the text's tokens, [L, D], and their owners, [L].
        gradient: of ``read`` in the embeddings, [L, D].
    """

    model: TextModel
    reading: Reading
    ends: Sequence[End]
    read: Callable[[Tensor], Tensor]
    count: Callable[[int], None] = lambda rows: None
    embedded: tuple[Tensor, Tensor] | None = None
    gradient: Tensor | None = None

    @classmethod
    def of(cls, evaluator: Evaluator) -> Question:
        """The question that an opened ``Presence`` is asked."""
        presence: Any = evaluator.model.model
        meter: Any = evaluator.model.meter

        def read(columns: Tensor) -> Tensor:
            target = evaluator.target
            return take(columns, target.expand(len(columns), *target.shape[1:]))

        return cls(presence.model, presence.reading, presence.ends, read, meter.add)

    def ask(self, sets: Tensor) -> Tensor:
        """``read`` with only these features left: bool [R, n] -> [R]."""
        self.count(len(sets))
        return self.read(self.model.ask(self.reading, sets, self.ends)).float()

    def embed(self) -> tuple[Tensor, Tensor]:
        """The embeddings and their owners."""
        self.embedded = self.embedded or self.model.embed(self.reading)
        return self.embedded

    def differentiate(self, points: Tensor, hold: bool = False) -> Tensor:
        """The gradients of ``read`` at embeddings [P, L, D]."""
        self.count(len(points))
        return self.model.slopes(self.reading, points, self.ends, self.read, hold)[1]

    def find_gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient at the text itself, computed once, the embeddings and their owners."""
        embedded, owner = self.embed()
        if self.gradient is None:
            self.gradient = self.differentiate(embedded.unsqueeze(0))[0]
        return self.gradient, embedded, owner

    def sum_words(self, by_token: Tensor, owner: Tensor) -> Tensor:
        """Sums over each word's tokens: [L] and owners [L] -> [n]."""
        sums = by_token.new_zeros(len(self.reading) + 1)
        index = torch.where(owner < 0, len(self.reading), owner)
        return sums.index_add_(0, index, by_token)[:-1]


def saliency(q: Question) -> Tensor:
    """The length of the gradient in each token's embedding, summed over the word."""
    gradient, _, owner = q.find_gradient()
    return q.sum_words(gradient.norm(dim=1), owner)


def input_x_gradient(q: Question) -> Tensor:
    """The gradient times the embedding, summed over the word."""
    gradient, embedded, owner = q.find_gradient()
    return q.sum_words((gradient * embedded).sum(1), owner)


def integrated_gradients(q: Question, n_steps: int = STEPS) -> Tensor:
    """Gradients along the way from absent words' embeddings to the text's, times the way.

    Special tokens stay as they are. Midpoints of ``n_steps`` equal steps.
    """
    embedded, owner = q.embed()
    absent = q.model.embed_absent().expand_as(embedded)
    start = torch.where((owner == NOBODY)[:, None], embedded, absent)
    at = (torch.arange(n_steps, device=embedded.device) + 0.5) / n_steps
    points = start + at.to(embedded)[:, None, None] * (embedded - start)
    gradients = q.differentiate(points)
    return q.sum_words((gradients.mean(0) * (embedded - start)).sum(1), owner)


def attention_rollout(q: Question) -> Tensor:
    """How far attention, multiplied over layers, reaches from the output to each word.

    After Abnar and Zuidema (2020): half attention, half the residual, averaged over heads. It does
    not depend on the target. The output reads the last token of language models and of
    classifiers without a first special token, the mean of all where the model says
    ``pooling = "mean"``, else the first token.
    """
    rollout: Tensor | None = None
    q.count(1)
    for layer in q.model.attend(q.reading):
        mixed = (layer + torch.eye(len(layer), device=layer.device)) / 2
        mixed = mixed / mixed.sum(1, keepdim=True)
        rollout = mixed if rollout is None else mixed @ rollout
    if rollout is None:
        raise InputError("the model has no layer of attention")
    _, owner = q.embed()
    if getattr(q.model.module, "pooling", "") == "mean":
        return q.sum_words(rollout.mean(0), owner)
    last = q.model.language or int(owner[0]) != NOBODY
    return q.sum_words(rollout[-1 if last else 0], owner)


def attention_lrp(q: Question) -> Tensor:
    """Input times gradient with attention, norms and activations held as they are.

    Layer-wise relevance propagation with rules that conserve it; see ``sea_nn.members.attention``.
    """
    embedded, owner = q.embed()
    gradient = q.differentiate(embedded.unsqueeze(0), hold=True)[0]
    return q.sum_words((gradient * embedded).sum(1), owner)


def leave_one_out(q: Question) -> Tensor:
    """What is lost where one word is absent."""
    n = len(q.reading)
    whole = torch.ones(n + 1, n, dtype=torch.bool, device=q.model.device)
    whole[1:] ^= torch.eye(n, dtype=torch.bool, device=q.model.device)
    said = q.ask(whole)
    return said[0] - said[1:]


MEMBERS: dict[str, Callable[..., Tensor]] = {
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
UNSIGNED = ("saliency", "attention_rollout")


def _make_member(name: str) -> Member:
    """A member as the ensemble has them: of an opened ``Presence`` and not of a ``Question``."""

    def run(evaluator: Evaluator, **options: Any) -> Tensor:
        if "question" not in evaluator.cache:
            evaluator.cache["question"] = Question.of(evaluator)
        return MEMBERS[name](evaluator.cache["question"], **options).unsqueeze(0)

    price = {
        "integrated_gradients": lambda options, shape: options["n_steps"],
        "leave_one_out": lambda options, shape: shape[0] + 1,
    }
    defaults = {"n_steps": STEPS} if name == "integrated_gradients" else {}
    cost, signed = price.get(name, 1), name not in UNSIGNED
    return Member(name, run, cost, signed, defaults=defaults, native=True)


def find_price(entries: Sequence[Entry], n: int) -> int:
    """The evaluations that members cost for a text of n features; two share a gradient.

    >>> find_price(expand("saliency, input_x_gradient, leave_one_out"), 20)
    22
    """
    names = {entry.member.name for entry in entries}
    shared = {"saliency", "input_x_gradient"} <= names
    return sum(entry.member.cost(entry.options, (n,)) for entry in entries) - shared


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
        found.append((_make_member(name), own))
    if not found:
        raise InputError(f"name at least one member: {', '.join(MEMBERS)}")
    return expand_methods(found, optional=True)
