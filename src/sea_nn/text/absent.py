"""Texts with some of their features absent: masked, deleted, or not attended to.

"mask" puts the tokenizer's mask token for every token of an absent word, "delete" leaves the tokens
out, "pad" keeps their places and lets no other token attend to them. Where no token at all
would be left, as in models without special tokens, the text is its ``start`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad as widen

from sea_nn.errors import InputError
from sea_nn.text.reading import Reading

Absent = Literal["mask", "delete", "pad"]
ABSENT: dict[Absent, str] = {
    "mask": "becomes mask tokens",
    "delete": "goes, and its neighbours move together",
    "pad": "stays in its place, and nothing attends to it",
}
"""What becomes of a word that is left out."""


@dataclass(frozen=True)
class Rows:
    """R variants of a text, padded on the right to the longest.

    Attributes:
        given: the model's arguments, "input_ids" and "attention_mask" among them, [R, L] each.
        lengths: how many tokens of each row are there, int64 [R].
    """

    given: dict[str, Tensor]
    lengths: Tensor

    def take(self, which: Tensor) -> Rows:
        """Some of the rows, as wide as their longest."""
        lengths = self.lengths[which]
        width = int(lengths.max())
        return Rows({k: v[which, :width] for k, v in self.given.items()}, lengths)


def hide(
    reading: Reading,
    sets: Tensor,
    how: Absent,
    *,
    mask: int | None = None,
    pad: int = 0,
    tail: Sequence[int] = (),
) -> Rows:
    """The text with only some of its features left, in R variants.

    Args:
        reading: the text.
        sets: the features that are left, bool [R, n].
        how: what becomes of the others.
        mask: the mask token.
        pad: the token that fills rows up, and takes the place of absent ones by "pad".
        tail: tokens that follow the text and always stay.
    """
    kept, count = reading.keep(sets), len(tail)
    nothing = ~kept.any(1) & (how != "mask")
    given = {name: values.to(sets.device) for name, values in reading.given.items()}
    given.setdefault("attention_mask", torch.ones_like(given["input_ids"]))
    more = dict.fromkeys(given, (0,) * count) | {"input_ids": tail, "attention_mask": (1,) * count}
    rows = {
        name: torch.cat([values, values.new_tensor(more[name])]).repeat(len(sets), 1)
        for name, values in given.items()
    }
    if bool(nothing.any()):
        if reading.start is None:
            raise InputError(
                "with every word left out the model would read nothing, and the tokenizer has no "
                "token to begin a text with (bos, eos or pad): set one, such as "
                'tokenizer.bos_token = "<s>"'
            )
        rows["input_ids"][nothing, 0] = reading.start
        kept[nothing, 0] = True
    kept = widen(kept, (0, count), value=True)
    lengths = torch.full((len(sets),), kept.shape[1], device=sets.device)
    if how == "delete":
        lengths = kept.sum(1)
        first = (~kept).byte().argsort(dim=1, stable=True)  # what is kept comes first, in order
        there = torch.arange(kept.shape[1], device=sets.device) < lengths[:, None]
        fill = dict.fromkeys(rows, 0) | {"input_ids": pad}
        rows = {k: torch.where(there, v.gather(1, first), fill[k]) for k, v in rows.items()}
        return Rows(rows, lengths)
    instead = pad if how == "pad" else mask
    if instead is None:
        raise ValueError("there is no mask token")
    rows["input_ids"] = torch.where(kept, rows["input_ids"], instead)
    if how == "pad":
        rows["attention_mask"] = torch.where(kept, rows["attention_mask"], 0)
    return Rows(rows, lengths)
