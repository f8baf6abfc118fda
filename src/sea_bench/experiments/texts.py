"""Texts: maps of words by many methods, people's marks and the model's own curves of words.

Every method gives one number a word, larger for more evidence of the target; every text is
measured alone and remembered.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_bench.experiments.experiment import Compared, Run, quantity, score_rows
from sea_bench.experiments.rivals import greedy, values_by_lime, values_by_shap
from sea_nn.metrics import Metric
from sea_nn.members.run import run_members
from sea_nn.model.probe import open_model
from sea_nn.sea import SEA
from sea_nn.text.members import MEMBERS, expand
from sea_nn.text.model import Absent, AskedText, End, TextModel
from sea_nn.text.reading import Reading

MARKS = {
    "F1": "Of as many first words as are marked, the share that is marked.",
    "AUPRC": "The area under precision and recall of marked words.",
}
CURVES = {
    "deletion": ("lower", "Mean probability where the first 1, 2, … words are absent."),
    "insertion": ("higher", "Mean probability where only the first 1, 2, … words are left."),
}
Ask = Callable[[Tensor], Tensor]
"""From sets of words, bool [R, n], to the probability of the target, [R]."""


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


def make_ask(model: TextModel, item: Marked) -> Ask:
    """A model's probability of the target with only some words of a text left.

    Of a language model it is that of the first continuation if it can only be one of the two.
    """
    column = _find_column(item)

    def ask(sets: Tensor) -> Tensor:
        said = model.ask(item.reading, sets, item.ends)
        return said.double().softmax(1)[:, column].cpu()

    return ask


def _find_column(item: Marked) -> int:
    """The column of the target in what the model says."""
    return 0 if isinstance(item.target, tuple) else item.target


def explain_by_sea(model: TextModel, tokenizer: Any, item: Marked, budget: int) -> Tensor:
    """SEA's order as numbers, the first word largest: [n]."""
    sea = SEA.for_text(model.module, tokenizer, budget=budget, absent=model.absent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        order = sea.explain([item.reading.text], target=item.target).order[0].cpu()
    return (len(order) - order.argsort()).double()


def explain_by_members(model: TextModel, item: Marked) -> dict[str, Tensor]:
    """Each member's signed map, [n]."""

    target = (0, 1) if item.ends else _find_column(item)
    asked = AskedText(model, item.reading, target, item.ends)
    x = torch.ones(1, len(item.reading), device=model.device)
    with open_model(asked, x, target, output="logits") as probe:
        found = run_members(probe, [expand(tuple(MEMBERS))])
    return {name: values[0].double().cpu() for name, values in found.maps.items()}


def compute_text_maps(
    model: TextModel, tokenizer: Any, item: Marked, budgets: Sequence[int], seed: int
) -> dict[str, Tensor]:
    """Maps of one text by every method, [n] each."""
    ask, n = make_ask(model, item), len(item.reading)

    def score(sets: Tensor) -> Tensor:
        return ask(sets[0])[None]

    maps = {f"SEA, {b}": explain_by_sea(model, tokenizer, item, b) for b in budgets}
    maps |= explain_by_members(model, item)
    for budget in budgets:
        maps[f"LIME, {budget}"] = values_by_lime(score, 1, n, budget, seed)[0]
        maps[f"Kernel SHAP, {budget}"] = values_by_shap(score, 1, n, budget, seed)[0]
    maps["greedy on the model"] = (n - greedy(score, 1, n)[0].argsort()).double()
    random = torch.Generator().manual_seed(seed)
    return maps | {"random": torch.rand(n, generator=random, dtype=torch.float64)}


def score_text_maps(
    asks: Mapping[str, Ask], item: Marked, maps: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Every metric of every map, [1] each, under "metric map"; curves by each way of absence."""
    found: dict[str, Tensor] = {}
    for name, values in maps.items():
        order = values.argsort(descending=True, stable=True)
        for metric, value in match_marks(order, item.marked).items():
            found[f"{metric} {name}"] = torch.tensor([value], dtype=torch.float64)
        kept = order.argsort() < torch.arange(1, len(order))[:, None]
        for absent, ask in asks.items():
            found[f"insertion:{absent} {name}"] = ask(kept).mean(0, keepdim=True)
            found[f"deletion:{absent} {name}"] = ask(~kept).mean(0, keepdim=True)
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
    models: Mapping[str, TextModel],
    tokenizer: Any,
    budgets: Sequence[int],
    settings: Mapping[str, object],
) -> Compared:
    """The table of all texts; maps are of the first model, curves of all, by way of absence."""
    found = []
    first = next(iter(models.values()))
    for number, item in enumerate(items):
        run.tell(f"text {number + 1}", number, len(items))

        def compute(item: Marked = item) -> dict[str, Tensor]:
            maps = compute_text_maps(first, tokenizer, item, budgets, run.seed)
            asks = {absent: make_ask(model, item) for absent, model in models.items()}
            return score_text_maps(asks, item, maps)

        told = {**settings, "target": item.target, "ends": item.ends, "budgets": list(budgets)}
        content = [item.reading.given["input_ids"], item.marked]
        found.append(run.remember(told, 0, content, compute))
    metrics = list_metrics(models)
    rows: dict[str, dict[str, Tensor]] = {}
    for key in found[0]:
        metric, _, name = key.partition(" ")
        rows.setdefault(name, {})[metric] = torch.cat([one[key] for one in found])
    note = "Numbers after a name are model evaluations a text."
    return Compared(score_rows(rows, metrics), "SEA, 128", note=note)


def list_metrics(absences: Mapping[str, object]) -> list[Metric]:
    """Marks, and the curves by each way in which words are absent."""
    metrics = [quantity(name, "higher", said, (0.0, 1.0)) for name, said in MARKS.items()]
    for name, (direction, said) in CURVES.items():
        for absent in absences:
            better = "lower" if direction == "lower" else "higher"
            metrics.append(quantity(f"{name}:{absent}", better, said, (0.0, 1.0)))  # type: ignore[arg-type]
    return metrics


def with_absent(model: TextModel, absent: Absent) -> TextModel:
    """The same model, which leaves words out in another way."""
    other = object.__new__(TextModel)
    other.__dict__.update(model.__dict__ | {"absent": absent})
    return other
