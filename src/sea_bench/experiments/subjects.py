"""Subjects: single inputs with what a model says of their sets, of pictures and of games alike.

Pages about the learned function go over the same places, a data set with a classifier each; a place
whose data are not there is left out, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sea_bench.data.games import KINDS, Table, read_game
from sea_bench.experiments.asking import ScoreSets, fill_all, make_score
from sea_bench.experiments.budgets import PLACES, TITLES
from sea_bench.experiments.comparison import Comparison
from sea_bench.experiments.experiment import Run
from sea_bench.experiments.games import choose_games, make_function
from sea_bench.experiments.games import make_score as make_game_score
from sea_bench.experiments.inputs import choose_inputs
from sea_bench.experiments.predictions import GRID
from sea_bench.experiments.rivals import draw_sets
from sea_nn.errors import InputError
from sea_nn.features import Features

IMAGES = ("fmnist", "vit", "btd", "tiny_imagenet", "imagenet", "resnet50", "pets", "cub")


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


def list_subjects(
    run: Run, names: Sequence[str], skipped: list[str]
) -> Iterator[tuple[str, str, list[Subject]]]:
    """Yield places by name and title with their subjects; ``skipped`` gets what has no data."""
    for name in names:
        title = KINDS[name] if name in KINDS else TITLES[name]
        run.tell(title, 0, run.count)
        try:
            found = _list_games(run, name) if name in KINDS else _list_images(run, name)
        except InputError as error:
            skipped.append(f"left out: {title} ({str(error).partition(':')[0]})")
            continue
        yield name, title, found


def _list_images(run: Run, name: str) -> list[Subject]:
    given = {k: v for k, v in PLACES[name].items() if k != "mask"}
    inputs = choose_inputs(
        Comparison(f"of {name}", "", "", **given), run.count, run.device, run.seed
    )
    model, found = inputs.loaded.model, []
    for number in range(len(inputs)):
        batch = inputs.read([number])
        features = Features.of(batch.x).on_grid(GRID, batch.x.device)
        fills = fill_all(batch.x, features, "blur")
        score = make_score(model, batch.x, batch.target, features, fills)
        found.append(Subject(model, batch.x, batch.target, features, score, "logits", number))
    return found


def _list_games(run: Run, kind: str) -> list[Subject]:
    found = []
    for number, path in enumerate(choose_games(kind, run.count, tuning=False)):
        n, table = read_game(path)
        x, score = torch.ones(1, n), make_game_score(table)
        about = (make_function(table, n), x, torch.tensor([1]), Features.of(x), score)
        found.append(Subject(*about, "probabilities", number, table))
    return found


def remember_all(
    run: Run,
    title: str,
    subjects: list[Subject],
    work: Callable[[Subject], dict[str, Tensor]],
) -> dict[str, Tensor]:
    """Results of all subjects of a place, [N] each, remembered one by one."""
    found = []
    for one in subjects:
        run.tell(title, one.number, len(subjects))
        content = [one.x, one.target, one.score(draw_sets(8, one.features.n, 0)[None])]
        compute = partial(work, one)
        found.append(run.remember({"place": title}, one.number, content, compute))
    keys = list(dict.fromkeys(key for row in found for key in row))
    missing = torch.full((1,), torch.nan, dtype=torch.float64)
    return {key: torch.cat([row.get(key, missing).flatten() for row in found]) for key in keys}
