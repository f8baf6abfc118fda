"""``sea bench tables``: orders of columns on scikit-learn's own data sets and on planted truth."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sea_bench.experiments.studies import (
    Case,
    Findings,
    ScoreSets,
    Study,
    Tell,
    greedy,
    interval,
    random_order,
    rank,
    table,
)
from sea_nn.errors import MissingExtraError
from sea_nn.members.compute import compute_maps
from sea_nn.model.arrays import NumpyModel
from sea_nn.questions.ask import make_ask_only
from sea_nn.sea import SEA

SETS = ("breast_cancer", "wine", "digits", "iris", "diabetes")
BUDGETS = (128, 512)
N_SCORING = 64  # rows that score; methods never see them
MOST_EXACT = 10  # columns up to which every set is asked about


@dataclass(frozen=True)
class Problem:
    """A trained model and rows: those to explain, those methods may draw from, those that score."""

    name: str
    model: Callable[[Tensor], Tensor]
    x: Tensor
    target: Tensor
    background: Tensor
    scoring: Tensor
    output: str
    trees: Any = None

    def score(self) -> ScoreSets:
        """What the model says of sets, absent columns drawn from the rows that score."""
        return make_ask_only(
            self.model,
            self.x,
            self.target,
            absent="background",
            background=self.scoring,
            draws=len(self.scoring),
            output=self.output,
        )

    def predict(self, rows: Any) -> Any:
        """The model's answer about arrays."""
        with torch.no_grad():
            return self.model(torch.as_tensor(np.asarray(rows, dtype=np.float32))).numpy()


def load_rows(name: str) -> tuple[Tensor, Tensor]:
    """Rows [N, F] of one of scikit-learn's sets, with classes, or values by their spread."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError("this needs scikit-learn: pip install 'sea-nn[eval]'") from error
    data = getattr(datasets, f"load_{name}")()
    y = torch.as_tensor(data.target)
    y = ((y - y.mean()) / y.std()).float() if name == "diabetes" else y.long()
    return torch.as_tensor(data.data, dtype=torch.float32), y


def train_problems(name: str, x: Tensor, y: Tensor, limit: int, seed: int) -> list[Problem]:
    """A forest and a small network on rows with classes or values."""
    from sklearn import ensemble

    value = y.is_floating_point()
    mixed = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    n_test = min(len(x) // 3, 2 * limit + 40)
    test, train = mixed[:n_test], mixed[n_test:]
    scoring, background = x[train[:N_SCORING]], x[train[N_SCORING:]]
    forest: Any = (ensemble.RandomForestRegressor if value else ensemble.RandomForestClassifier)(
        60, random_state=seed, n_jobs=1
    ).fit(x[train].numpy(), y[train].numpy())
    trees = NumpyModel(forest.predict if value else forest.predict_proba)
    network = train_network(x[train], y[train], seed)
    problems = []
    for kind, model in (("forest", trees), ("network", network)):
        rows = x[test]
        with torch.no_grad():
            said = model(rows)
        if value:  # those that the model puts above an average row: there is something to add up
            said = said.reshape(-1)
            rows = rows[said > said.mean()][:limit]
            target = torch.zeros(len(rows), dtype=torch.long)
        else:
            rows = rows[:limit]
            target = said.argmax(1)[:limit]
        output = "value" if value else ("probabilities" if kind == "forest" else "logits")
        own = forest if kind == "forest" else None
        label = f"{name}, {kind}"
        problems.append(Problem(label, model, rows, target, background, scoring, output, own))
    return problems


def train_network(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """A network of one hidden layer on standardised columns."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classes = 1 if y.is_floating_point() else int(y.max()) + 1
        layers = [nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, classes)]
        net = nn.Sequential(Standardise(x), *layers)
    adam = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(200):
        adam.zero_grad()
        out = net(x)
        loss = (out[:, 0] - y).square().mean() if y.is_floating_point() else None
        (nn.functional.cross_entropy(out, y) if loss is None else loss).backward()
        adam.step()
    return net.eval()


class Standardise(nn.Module):
    """Columns or channels in units of the training inputs' spread."""

    mean: Tensor
    scale: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        own = (0,) if x.ndim == 2 else (0, 2)  # a series' channels, not its steps
        self.register_buffer("mean", x.mean(own, keepdim=True)[0])
        self.register_buffer("scale", x.std(own, keepdim=True)[0].clamp_min(1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise rows [N, F] or series [N, C, T]."""
        return (x - self.mean) / self.scale


def order_by_methods(p: Problem, seed: int, sums: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    """The columns' orders by every method; ``sums`` collects how far values miss their total."""
    orders: dict[str, Tensor] = {}
    count, n = p.x.shape
    for budget in BUDGETS:
        sea = SEA(p.model, budget=budget, output=p.output, seed=seed)
        e = sea.explain(p.x, p.target, background=p.background, quiet=True)
        orders[f"SEA, {budget}"] = e.order
        f = e.function
        if f is not None:
            missed = (e.gains.double().sum(1) - (f.all - f.none)[:, 0]).abs()
            sums.setdefault(f"SEA, {budget}", []).append(missed)
        heat = e.maps.mean(1)
        if budget == BUDGETS[0]:
            orders["its members alone"] = rank(heat)
        orders[f"Kernel SHAP, {budget}"], missed = _kernel_shap(p, budget, seed)
        sums.setdefault(f"Kernel SHAP, {budget}", []).append(missed)
        orders[f"LIME, {budget}"] = _lime(p, budget, seed)
    if p.trees is not None:
        orders["TreeSHAP"] = rank(compute_tree_shap(p))
    else:
        orders |= _members(p, seed)
    if n <= MOST_EXACT:
        orders["Shapley, all sets"] = rank(shapley(p.score(), count, n))
    orders["greedy on the model"] = greedy(p.score(), count, n)
    orders["random map"] = random_order(count, n, seed)
    return orders


def _members(p: Problem, seed: int) -> dict[str, Tensor]:
    names = ("deeplift", "integrated_gradients", "saliency")
    found = compute_maps(
        p.model, p.x, p.target, names, baselines=p.background.mean(0), output=p.output, seed=seed
    )
    return {name: rank(raw) for name, raw in found.maps.items()}


def _target_scores(p: Problem, rows: Any, target: int) -> Any:
    said = p.predict(rows)
    if p.output == "logits":
        said = torch.as_tensor(said).softmax(1).numpy()
    return said.reshape(len(said), -1)[:, target]


def _kernel_shap(p: Problem, budget: int, seed: int) -> tuple[Tensor, Tensor]:
    shap = _need("shap")
    mean = p.background.mean(0, keepdim=True).numpy()
    values, missed = [], []
    for row, target in zip(p.x, p.target.tolist(), strict=True):

        def one(rows: Any, target: int = target) -> Any:
            return _target_scores(p, rows, target)

        np.random.seed(seed)  # shap draws from NumPy's global generator
        explainer = shap.KernelExplainer(one, mean, silent=True)
        found = explainer.shap_values(row.numpy()[None], nsamples=budget - 2, l1_reg=0, silent=True)
        values.append(torch.as_tensor(np.asarray(found)).reshape(-1))
        total = float(one(row.numpy()[None])[0] - one(mean)[0])
        missed.append(abs(float(values[-1].sum()) - total))
    return rank(torch.stack(values)), torch.tensor(missed).double()


def _lime(p: Problem, budget: int, seed: int) -> Tensor:
    lime = _need("lime.lime_tabular")
    mode = "regression" if p.output == "value" else "classification"
    explainer = lime.LimeTabularExplainer(p.background.numpy(), mode=mode, random_state=seed)
    values = []
    for row, target in zip(p.x, p.target.tolist(), strict=True):

        def one(rows: Any) -> Any:
            said = p.predict(rows)
            if p.output == "logits":
                said = torch.as_tensor(said).softmax(1).numpy()
            return said.reshape(-1) if p.output == "value" else said

        label = 1 if mode == "regression" else target
        found = explainer.explain_instance(
            row.numpy(), one, labels=(label,), num_features=p.x.shape[1], num_samples=budget
        )
        own = torch.zeros(p.x.shape[1])
        for k, weight in found.as_map()[label]:
            own[k] = weight
        values.append(own)
    return rank(torch.stack(values))


def compute_tree_shap(p: Problem) -> Tensor:
    """Shapley values of a forest by its trees, [N, F]."""
    shap = _need("shap")
    explainer = shap.TreeExplainer(p.trees, p.background[:N_SCORING].numpy())
    found = torch.as_tensor(np.asarray(explainer.shap_values(p.x.numpy(), check_additivity=False)))
    if found.ndim == 3:
        found = found[torch.arange(len(found)), :, p.target]
    return found


def _need(name: str) -> Any:
    from importlib import import_module

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            "this compares with shap and lime: pip install shap lime"
        ) from error


def shapley(score: ScoreSets, count: int, n: int) -> Tensor:
    """Shapley values from the answers about every set, [count, n]."""
    codes = torch.arange(2**n)
    sets = (codes[:, None] >> torch.arange(n) & 1).bool()
    answers = torch.cat([score(part.expand(count, -1, -1)).double() for part in sets.split(256)], 1)
    size = sets.sum(1)
    values = []
    for k in range(n):
        without = codes[~sets[:, k]]
        gain = answers[:, without + (1 << k)] - answers[:, without]
        weight = torch.tensor([1 / (n * math.comb(n - 1, int(s))) for s in size[without]])
        values.append(gain @ weight.double())
    return torch.stack(values, 1)


PLANTED = ("copies", "interaction", "sum")


def plant(kind: str, limit: int, seed: int) -> Problem:
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

    target = torch.zeros(limit, dtype=torch.long)
    given = (draw(limit, 1.0), target, draw(100, 0.0), draw(N_SCORING, 0.0))
    return Problem(f"planted {kind}", model, *given, output="logits")


def _study_planted(limit: int, seed: int) -> tuple[list[Case], list[str]]:
    cases, rows = [], []
    for kind in PLANTED:
        p = plant(kind, limit, seed)
        score = p.score()
        exact = greedy(score, limit, 10)
        orders, values = {}, {}
        for budget in (*BUDGETS, 1200):
            sea = SEA(p.model, budget=budget, output="logits", seed=seed)
            e = sea.explain(p.x, p.target, background=p.background, quiet=True)
            orders[f"SEA, {budget}"] = e.order
            values[f"SEA, {budget}"] = e.gains_by_feature()
        found = compute_maps(
            p.model, p.x, p.target, ("integrated_gradients",),
            baselines=p.background.mean(0), output="logits",
        ).maps["integrated_gradients"]  # fmt: skip
        values["integrated_gradients"], orders["integrated_gradients"] = found, rank(found)
        found = shapley(score, limit, 10)
        values["Shapley, all sets"], orders["Shapley, all sets"] = found, rank(found)
        orders["greedy on the model"], orders["random map"] = exact, random_order(limit, 10, seed)
        cases.append(Case(p.name, score, orders))
        used = {"copies": 3, "interaction": 3, "sum": 4}[kind]
        for method, own in values.items():
            same = (orders[method][:, 0] == exact[:, 0]).double()
            kept = _share_used(orders[method], exact, used)
            row = [p.name, method, interval(same), interval(kept)]
            pair = own[:, :2].double().sort(1).values
            ratio = pair[:, 0] / pair[:, 1].clamp_min(1e-9)
            rows.append([*row, interval(ratio) if kind == "copies" else "–"])
    head = ["truth", "values by", "first as greedy's", "first k as greedy's"]
    return cases, table([*head, "second copy / first"], rows)


def _share_used(order: Tensor, exact: Tensor, k: int) -> Tensor:
    """The share of greedy's first k features among an order's first k, [N]."""
    hit = (order[:, :k, None] == exact[:, None, :k]).any(2)
    return hit.double().mean(1)


def study_tables(limit: int, seed: int, tell: Tell) -> Findings:
    """Run all methods on all sets."""
    cases: list[Case] = []
    sums: dict[str, list[Tensor]] = {}
    problems = [train_problems(name.replace("_", " "), *load_rows(name), limit, seed)
                for name in SETS]  # fmt: skip
    for number, p in enumerate([*(pair[0] for pair in problems), *(pair[1] for pair in problems)]):
        tell(p.name, number, 2 * len(SETS))
        orders = order_by_methods(p, seed, sums)
        unit = "value" if p.output == "value" else "probability"
        cases.append(Case(p.name, p.score(), orders, unit))
    planted, lines = _study_planted(limit, seed)
    rows = [[name, f"{float(torch.cat(v).max()):.1e}"] for name, v in sums.items()]
    more = [
        "## Planted truth",
        "",
        *lines,
        "",
        "The last column is the smaller of the two copies' values over the larger: 0 for a method "
        "that removes",
        "redundancy, 1 for one that shares alike. `first k`: as many as the model uses.",
        "",
        "## Sums",
        "",
        "The largest distance of values' sum from what they are to add up to: log-odds (of values, "
        "the value) of the",
        "row less those of an empty one for SEA, probabilities for Kernel SHAP.",
        "",
        *table(["values by", "largest error"], rows),
        "",
    ]
    notes = [
        "absent columns: SEA takes the background's mean, or draws from it where questions are at "
        "least ten for each column; all orders are scored by means over 64 other rows",
        "Kernel SHAP (package shap) takes the background's mean, one row, so that each sample is "
        "one evaluation; LIME (package lime) its own draws; TreeSHAP 64 rows of the background "
        "and the trees themselves",
        "diabetes is a regression in units of the target's spread, on rows above the average",
    ]
    return Findings([*cases, *planted], notes, more)


TABLES = Study(
    "tables",
    "Tables",
    "Which columns does a model need? Orders of columns by SEA with a budget, by the usual methods "
    "at equal evaluations and by those that look inside, on five data sets of scikit-learn and on "
    "planted truth.",
    "scikit-learn",
    24,
    study_tables,
)
