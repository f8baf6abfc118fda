r"""How a model reads a text: its tokens, and the feature (word, sentence) that each belongs to.

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
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError

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
        note: what the user should know.
    """

    text: str
    spans: tuple[Span, ...]
    given: Mapping[str, Tensor]
    owner: Tensor
    note: str = ""

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def words(self) -> list[str]:
        """The features' own text."""
        return [self.text[start:end] for start, end in self.spans]


def read_words(words: str | Sequence[str]) -> Reading:
    """A text, or its words, for a function of words: there are no tokens.

    >>> read_words(["not", "bad"]).text
    'not bad'
    """
    read = isinstance(words, Sequence) and all(isinstance(word, str) for word in words)
    if not read or not "".join(words).strip():
        raise InputError(f"a text is a string or a list of its words, not empty; got {words!r}")
    if isinstance(words, str):
        text, spans = words, find_words(words)
    else:
        text = " ".join(words)
        ends = accumulate(len(word) + 1 for word in words)
        spans = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
    return Reading(text, tuple(spans), {}, torch.empty(0))


def read_text(
    tokenizer: Any,
    text: str | tuple[str, str],
    features: str | Sequence[Span] = "words",
    *,
    limit: int | None = None,
    keep_end: bool = False,
) -> Reading:
    """Tokenize a text and find out which feature each token belongs to.

    Args:
        tokenizer: of Hugging Face.
        text: one text, or a pair that the tokenizer joins (question and document): it counts as one
            text of two lines.
        features: one of ``FEATURES``, or spans (start, end) in characters.
        limit: the most tokens that the model reads; a longer text is cut.
        keep_end: cut the beginning, not the end.
    """
    both = text if isinstance(text, tuple) and len(text) == 2 else (text,)
    if not all(isinstance(one, str) and one.strip() for one in both):
        raise InputError(
            f"a text is a string, or a pair (question, document), and not empty; got {text!r}"
        )
    given, places, special = _tokenize(tokenizer, both)
    text, note = "\n".join(both), ""
    if limit is not None and len(special) > limit:
        kept = _cut(special, limit, keep_end)
        end, lost = "first" if keep_end else "last", len(special) - len(kept)
        note = f"the model reads {limit} tokens: the {end} {lost} of {len(special)} take no part"
        given = {name: values[kept] for name, values in given.items()}
        places, special = [places[i] for i in kept], [special[i] for i in kept]
    if not isinstance(features, str):
        spans = check_spans(text, features)
    elif features == "tokens":
        own = (strip(text, p) for p, mark in zip(places, special, strict=True) if not mark)
        spans = sorted({place for place in own if place[0] < place[1]})
    else:
        spans = find_words(text) if features == "words" else find_sentences(text)
    owners = _find_owners(text, spans, places, special)
    met = sorted({NOBODY, *owners})  # nobody first
    if len(met) == 1:
        raise InputError("nothing of the text takes part: it has special tokens alone")
    owner = torch.tensor([met.index(k) - 1 for k in owners])
    return Reading(text, tuple(spans[k] for k in met[1:]), given, owner, note)


def _tokenize(
    tokenizer: Any, both: Sequence[str]
) -> tuple[dict[str, Tensor], list[Span], list[bool]]:
    """What the tokenizer gave, where each token stands in the lines, and which are special."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in a text: load the "
            "fast tokenizer (AutoTokenizer does by default)"
        )
    wanted = {"return_offsets_mapping": True, "return_attention_mask": True}
    encoded = tokenizer(*both, **wanted, verbose=False)
    found = dict(encoded)
    offsets = found.pop("offset_mapping")
    # Special tokens are no part of any text; an unknown word is one, though its token is special.
    marks = ("bos", "eos", "cls", "sep", "pad", "mask")
    named = {getattr(tokenizer, f"{mark}_token_id", None) for mark in marks}
    known = set(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} - named)
    lines = encoded.sequence_ids() if len(both) > 1 else [0] * len(offsets)
    shift = [len(both[0]) + 1 if line == 1 else 0 for line in lines]
    places = [(int(a) + s, int(b) + s) for (a, b), s in zip(offsets, shift, strict=True)]
    given = {name: torch.tensor(values, dtype=torch.int64) for name, values in found.items()}
    return given, places, [token in known for token in found["input_ids"]]


def _cut(special: Sequence[bool], limit: int, keep_end: bool) -> list[int]:
    """Which tokens are kept: the special ones, and as many of the others as there is room for."""
    ordinary = [i for i, mark in enumerate(special) if not mark]
    room = limit - sum(special)
    if room < 1:
        raise InputError(f"the model reads {limit} tokens, and special ones take them all")
    chosen = set(ordinary[-room:] if keep_end else ordinary[:room])
    return [i for i, mark in enumerate(special) if mark or i in chosen]


def _find_owners(
    text: str, spans: Sequence[Span], places: Sequence[Span], special: Sequence[bool]
) -> list[int]:
    """The span that holds each token's first character; a blank token goes with the next one."""
    at = {i: k for k, span in enumerate(spans) for i in range(*span)}
    at[len(text)] = len(spans) - 1
    for place, mark in zip(places, special, strict=True):
        if mark:  # what is written like a special token is no word
            at |= dict.fromkeys(range(*place), NOBODY)
    owners = []
    for (start, _), mark in zip(places, special, strict=True):
        while start < len(text) and text[start].isspace():
            start += 1
        owners.append(NOBODY if mark else at.get(start, NOBODY))
    return owners


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


def check_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """A caller's own spans in the order of the text; they may not be empty nor overlap."""
    found = []
    for span in spans:
        match span:
            case (int(start), int(end)) if 0 <= start < end <= len(text):
                found.append((start, end))
            case _:
                raise InputError(
                    f"a span is (start, end) in characters, 0 <= start < end <= {len(text)}; got "
                    f"{span!r}"
                )
    found.sort()
    for one, other in pairwise(found):
        if other[0] < one[1]:
            raise InputError(f"spans may not overlap, as {one} and {other} do")
    return found
