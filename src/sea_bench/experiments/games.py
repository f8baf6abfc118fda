"""``sea bench games``: orders of features beside the best order there is.

A game has a real model's answer to every one of the 2^n sets of an input's features, so the best
order can be computed. Models are look-ups, explained through the public call as plain functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sea_bench.data.games import KINDS, Table, list_games, number_sets, optimum, quality, read_game
from sea_bench.experiments.asking import ScoreSets, explain
from sea_bench.experiments.experiment import (
    Compared,
    Findings,
    Measurement,
    Run,
    quantity,
    score_rows,
)
from sea_bench.experiments.predictions import (
    OURS,
    PREDICTED,
    describe_prediction,
    judge,
    predict_all,
)
from sea_bench.experiments.rivals import (
    ask_known,
    draw_sets,
    greedy,
    random_order,
    rank,
    shapley,
    values_by_lime,
    values_by_permutations,
    values_by_shap,
    values_by_svarm,
)

QUESTIONS = (32, 64, 128, 192)
TUNING = 7  # games of a kind, the first by name, that settings may be chosen by
CHANCE = 64  # random orders that say what 0 is
TRIED = 384  # unseen sets for R²
SAMPLED = {
    "LIME": values_by_lime,
    "Kernel SHAP": values_by_shap,
    "permutations": values_by_permutations,
    "SVARM": values_by_svarm,
}
SHARE = "The quality of an order of the features: 0 is chance, 1 the best order there is."


def make_function(table: Table, n: int) -> Callable[[Tensor], Tensor]:
    """A game as a plain function from features, [N, n], 0 for absent, to probabilities [N, 2]."""
    answers, bits = torch.as_tensor(table), 2 ** torch.arange(n)

    def look_up(x: Tensor) -> Tensor:
        chance = answers[((x > 0.5).long() * bits).sum(1)]
        return torch.stack([1 - chance, chance], 1).to(x.dtype)

    return look_up


def make_score(table: Table) -> ScoreSets:
    """The same for the rivals: from sets, bool [1, R, n], to answers, [1, R]."""
    return lambda sets: torch.as_tensor(table[number_sets(sets.cpu().numpy())])


def order_all(table: Table, n: int, seed: int) -> dict[str, Tensor]:
    """The order of the features by every method, [n] each."""
    model, score, whole = make_function(table, n), make_score(table), torch.ones(1, n)
    orders: dict[str, Tensor] = {}
    for budget in QUESTIONS:
        e = explain(
            model, whole, torch.tensor([1]), budget=budget, output="probabilities", seed=seed
        )
        orders[f"SEA, {budget}"] = e.order[0]
    for name, values in SAMPLED.items():
        for budget in QUESTIONS:
            orders[f"{name}, {budget}"] = rank(values(score, 1, n, budget, seed))[0]
    orders["Shapley values, all sets"] = rank(shapley(score, 1, n))[0]
    orders["greedy on the model"] = greedy(score, 1, n, both=True)[0]
    orders["random order"] = random_order(1, n, seed)[0]
    return orders


def share_of_optimum(
    table: Table, n: int, orders: dict[str, Tensor], seed: int
) -> dict[str, float]:
    """Each order's quality, 0 for the mean of random orders and 1 for the best order there is."""
    random = np.random.default_rng(seed)
    chance = float(
        np.mean([quality(table, n, random.permutation(n).tolist()) for _ in range(CHANCE)])
    )
    best = optimum(table, n)
    return {
        name: (quality(table, n, order.tolist()) - chance) / (best - chance)
        for name, order in orders.items()
    }


def predict_unseen(table: Table, n: int, seed: int) -> dict[str, dict[str, Tensor]]:
    """R² and mean error of every function about sets that nobody asked about, [1] each."""
    model, score, whole = make_function(table, n), make_score(table), torch.ones(1, n)
    tried = draw_sets(min(TRIED, 2**n), n, seed + 1)[None]
    truth, rows = score(tried), dict[str, dict[str, Tensor]]()
    for count in QUESTIONS:
        e = explain(
            model, whole, torch.tensor([1]), budget=count, output="probabilities", seed=seed
        )
        rows[OURS] = {**rows.get(OURS, {}), **judge(e.predict(tried), truth, count)}
        known = ask_known(score, draw_sets(count, n, seed + 10 + count)[None])
        for name, said in predict_all(known, tried).items():
            rows[name] = {**rows.get(name, {}), **judge(said, truth, count)}
    return rows


def choose_games(kind: str, count: int, tuning: bool, folder: Path | None = None) -> list[Path]:
    """Games by their place: the first seven are for tuning, results are of the others."""
    found = list_games(kind, folder)
    return (found[:TUNING] if tuning else found[TUNING:])[:count]


def measure_games(run: Run, tuning: bool = False) -> Findings:
    """Order every game's features by every method, and predict its unseen answers."""
    kinds = {kind: choose_games(kind, run.count, tuning) for kind in KINDS}
    columns: dict[str, dict[str, Tensor]] = {}
    parts: list[Compared] = []
    done = 0
    predicted: dict[str, list[dict[str, Tensor]]] = {}
    for kind, paths in kinds.items():
        for number, path in enumerate(paths):
            run.tell(f"{kind} {path.stem}", done, sum(map(len, kinds.values())))
            n, table = read_game(path)

            def compute(n: int = n, table: Table = table) -> dict[str, Tensor]:
                shares = share_of_optimum(table, n, order_all(table, n, run.seed), run.seed)
                found = {f"share {name}": torch.tensor([v]) for name, v in shares.items()}
                for name, row in predict_unseen(table, n, run.seed).items():
                    found |= {f"{metric} {name}": value for metric, value in row.items()}
                return found

            found = run.remember({"kind": kind}, number, [torch.as_tensor(table)], compute)
            predicted.setdefault(kind, []).append(found)
            done += 1
    for kind, title in KINDS.items():
        games = predicted[kind]
        columns[title] = {
            key.removeprefix("share "): torch.cat([one[key] for one in games])
            for key in games[0]
            if key.startswith("share ")
        }
    most = max(map(len, kinds.values()))
    rows = {
        name: {title: _pad(values[name], most) for title, values in columns.items()}
        for name in next(iter(columns.values()))
    }
    metrics = [quantity(title, "higher", SHARE) for title in columns]
    scores = score_rows(rows, metrics)
    ours = [f"SEA, {budget}" for budget in QUESTIONS]
    parts.append(Compared(scores, "SEA, 128", "Share of the exact optimum", ours=ours))
    for kind, title in KINDS.items():
        rows = _collect(predicted[kind])
        metrics = [
            describe_prediction(f"{what}@{count}") for what in PREDICTED for count in QUESTIONS
        ]
        parts.append(Compared(score_rows(rows, metrics), OURS, f"Unseen sets: {title}"))
    side = f"the first {TUNING}, for tuning," if tuning else f"those after the first {TUNING}"
    notes = [
        f"games: {side} of each kind by name; the other ones are kept apart",
        "an order's quality is the mean over k of p(only its first k left) - p(its first k "
        "removed); its share is (quality - chance) / (best - chance), chance the mean of "
        f"{CHANCE} random orders, best found by dynamic programming over all sets",
        "numbers after a name are evaluations; greedy on the model takes n (n + 1), Shapley values "
        "all 2^n; SEA is the public call on a plain function, with checks within its budget",
        "permutations and SVARM are plain forms of what the library shapiq approximates Shapley "
        "values by",
        "answers of the sentiment classifier, from -1 to 1, are brought to 0 to 1",
    ]
    return Findings(parts, notes, most)


def _pad(values: Tensor, count: int) -> Tensor:
    """Values [N] of a kind with fewer games than another: nan, which no mean counts."""
    return torch.cat([values.double(), torch.full((count - len(values),), torch.nan).double()])


def _collect(games: list[dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Values by function and metric, [N] each."""
    rows: dict[str, dict[str, Tensor]] = {}
    for key in games[0]:
        metric, _, name = key.partition(" ")
        if metric != "share":
            rows.setdefault(name, {})[metric] = torch.cat([one[key] for one in games])
    return rows


GAMES = Measurement(
    "games",
    "How near to the best order there is?",
    "For real models whose answer to every set of features is known, the best order is known too. "
    "How much of the way from a random order to the best one does each method go?",
    "games",
    n_inputs=8,
    quick=4,
    version=2,
    work=measure_games,
)
TUNING_GAMES = Measurement(
    "games_tuning",
    "How near to the best order there is? Games to tune by",
    "The same on the games that settings may be chosen by: no result.",
    "games",
    n_inputs=TUNING,
    quick=4,
    version=2,
    work=partial(measure_games, tuning=True),
)
