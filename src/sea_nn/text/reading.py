r"""How a model reads a text: its tokens, and the feature (word, sentence, span) each belongs to.

>>> text = "Not bad. Not good either!"
>>> [text[a:b] for a, b in find_words(text)]
['Not', 'bad.', 'Not', 'good', 'either!']
>>> [text[a:b] for a, b in find_sentences(text)]
['Not bad.', 'Not good either!']
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError

Span = tuple[int, int]
IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+")
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+|\n+")
FEATURES = ("words", "tokens", "sentences")
NOBODY = -1
"""The owner of tokens that are no feature's: they always stay."""


@dataclass(frozen=True)
class Reading:
    """One text as the model reads it: L tokens, n features.

    Attributes:
        text: the text.
        spans: where each feature stands in it, in characters.
        given: what the tokenizer made of it, "input_ids" among them, int64 [L] each.
        owner: the feature that each token belongs to, or ``NOBODY``, int64 [L].
        notes: what the user should know, as (message, advice).
        start: the token that the model reads where nothing is left; None if there is none, or if
            special tokens are always left.
    """

    text: str
    spans: tuple[Span, ...]
    given: Mapping[str, Tensor]
    owner: Tensor
    notes: tuple[tuple[str, str], ...] = ()
    start: int | None = None

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def words(self) -> list[str]:
        """The features' own text."""
        return [self.text[start:end] for start, end in self.spans]

    def keep(self, sets: Tensor) -> Tensor:
        """Which tokens stay if only these features do: bool [R, n] -> [R, L]."""
        always = torch.ones(len(sets), 1, dtype=torch.bool, device=sets.device)
        return torch.cat([sets, always], 1)[:, self.owner.to(sets.device)]


def read_words(words: str | Sequence[str]) -> Reading:
    """A text, or its words, for a function of words: there are no tokens.

    >>> read_words(["not", "bad"]).text
    'not bad'
    """
    if isinstance(words, str):
        return Reading(words, tuple(find_words(words)), {}, torch.empty(0))
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise KindError(f"a text is a string, or a list of its words; got {words!r}")
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    return Reading(" ".join(words), tuple(spans), {}, torch.empty(0))


def read_text(
    tokenizer: Any,
    text: str | tuple[str, str],
    features: str | Sequence[Sequence[int]] = "words",
    *,
    limit: int | None = None,
    keep_end: bool = False,
) -> Reading:
    """Tokenize a text and find out which feature each token belongs to.

    Args:
        tokenizer: of Hugging Face.
        text: one text, or a pair that the tokenizer joins (question and document): it counts as one
            text of two lines.
        features: "words", "tokens", "sentences" or spans (start, end) in characters.
        limit: the most tokens that the model reads; a longer text is cut.
        keep_end: cut the beginning, not the end.
    """
    both = text if isinstance(text, tuple) and len(text) == 2 else (text,)
    if not all(isinstance(one, str) for one in both):
        raise KindError(
            f"a text is a string, or a pair (question, document) of them; got "
            f"{', '.join(type(one).__name__ for one in both)}"
        )
    if not all(one.strip() for one in both):
        raise InputError("the text is empty: give at least one word")
    given, special, places = _tokenize(tokenizer, both)
    text, notes = "\n".join(both), []
    if limit is not None and len(special) > limit:
        kept = _cut(special, limit, keep_end)
        lost = len(special) - len(kept)
        end = "first" if keep_end else "last"
        notes.append((
            f"the model reads {limit} tokens: the {end} {lost} of {len(special)} take no part",
            "explain a shorter text, or parts of it one by one",
        ))  # fmt: skip
        given = {name: values[kept] for name, values in given.items()}
        special, places = special[kept], [places[i] for i in kept.tolist()]
    spans = _find_spans(text, features, places, special)
    owner = _find_owners(text, spans, places, special)
    met = sorted(set(owner.tolist()) - {NOBODY})
    if not met:
        raise InputError(
            "nothing of the text takes part: it holds special tokens alone, or no token of the "
            "given spans"
        )
    renumber = torch.full((len(spans) + 1,), NOBODY)
    renumber[met] = torch.arange(len(met))
    owner, spans = renumber[owner], [spans[i] for i in met]
    start = None if bool((owner == NOBODY).any()) else find_start(tokenizer)
    return Reading(text, tuple(spans), given, owner, tuple(notes), start)


def find_start(tokenizer: Any) -> int | None:
    """What a model reads where nothing is left: the token that texts begin with, or its like."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        if (token := getattr(tokenizer, name, None)) is not None:
            return int(token)
    return None


def find_special_ids(tokenizer: Any) -> set[int]:
    """Tokens that are no part of any text. An unknown word is one, though its token is special."""
    marks = ("bos", "eos", "cls", "sep", "pad", "mask")
    named = {getattr(tokenizer, f"{mark}_token_id", None) for mark in marks}
    unknown = {getattr(tokenizer, "unk_token_id", None)} - named
    return set(tokenizer.all_special_ids) - unknown


Tokens = tuple[dict[str, Tensor], Tensor, list[Span]]


def _tokenize(tokenizer: Any, both: Sequence[str]) -> Tokens:
    """(What the tokenizer gave, which tokens are special, where each stands in the lines)."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in a text: load the "
            "fast tokenizer (AutoTokenizer does by default)"
        )
    try:
        encoded = tokenizer(*both, return_offsets_mapping=True, verbose=False)
        found = dict(encoded)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise KindError(
            f"the tokenizer must be one of Hugging Face's; {type(tokenizer).__name__} could not "
            f"read a text: {error}"
        ) from error
    offsets = found.pop("offset_mapping")
    given = {name: torch.tensor(values, dtype=torch.int64) for name, values in found.items()}
    known = find_special_ids(tokenizer)
    special = torch.tensor([i in known for i in given["input_ids"].tolist()], dtype=torch.bool)
    lines = encoded.sequence_ids() if len(both) > 1 else [0] * len(offsets)
    shift = [len(both[0]) + 1 if line == 1 else 0 for line in lines]
    places = [(int(a) + s, int(b) + s) for (a, b), s in zip(offsets, shift, strict=True)]
    return given, special, places


def _cut(special: Tensor, limit: int, keep_end: bool) -> Tensor:
    """Which tokens are kept: the special ones, and as many of the others as there is room for."""
    ordinary = (~special).nonzero().flatten()
    room = limit - int(special.sum())
    if room < 1:
        raise InputError(f"the model reads {limit} tokens, and special ones take them all")
    chosen = ordinary[-room:] if keep_end else ordinary[:room]
    return torch.cat([special.nonzero().flatten(), chosen]).sort().values


def _find_spans(
    text: str,
    features: str | Sequence[Sequence[int]],
    places: Sequence[Span],
    special: Tensor,
) -> list[Span]:
    if not isinstance(features, str):
        return check_spans(text, features)
    if features == "words":
        return find_words(text)
    if features == "sentences":
        return find_sentences(text)
    own = (strip(text, p) for p, mark in zip(places, special.tolist(), strict=True) if not mark)
    return sorted({place for place in own if place[0] < place[1]})


def _find_owners(
    text: str, spans: Sequence[Span], places: Sequence[Span], special: Tensor
) -> Tensor:
    """The span that holds each token's first character; a blank token goes with the next one."""
    at = {i: k for k, (start, end) in enumerate(spans) for i in range(start, end)}
    marks: list[bool] = special.tolist()
    owners: list[int | None] = []
    for place, mark in zip(places, marks, strict=True):
        start, end = strip(text, place)
        blank = start >= end and not mark
        owners.append(None if blank else NOBODY if mark else at.get(start, NOBODY))
    following: int | None = next((k for k in reversed(owners) if k not in (None, NOBODY)), NOBODY)
    for i in reversed(range(len(owners))):
        if owners[i] is None:
            owners[i] = following
        elif not marks[i]:
            following = owners[i]
    return torch.tensor(owners)


def find_words(text: str) -> list[Span]:
    """Runs without spaces, punctuation with its word; an ideograph is a word of its own."""
    return [found.span() for found in WORD.finditer(text)]


def find_sentences(text: str) -> list[Span]:
    """Sentences, which end with a mark before a space, or with a line; spaces around left out."""
    ends = [found.end() for found in SENTENCE_END.finditer(text)]
    cuts = [0, *ends, len(text)]
    spans = (strip(text, cut) for cut in pairwise(cuts))
    return [(start, end) for start, end in spans if start < end]


def strip(text: str, span: Span) -> Span:
    """A span without the blanks at its ends; of blanks alone, one that ends before it starts."""
    part = text[slice(*span)]
    return span[1] - len(part.lstrip()), span[0] + len(part.rstrip())


def check_spans(text: str, spans: Sequence[Sequence[int]]) -> list[Span]:
    """A caller's own spans in the order of the text; they may not be empty nor overlap."""
    found = []
    for span in spans:
        ends = tuple(span) if isinstance(span, Sequence) and not isinstance(span, str) else ()
        whole = len(ends) == 2 and all(isinstance(end, int) for end in ends)
        if not whole or not 0 <= ends[0] < ends[1] <= len(text):
            raise InputError(
                f"a span is (start, end) in characters, 0 <= start < end <= {len(text)}; got "
                f"{span!r}"
            )
        found.append((ends[0], ends[1]))
    found.sort()
    for (_, end), (start, _) in pairwise(found):
        if start < end:
            raise InputError(
                f"spans may not overlap: one ends at {end}, the next starts at {start}"
            )
    return found
