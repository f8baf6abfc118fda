r"""The parts of a text that are explained, as spans of characters (start, end).

>>> text = "Not bad. Not good either!"
>>> [text[a:b] for a, b in find_words(text)]
['Not', 'bad.', 'Not', 'good', 'either!']
>>> [text[a:b] for a, b in find_sentences(text)]
['Not bad.', 'Not good either!']
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from sea_nn.errors import InputError

Span = tuple[int, int]

IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+")
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+|\n+")


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
