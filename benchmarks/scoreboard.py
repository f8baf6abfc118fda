"""The results at a glance, from the tables of single inputs that ``sea bench`` wrote.

    python -m benchmarks.scoreboard            # writes docs/results/README.md

SEA against the best member and the best aggregate of the same three members (VG, IG, SG), metric by
metric: the difference of the means, and its 95 % interval, paired by input.
"""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from sea_bench.experiments.measurements import find_metric
from sea_nn.metrics.bootstrap import bootstrap_difference

FOLDER = Path(__file__).parent.parent / "docs" / "results"
MEMBERS = ("VG", "IG", "SG")
AGGREGATES = ("Agg-Mean", "Agg-Var", "geometric mean", "Borda", "optimal")
SETS = {
    "fmnist": "Fashion-MNIST",
    "btd": "brain tumours (BTD)",
    "cub": "birds (CUB)",
    "tiny_imagenet": "Tiny ImageNet",
    "imagenet": "ImageNet",
    "pets": "pets",
    "lgg": "brain tumours (LGG)",
}
SECTIONS = {
    "Area under the perturbation curve, as in the paper": (
        "aupc",
        ("aupc_windows:noise", "aupc_windows:black", "aupc_pixels:black"),
        "Windows hidden one after another (BTD: pixels). The paper perturbs windows with noise; "
        "its published code, on Fashion-MNIST, with black.",
    ),
    "Deletion and insertion with perturbations SEA did not ask with": (
        "aupc",
        ("deletion:mean", "insertion:mean", "deletion:inpaint", "insertion:inpaint",
         "aupc_pixels:mean", "aupc_pixels:inpaint"),
        "Where a random map has the best insertion by in-painting, that column says little: the "
        "in-painted picture shows the object before any pixel is inserted.",
    ),
    "Specificity against true masks": (
        "localisation",
        ("relevance_mass", "rank_accuracy", "pointing_game"),
        "On ImageNet the masks are boxes.",
    ),
}  # fmt: skip
HEAD = """# Results at a glance

Written by `python -m benchmarks.scoreboard` from the tables of single inputs beside this page; each
page here says with which command, seed, inputs and hardware it was made. None of these inputs was
used to choose a setting (`sea bench choices_` has those). SEA is the default: VG, IG and SG, and 30
questions to the model, with blur.

A difference is SEA's mean minus the other's, with its 95 % paired bootstrap interval; **bold**: the
interval is on SEA's side; *slanted*: on the other's.
"""


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


def compare(values: torch.Tensor, methods: list[str], rivals: tuple[str, ...], sign: int) -> str:
    """SEA against the best of the rivals: its name and mean, and the difference."""
    means = values.double().nanmean(0)
    present = [name for name in rivals if name in methods]
    best = max(present, key=lambda name: sign * float(means[methods.index(name)]))
    place, own = methods.index(best), methods.index("SEA")
    return f"{best} {float(means[place]):.3f} | {subtract(values[:, [own, place]], sign)}"


def subtract(pair: torch.Tensor, sign: int) -> str:
    """The first column's mean minus the second's, [inputs, 2], with its interval."""
    found = bootstrap_difference(pair.double(), 1)
    low, high = float(found.low[0]), float(found.high[0])
    text = f"{float(found.mean[0]):+.3f} [{low:+.3f}, {high:+.3f}]"
    if low > 0 or high < 0:
        text = f"**{text}**" if (low > 0) == (sign > 0) else f"*{text}*"
    return text


def race_greedy() -> list[str]:
    """SEA with more questions against greedy regions, which asks ten times as often."""
    (methods, asked), (others, cost) = read("questions_imagenet"), read("cost_imagenet")
    rival = others.index("greedy regions")
    lines = [
        "\n## More questions, against a greedy choice of regions\n",
        "questions_imagenet.md and cost_imagenet.md, the inputs that both have. Greedy regions "
        "(after SMDL-Attribution) ask the model 4,160 times an input, SEA 33, 129 and 381 times, "
        "members included (one fewer in practice: two of them share a gradient).",
        "",
        "| map | metric | SEA | greedy regions | difference |",
        "|---|---|---:|---:|---:|",
    ]
    for name in (one for one in methods if one.startswith("SEA")):
        for metric, table in asked.items():
            about = find_metric(metric)
            theirs = cost[metric][: len(table), rival]  # both take the first of one order
            pair = torch.stack([table[:, methods.index(name)], theirs], 1)
            own, rivals = pair.double().nanmean(0).tolist()
            sign = 1 if about.direction == "higher" else -1
            lines.append(
                f"| {name}, {len(table)} inputs | {metric} {about.arrow} | {own:.3f} | "
                f"{rivals:.3f} | {subtract(pair, sign)} |"
            )
    return lines


def write() -> Path:
    """Write the page."""
    lines = [HEAD]
    for title, (kind, metrics, note) in SECTIONS.items():
        lines += [f"\n## {title}\n", note, ""]
        lines += [
            "| data | metric | SEA | best member | difference | best aggregate | difference |"
        ]
        lines += ["|---|---|---:|---:|---:|---:|---:|"]
        for key, label in SETS.items():
            if not (FOLDER / f"{kind}_{key}.csv").exists():
                continue
            methods, values = read(f"{kind}_{key}")
            for metric in metrics:
                if metric not in values:
                    continue
                about, table = find_metric(metric), values[metric]
                sign = 1 if about.direction == "higher" else -1
                own = float(table.double().nanmean(0)[methods.index("SEA")])
                cells = [compare(table, methods, names, sign) for names in (MEMBERS, AGGREGATES)]
                lines.append(f"| {label}, {len(table)} | {metric} {about.arrow} | {own:.3f} | " +
                             " | ".join(cells) + " |")  # fmt: skip
    lines += race_greedy()
    pages = sorted(p for p in FOLDER.glob("*.md") if p.name != "README.md")
    lines += ["\n## All pages\n"]
    lines += [
        f"- [{p.stem}]({p.name}): {p.read_text().splitlines()[0].lstrip('# ')}" for p in pages
    ]
    page = FOLDER / "README.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


if __name__ == "__main__":
    print(write())
