"""The results at a glance, from the tables of single inputs that ``sea bench`` wrote.

    python -m benchmarks.scoreboard            # writes docs/results/README.md

SEA against the best member, the best aggregate of the same members (VG, IG, SG), and the mean that
gets SEA's answers too: the difference of the means and its 95 % interval, paired by input.
"""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from sea_bench.experiments.measurements import find_metric
from sea_bench.experiments.tables import wrap
from sea_nn.metrics.bootstrap import bootstrap_difference

FOLDER = Path(__file__).parent.parent / "docs" / "results"
MEMBERS = ("VG", "IG", "SG")
AGGREGATES = ("Agg-Mean", "Agg-Var", "geometric mean", "Borda", "optimal")
ANSWERED = ("Agg-Mean + answers",)
SETS = {
    "fmnist": "Fashion-MNIST",
    "btd": "BTD (brain)",
    "cub": "birds",
    "tiny_imagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
    "pets": "pets",
    "lgg": "LGG (brain)",
}
SECTIONS = {
    "Area under the perturbation curve, as in the paper": (
        "aupc",
        ("aupc_windows:noise", "aupc_windows:black", "aupc_pixels:black"),
        "Windows hidden one after another (BTD: pixels). The paper perturbs windows with noise; "
        "its published code, on Fashion-MNIST, with black, which is that set's background.",
    ),
    "Deletion and insertion with perturbations SEA did not ask with": (
        "aupc",
        ("deletion:mean", "insertion:mean", "deletion:inpaint", "insertion:inpaint",
         "aupc_pixels:mean", "aupc_pixels:inpaint"),
        "Where a random map has the best insertion by in-painting (Tiny ImageNet), it says little: "
        "the in-painted picture shows the object before any pixel is inserted.",
    ),
    "On the object, against true masks": (
        "localisation",
        ("relevance_mass", "mass_equal_sharpness", "rank_accuracy", "pointing_game"),
        "relevance_mass rewards a steep map in any order, and SEA's is steep: no evidence by "
        "itself. mass_equal_sharpness paints each map's order with SEA's values. On ImageNet the "
        "masks are boxes.",
    ),
}  # fmt: skip
HEAD = (
    "Written by `python -m benchmarks.scoreboard` from the tables of single inputs beside this "
    "page; each says with which command it was made. None of these inputs was used to choose a "
    "setting (the `choices_` pages have those). SEA is the default: VG, IG and SG, and 30 "
    "questions to the model, with blur. Agg-Mean + answers is a mean of the same members and "
    "answers.",
    "A difference is SEA's mean minus the other's, ± half of its 95 % paired bootstrap interval. "
    "**Bold**: SEA is clearly better; *slanted*: the other is; plain: not told apart.",
)


def read(name: str) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The methods of an experiment, and by metric its scores [inputs, methods]."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    metrics = [k for k in rows[0] if k not in ("input", "name", "class", "method")]
    values = {
        metric: torch.tensor([float(row[metric] or "nan") for row in rows]).view(-1, len(methods))
        for metric in metrics
    }
    return methods, values


def subtract(pair: torch.Tensor, sign: int) -> str:
    """The first column's mean minus the second's, [inputs, 2], with half of its interval."""
    found = bootstrap_difference(pair.double(), 1)
    low, high = float(found.low[0]), float(found.high[0])
    text = f"{float(found.mean[0]):+.3f} ± {(high - low) / 2:.3f}"
    if low > 0 or high < 0:
        text = f"**{text}**" if (low > 0) == (sign > 0) else f"*{text}*"
    return text


def compare(metric: str, values: torch.Tensor, methods: list[str]) -> list[str]:
    """SEA's mean, then SEA minus the best of each group of methods."""
    sign = 1 if find_metric(metric).direction == "higher" else -1
    means, own = values.double().nanmean(0), methods.index("SEA")
    cells = [f"{float(means[own]):.3f}"]
    for group in (MEMBERS, AGGREGATES, ANSWERED):
        best = max(group, key=lambda name: sign * float(means[methods.index(name)]))
        said = subtract(values[:, [own, methods.index(best)]], sign)
        cells.append(said if len(group) == 1 else f"{best} {said}")
    return cells


def race_greedy() -> list[str]:
    """SEA with more questions against greedy regions, which asks ten times as often."""
    (methods, asked), (others, cost) = read("questions_imagenet"), read("cost_imagenet")
    other = others.index("greedy regions")
    n = len(next(iter(asked.values())))
    lines = ["## More questions, against a greedy choice of regions", ""]
    lines += wrap(
        f"The {n} inputs that questions_imagenet.md and cost_imagenet.md share. Greedy regions "
        "(after SMDL-Attribution) ask the model 4,160 times an input, SEA 33, 129 and 381 times, "
        "members included."
    )
    lines += [
        "",
        "| map | metric | SEA | greedy regions | difference |",
        "|---|---|---:|---:|---:|",
    ]
    for name in (one for one in methods if one.startswith("SEA")):
        for metric, table in asked.items():
            about = find_metric(metric)
            theirs = cost[metric][: len(table), other]  # both take the first of one order
            pair = torch.stack([table[:, methods.index(name)], theirs], 1)
            own, best = pair.double().nanmean(0).tolist()
            said = subtract(pair, 1 if about.direction == "higher" else -1)
            lines.append(f"| {name} | {metric} {about.arrow} | {own:.3f} | {best:.3f} | {said} |")
    return lines


def write() -> Path:
    """Write the page."""
    lines: list[str] = []
    counts = {group: [0, 0, 0] for group in ("the best member", "the best aggregate", *ANSWERED)}
    for title, (kind, metrics, note) in SECTIONS.items():
        lines += ["", f"## {title}", "", *wrap(note), ""]
        lines += ["| data | metric | SEA | best member | best aggregate | Agg-Mean + answers |"]
        lines += ["|---|---|---:|---:|---:|---:|"]
        for key, label in SETS.items():
            if not (FOLDER / f"{kind}_{key}.csv").exists():
                continue
            methods, values = read(f"{kind}_{key}")
            for metric in (one for one in metrics if one in values):
                cells = compare(metric, values[metric], methods)
                arrow, n = find_metric(metric).arrow, len(values[metric])
                lines.append(f"| {label}, {n} | {metric} {arrow} | " + " | ".join(cells) + " |")
                for count, cell in zip(counts.values(), cells[1:], strict=True):
                    place = 0 if "**" in cell else 2 if "*" in cell else 1
                    count[place] += metric != "relevance_mass"
    summary = [
        f"against {name} SEA is clearly better in {won}, not told apart in {even}, clearly worse "
        f"in {lost}" for name, (won, even, lost) in counts.items()
    ]  # fmt: skip
    said = f"Of the rows below, relevance_mass left out: {'; '.join(summary)}."
    head = ["# Results at a glance"]
    for part in (*HEAD, said):
        head += ["", *wrap(part)]
    pages = sorted(p for p in FOLDER.glob("*.md") if p.name != "README.md")
    lines = [*head, *lines, "", *race_greedy(), "", "## All pages", ""]
    lines += [
        f"- [{p.stem}]({p.name}): {p.read_text().splitlines()[0].lstrip('# ')}" for p in pages
    ]
    page = FOLDER / "README.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


if __name__ == "__main__":
    print(write())
