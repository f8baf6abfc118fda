"""Every experiment by name. ``sea bench`` runs them."""

import difflib
from collections.abc import Iterable

from sea_bench.experiments.brains import SEVERAL, VOLUMES
from sea_bench.experiments.column_groups import GROUPS
from sea_bench.experiments.columns import TABLES
from sea_bench.experiments.experiment import Experiment
from sea_bench.experiments.language import LANGUAGE
from sea_bench.experiments.learned import LEARNED_EXPERIMENTS
from sea_bench.experiments.paper_tables import PAPER_EXPERIMENTS
from sea_bench.experiments.patches import PATCHES
from sea_bench.experiments.spans import SERIES
from sea_bench.experiments.studies import Study
from sea_bench.experiments.text import TEXT
from sea_bench.experiments.topics import TOPIC_TEXTS
from sea_bench.experiments.transformer import TRANSFORMER_EXPERIMENTS
from sea_nn.errors import InputError

_ALL = (*LEARNED_EXPERIMENTS, *TRANSFORMER_EXPERIMENTS, *PAPER_EXPERIMENTS)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _ALL}
_KINDS = (TABLES, GROUPS, SERIES, TEXT, TOPIC_TEXTS, LANGUAGE, VOLUMES, SEVERAL, PATCHES)
STUDIES: dict[str, Study] = {one.name: one for one in _KINDS}
"""Results on inputs that are no images."""


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
    raise InputError(
        f"there is no experiment {name!r}{_guess(name, EXPERIMENTS)}; "
        f"experiments: {', '.join(EXPERIMENTS)}"
    )


def _guess(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
