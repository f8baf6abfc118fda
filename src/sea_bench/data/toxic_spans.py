"""Sentences in which people marked what is toxic (SemEval-2021, task 5)."""

import json
from dataclasses import dataclass
from pathlib import Path

from sea_bench.data.files import SetInfo
from sea_nn.text.reading import Span, find_sentences, find_words

TOXIC = SetInfo(
    name="toxic_spans",
    title="posts in which people marked the toxic characters",
    folder="toxic_spans",
    source="https://github.com/ipavlopoulos/toxic_spans (Pavlopoulos et al., 2021)",
    layout="train.csv and dev.csv with columns spans (a list of character offsets) and text",
    terms="CC0 1.0; the language is offensive: no text may be printed",
)
LEAST, MOST = 4, 64
"""Words of a sentence that is kept."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, its words' spans, and for each word whether people marked most of it.

    ``post`` is the number of the post it stands in.
    """

    text: str
    words: tuple[Span, ...]
    marked: tuple[bool, ...]
    post: int

    @property
    def toxic(self) -> bool:
        """Whether anything in it is marked."""
        return any(self.marked)


def load_toxic_spans(part: str, folder: str | Path | None = None) -> list[Sentence]:
    """Load the sentences of 4 to 64 words of ``part``, "train" or "dev"; no text comes twice.

    Sentences marked in part of a word's characters only, or by less than half of every word, are
    left out.
    """
    place = TOXIC.find(folder)
    sentences: dict[str, Sentence] = {}
    for post, row in enumerate(place.read_table(f"{part}.csv", {"spans": json.loads, "text": str})):
        marks = set(row["spans"])
        for start, end in find_sentences(row["text"]):
            text = row["text"][start:end]
            words = tuple(find_words(text))
            inside = {mark - start for mark in marks if start <= mark < end}
            marked = tuple(_covers(inside, text, word) for word in words)
            if LEAST <= len(words) <= MOST and bool(inside) == any(marked):
                sentences.setdefault(text, Sentence(text, words, marked, post))
    return list(sentences.values())


def _covers(marks: set[int], text: str, word: Span) -> bool:
    """Whether at least half of a word's letters and digits are marked."""
    letters = [i for i in range(*word) if text[i].isalnum()] or list(range(*word))
    return 2 * sum(i in marks for i in letters) >= len(letters)
