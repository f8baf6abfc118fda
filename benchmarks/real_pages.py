"""The page about real runs: a table of them, and what they say class by class.

    python -m benchmarks.real_pages RUNS --write docs/results/datasets_real.md

RUNS is a folder that ``benchmarks.real_run`` wrote. Maps alone are drawn: the licences of the
pictures do not allow to pass them on. Needs $SEA_NN_DATA for the masks of birds and pets.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from benchmarks.real_run import MODELS
from benchmarks.table import to_markdown
from sea_bench import data as sets
from sea_bench.classifiers import load_classifier
from sea_bench.data.items import fit_mask
from sea_nn import read_dataset
from sea_nn.datasets.read import ExplainedDataset
from sea_nn.datasets.storage import read_log
from sea_nn.datasets.summary import ClassSummary, Summary, summarize
from sea_nn.show.panels import FAINT, INK, heat, paint

GROUPS = {"dogs": [(151, 269)], "birds": [(7, 25), (80, 101), (127, 147)],
          "other animals": [(0, 398)], "things and places": [(398, 1000)]}  # fmt: skip
"""Classes of ImageNet, by number; the first that fits."""
SHOWN = 6  # classes of a set that are drawn
N_EXAMPLES = 2


class Grouped:
    """A run of ImageNet with four groups for classes, as there is one picture of each class."""

    def __init__(self, data: ExplainedDataset) -> None:
        self.data, self.shards = data, data.shards
        self.manifest = _rename(data, tuple(GROUPS))

    def read_shard(self, shard: int) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
        rows, tensors = self.data.read_shard(shard)
        for row in rows:
            row["target"] = next(
                (k for k, ranges in enumerate(GROUPS.values())
                 if any(low <= row["target"] < high for low, high in ranges)), None
            )  # fmt: skip
        return rows, tensors


def _rename(data: ExplainedDataset, labels: tuple[str, ...]) -> Any:
    from dataclasses import replace

    return replace(data.manifest, labels=labels)


def read_masks(name: str, side: int) -> dict[str, Tensor]:
    """By id, the cells of a map that lie on the object, for birds and pets."""
    if name == "imagenet":
        return {}
    preprocess = load_classifier(MODELS[name]).preprocess
    masks = {}
    for item in sets.load("cub20" if name == "birds" else name, split="all"):
        with Image.open(item.path) as picture:  # type: ignore[arg-type]
            mask = fit_mask(item.read_mask(), picture.size, preprocess)
        masks[item.name] = adaptive_avg_pool2d(mask[None, None], side)[0, 0] >= 0.5
    return masks


def find_inside(data: ExplainedDataset, masks: Mapping[str, Tensor]) -> list[tuple[float, float]]:
    """By input with a mask, the share of its map inside, and the mask's own share."""
    found = []
    for shard in data.shards:
        rows, tensors = data.read_shard(shard)
        for row in rows:
            mask = masks.get(row["id"])
            if mask is not None and row["error"] is None:
                one = tensors["map"][row["place"]]
                if not bool(one.any()):
                    continue  # no evidence anywhere
                found.append((float(one[mask].sum() / one.sum()), float(mask.float().mean())))
    return found


def describe(name: str, data: ExplainedDataset, measured: Mapping[str, Any]) -> list[str]:
    """The row of a run: means with 95 % intervals."""
    table = data.to_arrow().to_pydict()
    commits = [e for e in read_log(data.out) if e["event"] == "commit"]
    began = min(e["time"] for e in read_log(data.out))
    took = max(e["time"] for e in commits) - began
    explain = sum(e["seconds"]["explain"] for e in commits)
    busy = measured.get("model", {})
    curves = [[c[3] for c in table[side] if c] for side in ("keep", "remove")]
    return [
        name,
        f"{len(data)} of {data.manifest.count}",
        _mean([float(c) for c in table["correct"] if c is not None]),
        f"{took:.0f}",
        f"{len(data) / took:.1f}",
        f"{explain / took:.0%}",
        f"{sum(busy.values()) / took:.0%}" if busy else "–",
        f"{measured['gpu_busy']:.0%}" if "gpu_busy" in measured else "–",
        _mean(table["score"]),
        *map(_mean, curves),
        _mean([v for v in table["predict_error"] if v is not None]),
    ]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = 1.96 * float(np.std(values)) / math.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {spread:.3f}"


def draw(classes: Sequence[ClassSummary], path: Path) -> None:
    """Of each class the mean map, the class-level map, disagreement, prototypes and outliers."""
    from matplotlib.figure import Figure

    columns = 3 + 2 * N_EXAMPLES
    figure = Figure(figsize=(columns * 1.2, len(classes) * 1.42), dpi=110, layout="constrained")
    axes = np.atleast_2d(figure.subplots(len(classes), columns))
    for row, c in zip(axes, classes, strict=True):
        panels = {"mean map": c.mean_map, "class map (SEA)": c.class_map}
        panels["members disagree"] = c.disagreement  # type: ignore[assignment]
        for kind, ids in (("prototype", c.prototypes), ("outlier", c.outliers)):
            panels |= {f"{kind} {k + 1}": c.pictures[id_][1] for k, id_ in enumerate(ids)}
        for axis in row:
            axis.set_axis_off()
        for axis, (title, values) in zip(row, panels.items(), strict=False):
            if values is not None:
                axis.imshow(paint(heat(values, 0)), interpolation="nearest")
            head = f"{c.name}\n{title}" if axis is row[0] else title
            axis.set_title(head, fontsize=6.5, color=INK)
            for spine in axis.spines.values():
                spine.set_color(FAINT)
    figure.savefig(path)


def write_section(out: Path, page: Path) -> str:
    """What a run says by class, or by group."""
    name, budget = out.name.split("_")
    data = read_dataset(out)
    side = data.read_shard(data.shards[0])[1]["map"].shape[-1]
    masks = read_masks(name, side)
    found: Summary = (
        summarize(Grouped(data), n_examples=N_EXAMPLES)
        if name == "imagenet"
        else data.summary(masks=masks, n_examples=N_EXAMPLES)
    )
    classes = [c for c in found.classes if c.count >= 5]
    picture = page.with_name(f"{page.stem}_{out.name}.png")
    draw(sorted(classes[: 3 * SHOWN], key=lambda c: c.agreement)[:SHOWN], picture)
    rows = [
        [c.name, str(c.count), f"{c.n_correct / max(1, c.n_labelled):.2f}", f"{c.score:.2f}",
         f"{c.agreement:.2f}", f"{c.keep[3]:.2f}", f"{c.remove[3]:.2f}",
         "; ".join(f"{s.zone} ×{s.times:.1f} in {s.share:.0%}" for s in c.shortcuts) or "none"]
        for c in classes
    ]  # fmt: skip
    inside = find_inside(data, masks)
    told = ""
    if inside:
        shares, even = zip(*inside, strict=True)
        told = (
            f" {_mean(shares)} of a map lies on the object; of a random map it would be "
            f"{_mean(even)}, the share of the picture that the outline covers."
        )
    few = len(found.classes) - len(classes)
    what = "groups of classes" if name == "imagenet" else "the predicted class"
    text = to_markdown(
        f"{name.capitalize()}, budget {budget}",
        f"By {what}, those with five pictures or more ({few} others have fewer); as `sea summary` "
        f"finds it.{told} Left: the model's probability with only the top 10 % of the map left, "
        "and without them.",
        ("class", "inputs", "right", "score", "members' agreement", "left on top 10 %",
         "left without", "likely shortcuts"),
        rows,
    )  # fmt: skip
    return f"{text}\nWhere members agree least:\n\n![maps by class]({picture.name})\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--write", type=Path, required=True)
    parser.add_argument("--note", type=Path, help="a file: how the runs were made, what is seen")
    parser.add_argument("--sections", default="", help="runs with a section; all if left out")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = (given.runs / "measured.jsonl").read_text().splitlines()
    measured = {fact["run"]: fact for fact in map(json.loads, lines) if "seconds" in fact}
    outs = [p for p in sorted(given.runs.iterdir()) if (p / "manifest.json").is_file()]
    rows = [
        describe(out.name.replace("_", ", budget "), read_dataset(out), measured.get(out.name, {}))
        for out in outs
    ]
    wanted = given.sections.split(",") if given.sections else [out.name for out in outs]
    sections = [write_section(out, given.write) for out in outs if out.name in wanted]
    table = to_markdown(
        "The runs",
        "With 95 % intervals. Explaining: share of the time between the run's first and last "
        "event in which something is explained. Model: in which the model is at work: members' "
        "passes, questions with their hiding, the curve; the rest are the fit, ranks and orders. "
        "GPU: in use, says the driver, start included. Score: the model's probability of the class "
        "it predicts; then with only the top 10 % of the map left, and without them (blur). Error: "
        "of what `predict` says of sets that the fit left out, root mean square, in probability.",
        ("data", "inputs", "right", "seconds", "a second", "explaining",
         "model", "GPU", "score", "top 10 % left", "without them", "error of predict"),
        rows,
    )  # fmt: skip
    note = given.note.read_text() if given.note else ""
    head = "# Whole data sets, explained\n\n"
    given.write.write_text("\n".join([head + note, table, *sections]))


if __name__ == "__main__":
    main()
