"""A summary as a page that needs no network: a table, and pictures of each class."""

from __future__ import annotations

import base64
import csv
import html
import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.datasets.summary import ClassSummary, Summary
from sea_nn.explanation.atomic import write_atomically
from sea_nn.show.page import read_style, write_policy
from sea_nn.show.panels import FAINT, INK, blend, heat, paint

PAGE = "summary.html"
PANEL = 1.15  # inches
MOST_CLASSES = 60
"""Classes with pictures on the page; the table has them all."""
COLUMNS = ("name", "inputs", "accuracy", "score", "agreement", "keep_10", "remove_10",
           "shortcuts")  # fmt: skip
HEADINGS = ("class", "inputs", "accuracy", "score", "members' agreement",
            "left on top 10 %", "left without them", "likely shortcuts")  # fmt: skip


def write_pages(summary: Summary, folder: Path) -> Path:
    """Write the page, its pictures and the table; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = summary.table()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["class"])
    writer.writeheader()
    writer.writerows(rows)
    with write_atomically(folder / "summary.csv") as file:
        file.write(text.getvalue().encode())
    sections = []
    for c in summary.classes[:MOST_CLASSES]:
        picture = draw_class(c)
        with write_atomically(folder / f"class_{c.number}.png") as file:
            file.write(picture)
        sections.append(_describe(c, picture))
    page = _fill(summary, rows, sections)
    with write_atomically(folder / PAGE) as file:
        file.write(page.encode())
    return folder / PAGE


def draw_class(c: ClassSummary) -> bytes:
    """The class's maps, then prototypes and outliers, as a PNG."""
    panels: list[tuple[str, Any]] = [("mean map", _colour(c.mean_map))]
    panels.append(("class map (SEA)", _colour(c.class_map)))
    if c.disagreement is not None:
        panels.append(("members disagree", _colour(c.disagreement)))
    for title, ids in (("prototype", c.prototypes), ("outlier", c.outliers)):
        for id_ in ids:
            thumbnail, small = c.pictures[id_]
            name = os.path.basename(id_)
            panels.append((f"{title}\n{name[:16]}", _overlay(thumbnail, small)))
    from matplotlib.figure import Figure

    columns = min(len(panels), 8)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(columns * PANEL, rows * (PANEL + 0.45)), dpi=110, layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns)).reshape(-1)
    for axis, (title, picture) in zip(axes, panels, strict=False):
        axis.imshow(picture, interpolation="nearest")
        axis.set_title(title, fontsize=6.5, color=INK)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
        for spine in axis.spines.values():
            spine.set_color(FAINT)
            spine.set_linewidth(0.4)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names in scripts that the font lacks
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _colour(values: Tensor) -> Any:
    if values.ndim == 3:  # of a volume, seen along its depth
        values = values.amax(0)
    flat = values if values.ndim == 2 else values.reshape(1, -1)
    return paint(heat(flat, 0))


def _overlay(thumbnail: Tensor | None, small: Tensor) -> Any:
    if small.ndim == 3:
        small = small[len(small) // 2]  # the slice that the picture shows
    if thumbnail is None or small.ndim != 2:
        return _colour(small)
    size = (int(thumbnail.shape[0]), int(thumbnail.shape[1]))
    large = interpolate(small[None, None].float(), size, mode="nearest")[0, 0]
    picture = thumbnail.expand(-1, -1, 3).contiguous()
    return blend(picture.to(torch.uint8).numpy(), heat(large, 0))


def _describe(c: ClassSummary, picture: bytes) -> str:
    lines = [f'<h2 id="class-{c.number}">{html.escape(c.name)}</h2>']
    for s in c.shortcuts:
        lines.append(
            f'<p class="warn">Likely shortcut: {html.escape(s.zone)} holds {s.times:.1f} times the '
            f"evidence of an even spread; in {s.share:.0%} of the inputs far more than its share."
            "</p>"
        )
    data = base64.b64encode(picture).decode()
    lines.append(
        f'<img alt="mean map, class map, prototypes and outliers of {html.escape(c.name)}" '
        f'src="data:image/png;base64,{data}">'
    )
    return "\n".join(lines)


def _fill(summary: Summary, rows: list[dict[str, Any]], sections: list[str]) -> str:
    heads = "".join(f'<th scope="col">{heading}</th>' for heading in HEADINGS)
    body = "\n".join(
        "<tr>" + "".join(_cell(row, column) for column in COLUMNS) + "</tr>" for row in rows
    )
    state = f"{summary.n_done} of {summary.n_inputs} inputs explained"
    failed = ", ".join(f"{n} failed ({kind})" for kind, n in sorted(summary.errors.items()))
    left_out = len(rows) - len(sections)
    more = f"<p>Pictures of the {len(sections)} largest classes; {left_out} more are in the table."
    title = f"What {html.escape(summary.model or 'the model')} looks at, by class"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="{write_policy(read_style())}">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>{read_style()}</style></head><body class="sea data-set"><main>
<h1>{title}</h1>
<p>{state}{". " + html.escape(failed) if failed else ""}.</p>
<div class="wide" tabindex="0" role="region" aria-label="Table of classes">
<table><thead><tr>{heads}</tr></thead><tbody>
{body}
</tbody></table></div>
{more + "</p>" if left_out else ""}
{chr(10).join(sections)}
</main></body></html>
"""


def _cell(row: dict[str, Any], column: str) -> str:
    value = row[column]
    if value is None:
        return '<td class="n">–</td>'
    if isinstance(value, float):
        return f'<td class="n">{value:.2f}</td>'
    if isinstance(value, int):
        return f'<td class="n">{value}</td>'
    text = html.escape(str(value))
    if column == "name":
        return f'<td><a href="#class-{row["class"]}">{text}</a></td>'
    return f'<td class="warn">{text}</td>'
