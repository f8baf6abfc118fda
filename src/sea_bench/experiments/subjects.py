"""Subjects: single inputs with what a model says of their sets, of pictures and of games alike.

Pages about the learned function go over the same places, a data set with a classifier each; a place
whose data are not there is left out, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_bench.data.games import KINDS, Table, list_games, number_sets, read_game
from sea_bench.experiments.asking import ScoreSets, explain, fill_all, make_score
from sea_bench.experiments.budgets import PLACES, TITLES
from sea_bench.experiments.comparison import Comparison
from sea_bench.experiments.experiment import Compared, Findings, Run, arrange
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.predictions import GRID, GRIDS, spend
from sea_bench.experiments.rivals import draw_sets
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.features import Features
from sea_nn.metrics import Metric

IMAGES = ("fmnist", "vit", "btd", "tiny_imagenet", "imagenet", "resnet50", "pets", "cub")
TUNING = 7  # games of a kind, the first by name, that settings may be chosen by


@dataclass(frozen=True)
class Subject:
    """One input of a place: a model, the input, and what the model says of its sets.

    ``number`` is its place among the others; ``table`` has all answers, where it is a game.
    """

    model: Callable[[Tensor], Tensor]
    x: Tensor
    target: Tensor
    features: Features
    score: ScoreSets
    output: str
    number: int
    table: Table | None = None

    def explain(self, budget: int, seed: int, **how: Any) -> Explanation:
        """SEA's explanation as users have it."""
        return explain(self.model, self.x, self.target, budget=budget, seed=seed, **how)

    def spend(self, count: int, seed: int, **how: Any) -> Explanation:
        """SEA's explanation with so many questions; what its members cost comes on top."""
        how = {"output": self.output, "seed": seed, **how}
        return spend(self.model, self.x, self.target, count, **how)

    def expand(self, sets: Tensor) -> Tensor:
        """Sets of features as ``predict`` takes them."""
        return self.features.expand(sets.to(self.x.device))


def compare_places(
    run: Run,
    names: Sequence[str],
    work: Callable[[Subject], Mapping[str, Tensor]],
    tables: Mapping[str, Sequence[Metric]],
    against: str,
    notes: Sequence[str] = (),
    prefix: str = "",
) -> Findings:
    """Measure every subject of every place, and remember it; a page has some tables a place.

    ``tables`` have metrics by what the table's title ends with; ``work`` gives values, [1] each,
    under "METRIC METHOD" or the other way round, or without the ``prefix`` of that.
    """
    parts, skipped = [], list[str]()
    for name in names:
        title = KINDS[name] if name in KINDS else TITLES[name]
        run.tell(title, 0, run.count)
        try:
            some = list_games_of(name, run.count) if name in KINDS else _list_images(run, name)
        except InputError as error:
            skipped.append(f"left out: {title} ({str(error).partition(':')[0]})")
            continue
        content = [[s.x, s.target, s.score(draw_sets(8, s.features.n, 0)[None])] for s in some]
        found = run.remember_all(
            title,
            {"place": title},
            content,
            lambda number: work(some[number]),  # noqa: B023
        )
        found = {f"{prefix}{key}": values for key, values in found.items()}
        about = f"{len(some)} inputs."
        parts += [
            Compared(arrange(found, metrics), against, f"{title}{end}", about)
            for end, metrics in tables.items()
        ]
    return Findings(parts, [*notes, *skipped])


def _list_images(run: Run, name: str) -> list[Subject]:
    given = {k: v for k, v in PLACES[name].items() if k != "mask"}
    inputs = choose_inputs(
        Comparison(f"of {name}", "", "", **given), run.count, run.device, run.seed
    )
    model, found = inputs.loaded.model, []
    for number in range(len(inputs)):
        batch = inputs.read([number])
        features = Features.of(batch.x).on_grid(GRIDS.get(given["classifier"], GRID))
        fills = fill_all(batch.x, features, "blur")
        score = make_score(model, batch.x, batch.target, features, fills)
        found.append(Subject(model, batch.x, batch.target, features, score, "logits", number))
    return found


def list_games_of(kind: str, count: int, tuning: bool = False) -> list[Subject]:
    """Games of a kind by their place: the first seven are for tuning, results are of the others."""
    paths, found = list_games(kind), []
    for number, path in enumerate((paths[:TUNING] if tuning else paths[TUNING:])[:count]):
        n, table = read_game(path)
        x, target = torch.ones(1, n), torch.tensor([1])
        about = (make_function(table, n), x, target, Features.of(x), _score_game(table))
        found.append(Subject(*about, "probabilities", number, table))
    return found


def make_function(table: Table, n: int) -> Callable[[Tensor], Tensor]:
    """A game as a plain function from features, [N, n], 0 for absent, to probabilities [N, 2]."""
    answers, bits = torch.as_tensor(table), 2 ** torch.arange(n)

    def look_up(x: Tensor) -> Tensor:
        chance = answers[((x > 0.5).long() * bits).sum(1)]
        return torch.stack([1 - chance, chance], 1).to(x.dtype)

    return look_up


def _score_game(table: Table) -> ScoreSets:
    """The same from sets, bool [1, R, n], to answers, [1, R]."""
    return lambda sets: torch.as_tensor(table[number_sets(sets.cpu().numpy())])
