"""``sea bench games``: orders of features beside the best order there is.

A game has a real model's answer to every one of the 2^n sets of an input's features, so the best
order can be computed. Models are look-ups, explained through the public call as plain functions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sea_bench.data.games import KINDS, Table, optimum, quality
from sea_bench.experiments.experiment import Compared, Findings, Run, arrange, experiment, quantity
from sea_bench.experiments.metrics import find_metric
from sea_bench.experiments.predictions import OURS, judge, predict_all
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
from sea_bench.experiments.subjects import TUNING, Subject, list_games_of

QUESTIONS = (32, 64, 128, 192)
CHANCE = 64  # random orders that say what 0 is
TRIED = 384  # unseen sets for R²
SAMPLED = {
    "LIME": values_by_lime,
    "Kernel SHAP": values_by_shap,
    "permutations": values_by_permutations,
    "SVARM": values_by_svarm,
}
SHARE = "The quality of an order of the features: 0 is chance, 1 the best order there is."


def order_all(game: Subject, seed: int) -> dict[str, Tensor]:
    """The order of the features by every method, [n] each."""
    n = game.features.n
    orders = {
        f"SEA, {budget}": game.explain(budget, seed, output=game.output).order[0]
        for budget in QUESTIONS
    }
    for name, values in SAMPLED.items():
        for budget in QUESTIONS:
            orders[f"{name}, {budget}"] = rank(values(game.score, 1, n, budget, seed))[0]
    orders["Shapley values, all sets"] = rank(shapley(game.score, 1, n))[0]
    orders["greedy on the model"] = greedy(game.score, 1, n, both=True)[0]
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


def predict_unseen(game: Subject, seed: int) -> dict[str, Tensor]:
    """R² and mean error of every function about sets that nobody asked about, [1] each."""
    n = game.features.n
    tried = draw_sets(min(TRIED, 2**n), n, seed + 1)[None]
    truth, found = game.score(tried), dict[str, Tensor]()
    for count in QUESTIONS:
        known = ask_known(game.score, draw_sets(count, n, seed + 10 + count)[None])
        e = game.explain(count, seed, output=game.output)
        for name, values in predict_all(known, tried, e, e.predict(tried)).items():
            found |= {f"{m} {name}": value for m, value in judge(values, truth, count).items()}
    return found


def measure_games(run: Run, tuning: bool = False) -> Findings:
    """Order every game's features by every method, and predict its unseen answers."""
    games = {kind: list_games_of(kind, run.count, tuning) for kind in KINDS}
    most = max(map(len, games.values()))
    shares, parts = dict[str, Tensor](), list[Compared]()
    unseen = [find_metric(f"{what}@{count}") for what in ("r2", "error") for count in QUESTIONS]
    for kind, title in KINDS.items():
        tables = [game.table for game in games[kind] if game.table is not None]

        def compute(number: int) -> dict[str, Tensor]:
            game, table = games[kind][number], tables[number]  # noqa: B023
            orders = order_all(game, run.seed)
            found = share_of_optimum(table, game.features.n, orders, run.seed)
            values = {f"share {name}": torch.tensor([v]) for name, v in found.items()}
            return values | predict_unseen(game, run.seed)

        content = [[torch.as_tensor(table)] for table in tables]
        found = run.remember_all(title, {"kind": kind}, content, compute)
        for key, values in found.items():
            if key.startswith("share "):  # nan for a kind with fewer games, which no mean counts
                missing = torch.full((most - len(values),), torch.nan)
                shares[key.replace("share", title, 1)] = torch.cat([values, missing])
        parts.append(Compared(arrange(found, unseen), OURS, f"Unseen sets: {title}"))
    scores = arrange(shares, [quantity(title, "higher", SHARE) for title in KINDS.values()])
    ours = [f"SEA, {budget}" for budget in QUESTIONS]
    parts.insert(0, Compared(scores, "SEA, 128", "Share of the exact optimum", ours=ours))
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


@experiment(
    "games", "How near to the best order there is?", "games", n_inputs=8, quick=4, version=2
)
def games(run: Run) -> Findings:
    """For real models whose answer to every set of features is known, the best order is known too.

    How much of the way from a random order to the best one does each method go?
    """
    return measure_games(run)


games_tuning = replace(
    games,
    name="games_tuning",
    title="Games to tune by: how near to the best?",
    question="The same on the games that settings may be chosen by: no result.",
    n_inputs=TUNING,
    work=lambda run: measure_games(run, tuning=True),
)
