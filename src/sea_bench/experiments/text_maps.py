"""Maps of single texts by many methods, and how well they do: people's marks, curves of words.

Every method gives one number a word, larger for more evidence of the target, and what it cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sea_nn.members.surrogates import draw_coalitions, fit_linear
from sea_nn.model.outputs import Output
from sea_nn.text.absent import Absent
from sea_nn.text.explainer import DEFAULT_METHODS
from sea_nn.text.learn import AskedText, explain_text
from sea_nn.text.members import MEMBERS, Question
from sea_nn.text.model import End, TextModel
from sea_nn.text.reading import Reading

ABSENCES: tuple[Absent, ...] = ("mask", "delete", "pad")
KERNEL_WIDTH = 25.0  # of LIME for texts, with distances in per cent


@dataclass(frozen=True)
class Marked:
    """A text as a model reads it, what is explained of it, and the words that should come first.

    Attributes:
        reading: the text.
        marked: the words that people marked, or that decide by the way the text was made, bool [n].
        target: the class that is explained; of a language model 0, the first of ``ends``.
        ends: of a language model, the continuation that is explained and its rival.
    """

    reading: Reading
    marked: Tensor
    target: int
    ends: tuple[End, ...] = ()


def ask_target(model: TextModel, item: Marked, sets: Tensor) -> Tensor:
    """The probability of the target with only these words left: bool [R, n] -> float64 [R].

    Of a language model it is that of the first continuation if it can only be one of the two.
    """
    columns = model.ask(item.reading, sets, item.ends)
    return columns.double().softmax(1)[:, item.target].cpu()


def explain_by_sea(
    model: TextModel, item: Marked, budget: int, methods: Sequence[str] = DEFAULT_METHODS
) -> Tensor:
    """SEA's order as numbers, the first word largest: [n]."""
    chosen = torch.tensor([[0, 1]] if item.ends else [item.target], device=model.device)
    asked = AskedText(item.reading, lambda _: chosen, lambda _: "", Output("logits"), item.ends)
    found = explain_text(model, asked, methods=methods, options={}, budget=budget)
    order = found.learned.order[0].cpu()
    return torch.empty(len(order), dtype=torch.float64).scatter_(
        0, order, torch.arange(len(order), 0, -1, dtype=torch.float64)
    )


def explain_by_members(model: TextModel, item: Marked) -> dict[str, Tensor]:
    """Each member's signed map, and the default members' mean."""
    maps: dict[str, Tensor] = {}

    def read(columns: Tensor) -> Tensor:
        own = columns[:, item.target]
        return own - columns[:, 1] if item.ends else own

    q = Question(model, item.reading, item.ends, read)
    for name, member in MEMBERS.items():
        maps[name] = member(q).detach().double().cpu()
    heat = [maps[name].abs() / maps[name].abs().max().clamp_min(1e-30) for name in DEFAULT_METHODS]
    maps["Agg-Mean"] = torch.stack(heat).mean(0)
    return maps


def explain_by_lime(model: TextModel, item: Marked, count: int, random: torch.Generator) -> Tensor:
    """LIME for texts with its package's defaults: ridge weights of words, [n].

    The first sample is the whole text; others leave out 1 to n words, as many alike.
    """
    n = len(item.reading)
    sets = torch.ones(count, n, dtype=torch.bool)
    sizes = torch.randint(1, n + 1, (count,), generator=random)
    shuffled = torch.rand(count, n, generator=random).argsort(1).argsort(1)
    sets[1:] = shuffled[1:] >= sizes[1:, None]
    said = ask_target(model, item, sets).numpy()
    on = sets.double().numpy()
    distance = 100 * (1 - np.sqrt(on.mean(1)))  # the cosine of a set and the whole is its root
    weight = np.sqrt(np.exp(-((distance / KERNEL_WIDTH) ** 2)))
    return torch.from_numpy(fit_ridge(on, said, weight))


def fit_ridge(inputs: Any, answers: Any, weights: Any, alpha: float = 1.0) -> Any:
    """The coefficients of weighted ridge regression with an intercept that is not shrunk."""
    share = weights / weights.sum()
    x, y = inputs - share @ inputs, answers - share @ answers
    gram = x.T @ (x * weights[:, None]) + alpha * np.eye(inputs.shape[1])
    return np.linalg.solve(gram, x.T @ (y * weights))


def explain_by_kernel_shap(
    model: TextModel, item: Marked, count: int, random: torch.Generator
) -> Tensor:
    """Kernel SHAP of the probability, [n]; exact where there are no more sets than samples."""
    n = len(item.reading)
    samples = None if n < 12 and 2**n <= count else count
    on, weights = draw_coalitions(n, samples, random)
    said = ask_target(model, item, on.bool()).numpy()
    return torch.from_numpy(fit_linear(on.double().numpy(), said, weights))


def compute_text_maps(
    model: TextModel,
    item: Marked,
    *,
    budgets: Sequence[int] = (34, 128, 512),
    seed: int = 0,
) -> dict[str, Tensor]:
    """Maps of one text by every method, [n] each."""
    random = torch.Generator().manual_seed(seed)
    maps = {f"SEA, {budget}": explain_by_sea(model, item, budget) for budget in budgets}
    maps |= explain_by_members(model, item)
    for budget in budgets:
        maps[f"LIME, {budget}"] = explain_by_lime(model, item, budget, random)
        maps[f"Kernel SHAP, {budget}"] = explain_by_kernel_shap(model, item, budget, random)
    maps["random"] = torch.rand(len(item.reading), generator=random, dtype=torch.float64)
    return maps


def score_text_maps(
    models: Mapping[str, TextModel], item: Marked, maps: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Every metric of every map: by metric, [m].

    ``models`` are by the way of absence; curves are measured in each.
    """
    orders = torch.stack([m.argsort(descending=True, stable=True) for m in maps.values()])
    matches = [match_marks(order, item.marked) for order in orders]
    found = {name: torch.tensor([one[name] for one in matches]).double() for name in matches[0]}
    n = orders.shape[1]
    rank = orders.argsort(1)
    kept = rank[:, None] < torch.arange(1, n)[:, None]  # [m, n - 1, n]
    sets = torch.cat([kept, ~kept], 1).flatten(0, 1)
    once, back = torch.cat([sets, torch.ones(1, n, dtype=torch.bool)]).unique(
        dim=0, return_inverse=True
    )
    for absent, model in models.items():
        said = ask_target(model, item, once)[back]
        whole, curves = said[-1], said[:-1].view(len(orders), 2, n - 1).mean(2)
        found[f"insertion:{absent}"], found[f"deletion:{absent}"] = curves.unbind(1)
        found[f"sufficiency:{absent}"] = whole - curves[:, 0]
        found[f"comprehensiveness:{absent}"] = whole - curves[:, 1]
    return found


def match_marks(order: Tensor, marked: Tensor) -> dict[str, float]:
    """How an order of words, the first most important, matches the marked ones.

    >>> scores = match_marks(torch.tensor([2, 0, 1]), torch.tensor([True, False, True]))
    >>> scores["F1"], scores["AUPRC"]
    (1.0, 1.0)
    """
    hits, count = marked[order].double(), int(marked.sum())
    inside = float(hits[:count].sum())
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return {
        "F1": inside / count,
        "AUPRC": float((precision * hits).sum()) / count,
        "IoU": inside / (2 * count - inside),
    }


def with_absent(model: TextModel, absent: Absent) -> TextModel:
    """The same model, which leaves words out in another way."""
    other = object.__new__(TextModel)
    other.__dict__.update(model.__dict__ | {"absent": absent})
    return other
