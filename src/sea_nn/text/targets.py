"""What is explained of a text: a class or a continuation, or one and not another."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.text.model import End

TextTarget = int | str | tuple[int | str, int | str] | None
"""A class or a continuation; a tuple (a, b): a and not b; None: what the model says itself."""


def split_targets(target: Any, n_texts: int) -> list[TextTarget]:
    """The target of each text: a list has one for each, anything else is for all."""
    if not isinstance(target, list | Tensor):
        return [target] * n_texts
    each = target.tolist() if isinstance(target, Tensor) else target
    each = [tuple(one) if isinstance(one, list) else one for one in each]
    if len(each) != n_texts:
        raise InputError(f"target is a list of {len(each)}, and there are {n_texts} texts")
    if len({isinstance(one, tuple) for one in each}) > 1:
        raise InputError("targets of one call are all single, or all pairs (a, b): call twice")
    return each


def find_classes(target: TextTarget, names: Sequence[str] | None) -> Any:
    """A classifier's target by numbers: a class, a pair of them, or None."""
    numbers = {name: k for k, name in enumerate(names or ())}
    if isinstance(target, tuple):
        return tuple(_find_class(one, numbers) for one in target)
    return None if target is None else _find_class(target, numbers)


def find_ends(target: TextTarget, tokenizer: Any) -> list[End]:
    """The continuations that a target names, by their tokens."""
    both = target if isinstance(target, tuple) else (target,)
    if len(both) > 2:
        raise InputError(f"a tuple is a pair, (a, b): why a and not b; got {len(both)} entries")
    ends = [_find_end(one, tokenizer) for one in both]
    if len(ends) == 2 and ends[0] == ends[1]:
        raise InputError("the two continuations of a target (a, b) must differ")
    return ends


def _find_class(one: int | str, names: Mapping[str, int]) -> int:
    if isinstance(one, str):
        if one in names:
            return names[one]
        near = difflib.get_close_matches(one, names, 5, 0) or ["none: give a number"]
        raise InputError(f"the model has no class {one!r}; its classes: {', '.join(near)}")
    if isinstance(one, bool) or not isinstance(one, int):
        raise KindError(f"a class is a number or a name; got {one!r}")
    return one


def _find_end(one: Any, tokenizer: Any) -> End:
    if isinstance(one, str):
        tokens = tokenizer.encode(one, add_special_tokens=False)
        if not tokens:
            raise InputError("the continuation is empty: give at least one word")
        return tuple(tokens)
    if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < len(tokenizer):
        raise InputError(
            "the target of a language model is a continuation, such as ' Paris', or the number of "
            f"a token below {len(tokenizer)}; got {one!r}"
        )
    return (one,)
