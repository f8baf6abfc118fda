"""Every experiment by name. ``sea bench`` lists and runs them."""

import difflib

from sea_bench.experiments import brains, columns, games, setups, spans, sureness, texts
from sea_bench.experiments.budgets import BUDGET_EXPERIMENTS
from sea_bench.experiments.experiment import Experiment
from sea_bench.experiments.paper_tables import PAPER_EXPERIMENTS
from sea_bench.experiments.submodular import submodular
from sea_bench.speed import core, datasets, explaining, faults
from sea_nn.errors import InputError

_ALL: tuple[Experiment, ...] = (
    *(games.games, games.games_tuning, submodular),
    *(sureness.coverage, sureness.trust, sureness.steady),
    *BUDGET_EXPERIMENTS,
    *PAPER_EXPERIMENTS,
    *(columns.tables, columns.groups, spans.series, brains.volumes, brains.several),
    *(texts.text, texts.language, setups.checks),
    *(core.core, explaining.learning, explaining.members, explaining.metrics, explaining.text),
    *(datasets.datasets, faults.faults),
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
