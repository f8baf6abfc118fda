"""An experiment: what is asked, how it is measured, and the page of ``docs/results`` it writes.

Everything the project measures is an ``Experiment``: tables of the paper, maps by budget, tables,
series and texts, speed, faults of data sets. Most are a function from a ``Run`` to ``Findings``,
declared by ``experiment``; ``Comparison`` declares those that compare maps of images.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import cleandoc
from typing import Any, Literal

import torch
from torch import Tensor

from sea_bench.experiments.store import Store, make_key
from sea_bench.training import describe_machine
from sea_nn.errors import InputError
from sea_nn.metrics import MapBatch, Metric, MetricValues, Scores

Tell = Callable[[str, int, int], None]
"""Is told what is being done, how many inputs are done, and how many there are."""
Rows = Mapping[str, Mapping[str, Tensor]]
"""Values [N] by method and metric."""
PRICES = ("evaluations", "seconds")
"""What a map costs: no score to be best in."""
LEARNED_VERSION = 4
"""Of the function learned from answers: raised when its numbers change, so that what was measured
of maps with a budget counts no more and what was measured of all others still does."""


@dataclass(frozen=True)
class Table:
    """A table of a page, in words: rows of cells under a heading."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Compared:
    """Scores of methods on inputs, which a page shows as a table with intervals and marks.

    Attributes:
        scores: of methods (rows) by metrics (columns).
        against: the method that the others are compared with.
        title: heads the table; none where a page has one table.
        note: stands under the heading.
        ours: methods whose distance to the best of all others is said metric by metric.
        aside: methods that stand in the table and do not compete for the best.
        paper: the paper's figures by metric and method.
        names: what identifies each input, and its class, where there is more than a number.
    """

    scores: Scores
    against: str
    title: str = ""
    note: str = ""
    ours: Sequence[str] = ()
    aside: Sequence[str] = ()
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    names: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Findings:
    """What an experiment found.

    Attributes:
        parts: its tables, in the order of the page.
        notes: how it was made, a sentence or two each.
        n_inputs: how many inputs there were, where they are not as many as wanted.
    """

    parts: Sequence[Table | Compared]
    notes: Sequence[str] = ()
    n_inputs: int | None = None


@dataclass(frozen=True)
class Run:
    """One run of an experiment, of which name and version are given.

    Attributes:
        count: how many inputs are wanted.
        store: remembers results of single inputs.
        seed: of the inputs' order and of every draw.
        device: where models work.
        fresh: measure again what is remembered.
        ours: measure only maps with a budget.
        tell: is told how far it is.
        machines: which machines measured how many of the inputs.
        reused: the number of inputs that were remembered, under "inputs".
    """

    name: str
    version: int
    count: int
    store: Store
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    fresh: bool = False
    ours: bool = False
    tell: Tell = lambda text, done, total: None
    machines: Counter[str] = field(default_factory=Counter)
    reused: Counter[str] = field(default_factory=Counter)

    @property
    def here(self) -> str:
        """This machine."""
        return f"{describe_machine(self.device)} with torch {torch.__version__}"

    def make_key(self, settings: Mapping[str, Any], number: int, *tensors: Tensor) -> str:
        """The name of one input's result: the experiment's name and version, settings, content."""
        told = {"experiment": self.name, "version": self.version, "seed": self.seed, **settings}
        return make_key(told, number, *tensors)

    def remember(
        self,
        settings: Mapping[str, Any],
        number: int,
        tensors: Sequence[Tensor],
        compute: Callable[[], Mapping[str, Tensor]],
    ) -> dict[str, Tensor]:
        """Return one input's result from the store, or compute it and store it.

        ``settings`` and ``tensors`` are what determines it beside name, version and seed.
        """
        key = self.make_key({**settings, "learned": LEARNED_VERSION}, number, *tensors)
        found = None if self.fresh else self.store.read(key)
        self.reused["inputs"] += found is not None
        if found is None:
            new = compute()
            self.store.write(key, new, {"machine": self.here, "names": list(new)})
            found = self.store.read(key)
        assert found is not None  # it was just written
        values, facts = found
        self.machines[facts["machine"]] += 1
        return {name: values[name] for name in facts["names"]}

    def remember_all(
        self,
        title: str,
        settings: Mapping[str, Any],
        content: Sequence[Sequence[Tensor]],
        compute: Callable[[int], Mapping[str, Tensor]],
    ) -> dict[str, Tensor]:
        """Results of inputs that are remembered one by one: values by name, [N].

        ``content`` has the tensors that determine each, and ``compute`` its values, [1] each.
        """
        found = []
        for number, tensors in enumerate(content):
            self.tell(title, number, len(content))
            found.append(self.remember(settings, number, tensors, partial(compute, number)))
        return stack_results(found)


@dataclass(frozen=True)
class Experiment:
    """What is asked, and of how much.

    Attributes:
        name: what ``sea bench`` calls it; its page has this name.
        title: heads the page.
        question: what it asks, for readers of the page.
        data: what it is measured on.
        n_inputs: how many inputs a published result has, if the data have as many.
        quick: how many ``sea bench NAME`` takes where no number is given.
        version: raised by hand when its numbers can no longer be those that are remembered.
        work: measures it, unless it is a comparison.
    """

    name: str
    title: str
    question: str
    data: str
    n_inputs: int = 200
    quick: int = 8
    version: int = 1
    work: Callable[[Run], Findings] = field(default=lambda run: Findings(()), kw_only=True)


def experiment(
    name: str, title: str, data: str, **counts: int
) -> Callable[[Callable[[Run], Findings]], Experiment]:
    """Declare an experiment by its work, a function whose docstring is the question."""

    def declare(work: Callable[[Run], Findings]) -> Experiment:
        question = " ".join(cleandoc(work.__doc__ or "").split())
        return Experiment(name, title, question, data, work=work, **counts)

    return declare


def quantity(
    name: str,
    direction: Literal["higher", "lower"],
    measures: str,
    bounds: tuple[float, float] = (-torch.inf, torch.inf),
    middle: Literal["mean", "median"] = "mean",
) -> Metric:
    """A metric that an experiment measures itself, where others are computed from maps."""

    def refuse(batch: MapBatch) -> MetricValues:
        raise InputError(f"{name} is measured by its own experiment, not scored from maps")

    return Metric(name, direction, bounds, measures, frozenset(), refuse, middle=middle)


def stack_results(found: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Values of inputs, [1] each, as [N]; nan where an input has none of a name."""
    missing = torch.full((1,), torch.nan, dtype=torch.float64)
    keys = dict.fromkeys(key for row in found for key in row)
    return {key: torch.cat([row.get(key, missing).flatten() for row in found]) for key in keys}


def arrange(found: Mapping[str, Tensor], metrics: Sequence[Metric]) -> Scores:
    """Scores from values [N] under "METRIC METHOD" or "METHOD METRIC"; other names are left out."""
    rows: dict[str, dict[str, Tensor]] = {}
    for name in (metric.name for metric in metrics):
        for key, values in found.items():
            method = key.removeprefix(f"{name} ").removesuffix(f" {name}")
            if method != key:
                rows.setdefault(method, {})[name] = values
    return score_rows(rows, metrics)


def score_rows(rows: Rows, metrics: Sequence[Metric]) -> Scores:
    """Scores of methods by metrics; nan where a method has none."""
    some = next(values for row in rows.values() for values in row.values())
    missing, by_name = torch.full_like(some, torch.nan), {one.name: one for one in metrics}
    columns = {name: [row.get(name, missing) for row in rows.values()] for name in by_name}
    values = {name: torch.stack([v.double().cpu() for v in c], 1) for name, c in columns.items()}
    return Scores(tuple(rows), by_name, values)
