"""A summary as a page that needs no network: a table, and the maps of each class."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.datasets.summary import ClassSummary, Summary
from sea_nn.explanation.atomic import write_atomically
from sea_nn.show.viewer import write_summary_page
from sea_nn.show.viewer.describe import describe_panel

PAGE = "summary.html"
MOST_CLASSES = 60
"""Classes with maps on the page; the table has them all."""
COLUMNS = ("name", "inputs", "accuracy", "score", "agreement", "keep_10", "remove_10",
           "shortcuts")  # fmt: skip
HEADINGS = ("class", "inputs", "accuracy", "score", "members' agreement",
            "left on top 10 %", "left without them", "likely shortcuts")  # fmt: skip


def write_pages(summary: Summary, folder: Path) -> Path:
    """Write the page and the table as a CSV file; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = summary.table()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["class"])
    writer.writeheader()
    writer.writerows(rows)
    with write_atomically(folder / "summary.csv") as file:
        file.write(text.getvalue().encode())
    failed = ", ".join(f"{n} failed ({kind})" for kind, n in sorted(summary.errors.items()))
    notes = [f"{summary.n_done} of {summary.n_inputs} inputs explained. {failed}".strip()]
    strips = [describe_class(c) for c in summary.classes[:MOST_CLASSES]]
    if len(rows) > len(strips):
        left_out = len(rows) - len(strips)
        notes.append(f"Maps of the {len(strips)} largest classes; {left_out} more in the table.")
    title = f"What {summary.model or 'the model'} looks at, by class"
    table = [[_write_cell(row[column]) for column in COLUMNS] for row in rows]
    return write_summary_page(folder / PAGE, title, notes, HEADINGS, table, strips)


def describe_class(c: ClassSummary) -> dict[str, Any]:
    """The class's maps, then prototypes and outliers, as a row of panels."""
    panels = [describe_panel("mean map", _flatten(c.mean_map))]
    panels.append(describe_panel("class map (SEA)", _flatten(c.class_map)))
    if c.disagreement is not None:
        panels.append(describe_panel("members disagree", _flatten(c.disagreement)))
    for title, ids in (("prototype", c.prototypes), ("outlier", c.outliers)):
        for id_ in ids:
            panels.append(_describe_example(f"{title}: {os.path.basename(id_)}", *c.pictures[id_]))
    said = [
        f"Likely shortcut: {s.zone} holds {s.times:.1f} times the evidence of an even spread; "
        f"in {s.share:.0%} of the inputs far more than its share."
        for s in c.shortcuts
    ]
    return {"title": c.name, "note": " ".join(said), "panels": panels}


def _describe_example(title: str, thumbnail: Tensor | None, small: Tensor) -> dict[str, Any]:
    if thumbnail is None or small.ndim == 1:
        return describe_panel(title, _flatten(small))
    if small.ndim == 3:
        small = small[len(small) // 2]  # the slice that the picture shows
    size = (int(thumbnail.shape[0]), int(thumbnail.shape[1]))
    large = interpolate(small[None, None].float(), size, mode="nearest")[0, 0]
    return describe_panel(title, large, thumbnail.expand(-1, -1, 3).to(torch.uint8).numpy())


def _flatten(values: Tensor) -> Tensor:
    return values.amax(0) if values.ndim == 3 else values  # a volume, seen along its depth


def _write_cell(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return f"{value:.2f}" if isinstance(value, float) else str(value)
