"""The members that a budget starts with: a few evaluations each, chosen by measurement."""

from collections.abc import Callable
from typing import Any

from torch import nn

from sea_nn.features import Kind
from sea_nn.features.kinds import IMAGE
from sea_nn.features.patches import attends
from sea_nn.members.registry import Entry, Methods, expand_methods

CONVOLUTIONAL = ("deeplift", "guided_grad_cam")
TRANSFORMER = ("attention_gradient",)
COLUMNS = ("deeplift",)
ANY = ("saliency",)
PASSES = (16, 8, 4, 2)
"""Passes of the presence gradient: the most that leave half of the budget to questions."""
LOOKS = 2  # rows an input that are neither members' nor questions about parts


def choose_members(
    model: Callable[..., Any], kind: Kind = IMAGE, budget: int = 512
) -> tuple[tuple[Entry, ...], ...]:
    """Return the members to try for a model, the best first; the last choice is no members.

    Args:
        model: the model.
        kind: of its inputs.
        budget: of evaluations an input.

    >>> [entry.label for entry in choose_members(nn.Conv2d(3, 2, 3))[0]]
    ['presence_gradient', 'deeplift', 'guided_grad_cam']
    >>> choose_members(nn.Conv2d(3, 2, 3), budget=34)[0][0].options["passes"]
    8
    """
    others: tuple[str, ...]
    if not isinstance(model, nn.Module):
        others = ANY
    elif kind.channels is None:
        others = COLUMNS
    else:
        others = TRANSFORMER if attends(model) else CONVOLUTIONAL
    price = sum(entry.member.cost() for entry in expand_methods(others))
    left = budget // 2 - LOOKS - price
    if left < 0:
        return ((),)
    passes = [(("presence_gradient", {"passes": p}),) for p in PASSES if p <= left]
    methods = (*(passes[0] if passes else ()), *others)
    return expand_methods(methods, optional=True), ()


def choose_entries(
    model: Callable[..., Any], methods: Methods | None, kind: Kind, budget: int | None
) -> tuple[tuple[Entry, ...], ...]:
    """Return the members that are named or, where none are, those to try for the model."""
    if methods is None:
        return choose_members(model, kind, budget or 0)
    return (expand_methods(methods),)
