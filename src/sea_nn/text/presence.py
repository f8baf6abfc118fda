"""A text as a model of which of its words are there: 1 and 0, [B, n] in, columns [B, K] out.

So a text is explained as every input is: its n features are the columns of a table in which every
word is there, and what is left out is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.text.model import End, group_tails
from sea_nn.text.reading import Reading


@dataclass
class AskedText:
    """One text, and what is explained of it.

    Attributes:
        model: a ``TextModel``.
        reading: the text.
        target: the column that is explained, or a pair; None: the largest.
        ends: a language model's continuations. If there are none, the first answer, about the
            whole text, chooses the token that the model expects.
        tokenizer: of a language model, to name them.
    """

    model: Any
    reading: Reading
    target: Any
    ends: tuple[End, ...] = ()
    tokenizer: Any = None

    def __call__(self, there: Tensor) -> Any:
        """The columns [B, K] with only the words left that are 1."""
        if self.model.language and not self.ends:
            token, said = self.model.expect(self.reading)
            self.ends = ((token,),)
            return said.expand(len(there), 1)
        return self.model.ask(self.reading, there > 0.5, self.ends)

    @property
    def passes(self) -> int:
        """How many rows of tokens an answer takes; continuations of one token share one."""
        return len(group_tails(self.ends))

    def name(self) -> str | None:
        """The continuations, once they are known; None of a classifier."""
        if self.tokenizer is None:
            return None
        return ", not ".join(repr(self.tokenizer.decode(list(end))) for end in self.ends)


class AskedWords(AskedText):
    """One text of a model that is a function of lists of lists of words."""

    def __call__(self, there: Tensor) -> Any:
        """What the function says of the words that are 1."""
        rows, words = (there > 0.5).tolist(), self.reading.words
        said = self.model(
            [[w for w, stays in zip(words, row, strict=True) if stays] for row in rows]
        )
        if isinstance(said, list) or hasattr(said, "__array_interface__"):
            said = torch.as_tensor(said)
        return said.float() if isinstance(said, Tensor) else said
