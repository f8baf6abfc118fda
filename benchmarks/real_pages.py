"""What whole runs say: a table of several, and the mean map of each class as one picture.

    python -m benchmarks.real_pages OUT ... --write docs/results/datasets_real.md

Each OUT is a folder that ``sea run`` wrote. Pictures of the data sets are not drawn, only maps.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.table import to_markdown
from sea_nn import read_dataset
from sea_nn.datasets.read import ExplainedDataset
from sea_nn.datasets.storage import read_log
from sea_nn.datasets.summary import ClassSummary
from sea_nn.show.panels import FAINT, INK, heat, paint

FEWEST = 5  # inputs of a class that is drawn, and classes of a run of which they are
COLUMNS = 8


def describe(name: str, data: ExplainedDataset) -> list[str]:
    """The row of a run: means with 95 % intervals."""
    table = data.to_arrow().to_pydict()
    commits = [e for e in read_log(data.out) if e["event"] == "commit"]
    explain = sum(e["seconds"]["explain"] for e in commits)
    began = min(e["time"] for e in read_log(data.out))
    took = max(e["time"] for e in commits) - began
    curves = [[c[3] for c in table[side] if c] for side in ("keep", "remove")]
    return [
        name,
        f"{len(data)} of {data.manifest.count}",
        str(sum(e is not None for e in table["error"])),
        _mean([float(c) for c in table["correct"] if c is not None]),
        str(max(table["evaluations"])),
        f"{took:.0f}",
        f"{len(data) / took:.1f}",
        f"{explain / took:.0%}",
        _mean(table["probability"]),
        *map(_mean, curves),
        _mean([v for v in table["predict_error"] if v is not None]),
    ]


def _mean(values: Sequence[float]) -> str:
    spread = 1.96 * float(np.std(values)) / math.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {spread:.3f}"


def draw(classes: Sequence[ClassSummary], path: Path) -> None:
    """The mean map of each class, with its name, inputs and accuracy."""
    from matplotlib.figure import Figure

    rows = -(-len(classes) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * 1.25, rows * 1.62), dpi=110, layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, COLUMNS)).reshape(-1)
    for axis in axes:
        axis.set_axis_off()
    for axis, c in zip(axes, classes, strict=False):
        axis.imshow(paint(heat(c.mean_map, 0)), interpolation="nearest")
        right = f", {c.n_correct / c.n_labelled:.0%} right" if c.n_labelled else ""
        axis.set_title(f"{c.name[:20]}\n{c.count}{right}", fontsize=6.5, color=INK)
        for spine in axis.spines.values():
            spine.set_color(FAINT)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--write", type=Path, required=True)
    parser.add_argument("--note", default="", help="where and how the runs were made")
    given = parser.parse_args()
    rows, parts = [], []
    for out in given.out:
        data = read_dataset(out)
        rows.append(describe(out.name.replace("_", ", budget "), data))
        classes = [c for c in data.summary(n_examples=1).classes if c.count >= FEWEST]
        if len(classes) < FEWEST:
            continue
        picture = given.write.with_name(f"{given.write.stem}_{out.name}.png")
        draw(classes, picture)
        suspects = [f"- {c.name}: {s.zone}, {s.times:.1f} times an even spread in {s.share:.0%} of "
                    f"{c.count}" for c in classes for s in c.shortcuts]  # fmt: skip
        parts.append(
            f"## Classes of {out.name.replace('_', ', budget ')}\n\nMean maps, each input's map "
            f"with the sum 1; the class is the predicted one, inputs and accuracy above.\n\n"
            f"![mean map of each class]({picture.name})\n\nLikely shortcuts: "
            + ("none\n" if not suspects else "\n\n" + "\n".join(suspects) + "\n")
        )
    head = f"# Whole data sets, explained\n\n{given.note}\n\n"
    table = to_markdown(
        "The runs",
        "With 95 % intervals. Explaining: share of the time in which the model or the fit is at "
        "work. Score: the model's probability of the class it predicts; then with only the top "
        "10 % of the map left, and without them (blur). Error: of what `predict` says of sets "
        "that the fit left out, root mean square, in the model's probability.",
        ("data", "inputs", "failed", "right", "evaluations", "seconds", "a second", "explaining",
         "score", "top 10 % left", "without them", "error of predict"),
        rows,
    )  # fmt: skip
    note = "\nNo other maps were made in these runs; they are compared in the pages of tables.\n\n"
    given.write.write_text(head + table + note + "\n".join(parts))


if __name__ == "__main__":
    main()
