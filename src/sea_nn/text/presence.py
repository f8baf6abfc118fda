"""A model of texts as one of which words are there: 1 and 0, [B, n] in, columns [B, K] out.

So a text is explained as every input is: its n features are the columns of a table in which every
word is there, and what is left out is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.text.model import End, TextModel, group_tails
from sea_nn.text.reading import Reading


class Presence:
    """A tokenizer's model and one text.

    Args:
        model: the model.
        reading: the text.
        ends: a language model's continuations. Left out, the first answer, about the whole text,
            chooses the token that the model expects.
    """

    def __init__(self, model: TextModel, reading: Reading, ends: Sequence[End] = ()) -> None:
        self.model, self.reading, self.ends = model, reading, tuple(ends)

    def __call__(self, there: Tensor) -> Tensor:
        """The columns [B, K] with only the words left that are 1."""
        if self.model.language and not self.ends:
            token, said = self.model.expect(self.reading)
            self.ends = ((token,),)
            return said.expand(len(there), 1)
        return self.model.ask(self.reading, there > 0.5, self.ends)


class WordsPresence:
    """A function that answers lists of lists of words, and one text.

    Args:
        answer: the function; what it gives is taken as a model's output is.
        reading: the text.
    """

    def __init__(self, answer: Callable[[list[list[str]]], Any], reading: Reading) -> None:
        self.answer, self.words = answer, reading.words

    def __call__(self, there: Tensor) -> Any:
        """What the function says of the words that are 1."""
        rows = (there > 0.5).tolist()
        left = [[w for w, stays in zip(self.words, row, strict=True) if stays] for row in rows]
        said = self.answer(left)
        if isinstance(said, list) or hasattr(said, "__array_interface__"):
            said = torch.as_tensor(said)
        return said.float() if isinstance(said, Tensor) else said


@dataclass(frozen=True)
class AskedText:
    """One text, and what is explained of it.

    Attributes:
        reading: the text.
        presence: the model as one of which words are there.
        target: the column that is explained, or a pair; None: the largest.
        ends: a language model's continuations, as far as they were given.
        tokenizer: of a language model, to name them.
    """

    reading: Reading
    presence: Any
    target: Any
    ends: tuple[End, ...] = ()
    tokenizer: Any = None

    @property
    def passes(self) -> int:
        """How many rows of tokens an answer takes; continuations of one token share one."""
        return len(group_tails(self.ends))

    def name(self) -> str | None:
        """The continuations, once they are known; None of a classifier."""
        if self.tokenizer is None:
            return None
        return ", not ".join(repr(self.tokenizer.decode(list(end))) for end in self.presence.ends)


class LeftOut:
    """What is left out becomes 0: the model's side knows what that means."""

    n_draws = 1

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def hide(self, hidden: Tensor, rows: Tensor, draw: Tensor | None = None) -> Tensor:
        """The text with words [P, n] left out."""
        return self.x[rows].masked_fill(hidden, 0.0)

    def changed(self) -> Tensor:
        """Every word looks different when it is left out."""
        return torch.ones_like(self.x, dtype=torch.bool)
