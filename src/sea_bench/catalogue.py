"""Every experiment by name. ``sea bench`` lists and runs them."""

import difflib

from sea_bench.experiments.brains import SEVERAL, VOLUMES
from sea_bench.experiments.budgets import BUDGET_EXPERIMENTS
from sea_bench.experiments.columns import GROUPS, TABLES
from sea_bench.experiments.experiment import Experiment
from sea_bench.experiments.games import GAMES, TUNING_GAMES
from sea_bench.experiments.paper_tables import PAPER_EXPERIMENTS
from sea_bench.experiments.setups import CHECKS
from sea_bench.experiments.spans import SERIES
from sea_bench.experiments.submodular import SUBMODULAR_COST
from sea_bench.experiments.sureness import SURENESS_EXPERIMENTS
from sea_bench.experiments.text_pages import TEXT_EXPERIMENTS
from sea_bench.speed.core import CORE
from sea_bench.speed.datasets import DATASETS
from sea_bench.speed.explaining import LEARNING, MEMBERS, TEXT
from sea_bench.speed.faults import SOAK
from sea_bench.speed.metrics import METRICS
from sea_nn.errors import InputError

_ALL: tuple[Experiment, ...] = (
    GAMES,
    TUNING_GAMES,
    SUBMODULAR_COST,
    *SURENESS_EXPERIMENTS,
    *BUDGET_EXPERIMENTS,
    *PAPER_EXPERIMENTS,
    *(TABLES, GROUPS, SERIES, VOLUMES, SEVERAL),
    *TEXT_EXPERIMENTS,
    CHECKS,
    *(CORE, LEARNING, MEMBERS, METRICS, TEXT, DATASETS, SOAK),
)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _ALL}


def find_experiments(name: str) -> list[Experiment]:
    """Return the experiment of this name, all of a group, or, for "all", every one.

    A group is named by what its names start with, up to "_".

    >>> [one.name for one in find_experiments("mass")]
    ['mass_imagenet', 'mass_pets', 'mass_cub', 'mass_lgg']
    """
    if name == "all":
        return list(_ALL)
    if name in EXPERIMENTS:
        return [EXPERIMENTS[name]]
    group = [one for one in _ALL if one.name.startswith(f"{name.rstrip('_')}_")]
    if group:
        return group
    near = difflib.get_close_matches(name, list(EXPERIMENTS), 1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(
        f"there is no experiment {name!r}{guess}; experiments: {', '.join(EXPERIMENTS)}"
    )
