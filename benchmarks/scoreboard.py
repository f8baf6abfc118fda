"""The results at a glance, from the tables of single inputs that ``sea bench`` wrote.

    python -m benchmarks.scoreboard            # writes docs/results/README.md

Every budget of SEA against the best of all other maps, whatever they cost: the difference of the
means and its 95 % interval, paired by input.
"""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from benchmarks.kinds import tabulate_kinds
from sea_bench.experiments.learned import OUR_LABELS, TITLES
from sea_bench.experiments.measurements import find_metric
from sea_bench.experiments.tables import wrap
from sea_nn.metrics.bootstrap import bootstrap_difference

FOLDER = Path(__file__).parent.parent / "docs" / "results"
SECTIONS = {
    "The best map for every budget": (
        "budgets",
        "Deletion, insertion and AUPC: hide or show what a map calls relevant. The pointing game: "
        "is its largest value on the object? SEA asks with blur, so the blur rows are no evidence "
        "by themselves. By in-painting insertion says little where a random map is the best.",
    ),
    "On the object, against true masks": (
        "mass",
        "relevance_mass rewards a steep map in any order: no evidence by itself, and not counted. "
        "mass_equal_sharpness paints each map's order with SEA 512's values. On ImageNet the masks "
        "are boxes.",
    ),
    "The smallest set that keeps or breaks the class": (
        "smallest",
        "The share of the pixels, the first of each map, that keeps p at .5, keeps .9 of p, or "
        "breaks the class when hidden.",
    ),
}
HEAD = (
    "Written by `python -m benchmarks.scoreboard` from the tables of single inputs beside this "
    "page; each says with which command it was made. None of these inputs was used to choose a "
    "setting.",
    "SEA 512 is the default, `SEA(model)`; 34, 128, 512 and 1024 are model evaluations an input. "
    "The best other map is the one with the best mean on these inputs, of every member, aggregator "
    "and search, at up to 4,160 evaluations. **Bold**: SEA is clearly better than it (the 95 % "
    "paired interval leaves out zero); *slanted*: it is clearly better than SEA; plain: not told "
    "apart.",
)
NOT_COUNTED = ("evaluations", "seconds", "relevance_mass")


def read(path: Path) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The methods of an experiment, and by metric its scores [inputs, methods]."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    metrics = [k for k in rows[0] if k not in ("input", "name", "class", "method")]
    values = {
        metric: torch.tensor([float(row[metric] or "nan") for row in rows]).view(-1, len(methods))
        for metric in metrics
    }
    return methods, values


def judge(metric: str, values: torch.Tensor, own: int, others: list[int]) -> tuple[int, int]:
    """The best of the others, and 1, 0 or -1: our map is clearly better, not told apart, worse."""
    sign = 1 if find_metric(metric).direction == "higher" else -1
    means = values.double().nanmean(0)
    best = max(others, key=lambda k: sign * float(means[k]))
    found = bootstrap_difference(values[:, [own, best]].double(), 1)
    low, high = float(found.low[0]), float(found.high[0])
    return best, 0 if low <= 0 <= high else sign if low > 0 else -sign


def list_others(
    methods: list[str], price: torch.Tensor | None = None, most: float = 0
) -> list[int]:
    """The places of all maps but SEA's budgets, or of those that cost at most so much."""
    found = [k for k, name in enumerate(methods) if not name.startswith(OUR_LABELS)]
    return found if price is None else [k for k in found if float(price[k]) <= most]


def compare(metric: str, values: torch.Tensor, methods: list[str]) -> list[str]:
    """The best of the other maps, then each budget's mean, marked by the paired difference."""
    means, cells, others = values.double().nanmean(0), list[str](), list_others(methods)
    for label in OUR_LABELS:
        own = methods.index(label)
        best, won = judge(metric, values, own, others)
        text = f"{float(means[own]):.3f}"
        cells.append(f"**{text}**" if won > 0 else f"*{text}*" if won < 0 else text)
    return [f"{methods[best]} {float(means[best]):.3f}", *cells]


def count_by_price() -> list[str]:
    """For every set and budget, how many metrics are won, even and lost, at two prices."""
    said = (
        "How many metrics of a set a budget is clearly first in / not told apart from the first / "
        "clearly behind in: against every other map, and against those that cost at most as many "
        "evaluations."
    )
    lines = ["", "## By budget", "", *wrap(said), ""]
    lines += ["| data, inputs | against | " + " | ".join(OUR_LABELS) + " |"]
    lines += ["|---|---|" + "---|" * len(OUR_LABELS)]
    for path in sorted(FOLDER.glob("budgets_*.csv")):
        methods, values = read(path)
        price = values["evaluations"][0]
        metrics = [one for one in values if one not in NOT_COUNTED]
        for cheap in (False, True):
            cells = []
            for own in map(methods.index, OUR_LABELS):
                others = list_others(methods, price if cheap else None, float(price[own]))
                won = [judge(one, values[one], own, others)[1] for one in metrics]
                cells.append(f"{won.count(1)} / {won.count(0)} / {won.count(-1)}")
            against = "the same price" if cheap else "any price"
            label = name_set(path, "budgets")
            row = (f"{label}, {len(values[metrics[0]])}", against, *cells)
            lines.append("| " + " | ".join(row) + " |")
    return lines


def name_set(path: Path, kind: str) -> str:
    """What a table is about."""
    return TITLES.get(path.stem.removeprefix(f"{kind}_"), "Fashion-MNIST, ViT")


def write() -> Path:
    """Write the page."""
    lines: list[str] = []
    counts = {label: [0, 0, 0] for label in OUR_LABELS}
    for title, (kind, note) in SECTIONS.items():
        if not list(FOLDER.glob(f"{kind}_*.csv")):
            continue
        lines += ["", f"## {title}", "", *wrap(note), ""]
        lines += ["| data, inputs | metric | best other | " + " | ".join(OUR_LABELS) + " |"]
        lines += ["|---|---|---|" + "---:|" * len(OUR_LABELS)]
        for path in sorted(FOLDER.glob(f"{kind}_*.csv")):
            methods, values = read(path)
            for metric in (one for one in values if one not in NOT_COUNTED[:2]):
                cells = compare(metric, values[metric], methods)
                about, n = find_metric(metric), len(values[metric])
                short = metric.partition(":SEA")[0]
                row = (f"{name_set(path, kind)}, {n}", f"{short} {about.arrow}", *cells)
                lines.append("| " + " | ".join(row) + " |")
                for count, cell in zip(counts.values(), cells[1:], strict=True):
                    place = 0 if "**" in cell else 2 if "*" in cell else 1
                    count[place] += metric not in NOT_COUNTED
    summary = [
        f"{name} is clearly better than the best other in {won} rows, not told apart in {even}, "
        f"clearly worse in {lost}" for name, (won, even, lost) in counts.items()
    ]  # fmt: skip
    head = ["# Results at a glance"]
    for part in (*HEAD, f"Of all rows below: {'; '.join(summary)}."):
        head += ["", *wrap(part)]
    pages = sorted(p for p in FOLDER.glob("*.md") if p.name != "README.md")
    lines = [*head, *count_by_price(), *lines, *tabulate_kinds(FOLDER), "", "## All pages", ""]
    lines += [
        f"- [{p.stem}]({p.name}): {p.read_text().splitlines()[0].lstrip('# ')}" for p in pages
    ]
    page = FOLDER / "README.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


if __name__ == "__main__":
    print(write())
