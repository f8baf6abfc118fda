"""What a data set of explanations says, class by class, and a page that shows it.

By class: the mean map, the class-level SEA map [M9], how far and where members disagree, evidence
that gathers at one place of the frame (a likely shortcut), prototypes and outliers by map.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, cosine_similarity, interpolate

from sea_nn.config import SEAConfig
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.features import scale
from sea_nn.paper.agreement import disagreement
from sea_nn.paper.ensemble import ensemble_class
from sea_nn.show.viewer import write_summary_page
from sea_nn.show.viewer.describe import describe_panel

SIDE = 28
"""Maps of images are compared on a grid of at most so many cells a side."""
MOST = 2000
"""The most inputs of a class that its class-level map learns from, spread over the class."""
FRAME = 0.15  # share of each side that counts as border
SUSPECT = 2.0
"""Evidence in a zone is suspect if it is so many times what an even spread would put there."""
TYPICAL = 0.6  # share of a class's inputs that must show it
OUTSIDE = "outside the mask"
FEWEST = 5  # inputs of a class of which anything is said
PAGE = "summary.html"
MOST_SHOWN = 60
"""Classes with maps on the page; the table has them all."""
HEADINGS = {"name": "class", "inputs": "inputs", "accuracy": "accuracy", "score": "score",
            "agreement": "members' agreement", "keep_10": "left on top 10 %",
            "remove_10": "left without them", "shortcuts": "likely shortcuts"}  # fmt: skip


@dataclass(frozen=True)
class ClassSummary:
    """What the explanations of one class say; maps are on the grid."""

    row: Mapping[str, Any]  # of the table: its name, and means over its explained inputs
    mean_map: Tensor  # of maps that each sum to 1
    class_map: Tensor  # the class-level SEA map; of fewer than five inputs the mean map
    disagreement: Tensor | None  # where members disagree, if the run kept their maps
    shortcuts: Sequence[tuple[str, float, float]]  # see ``find_shortcuts``
    examples: Mapping[str, tuple[Tensor | None, Tensor]]  # by id: thumbnails and maps of
    # prototypes, whose maps are nearest to the mean map, and of outliers, furthest from it


@dataclass(frozen=True)
class Summary:
    """A data set of explanations by class, the largest class first."""

    model: str
    n_inputs: int
    n_done: int
    errors: Mapping[str, int]
    classes: Sequence[ClassSummary]

    def table(self) -> list[dict[str, Any]]:
        """One row a class, of plain values."""
        return [dict(c.row) for c in self.classes]


def summarize(
    data: Any, *, masks: Mapping[str, Tensor] | None = None, n_examples: int = 4
) -> Summary:
    """Summarize a run, finished or not.

    Args:
        data: what ``read_dataset`` returned.
        masks: by id, where the object is, bool [*shape]: evidence outside it is then reported too.
        n_examples: prototypes and outliers of each class.
    """
    if not data.shards:
        raise InputError("no shard of this run is finished yet, so there is nothing to summarize")
    seen: dict[int, list[_Seen]] = {}
    errors = Counter[str]()
    for one in data:
        if one.row["error"] is not None:
            errors[one.row["error_kind"]] += 1
        else:
            seen.setdefault(one.row["target"], []).append(_look(one, (masks or {}).get(one.id)))
    manifest = data.manifest
    names, view = dict(enumerate(manifest.labels)), manifest.kind.view
    classes = [
        _summarize_class(k, names.get(k, f"class {k}"), seen[k], view, n_examples) for k in seen
    ]
    classes.sort(key=lambda c: (-c.row["inputs"], c.row["class"]))
    return Summary(manifest.model_name, manifest.count, len(data), errors, classes)


@dataclass(frozen=True)
class _Seen:
    """What is kept of an input: maps on a small grid, and a few numbers."""

    row: Mapping[str, Any]
    map: Tensor  # with the sum 1
    heat: Tensor  # of its members; its own map if the run did not keep them
    spread: Tensor | None  # where its members disagree
    outside: float | None  # evidence outside its mask, over an even spread's
    picture: Tensor | None


def _look(one: Any, mask: Tensor | None) -> _Seen:
    full, members = one.map, one.members
    small = shrink(full)
    heat, spread, outside = small.unsqueeze(0), None, None
    if members is not None and len(members):
        heat, spread = shrink(members), shrink(disagreement(members.unsqueeze(0))[0])
    if mask is not None:
        inside = float(full[mask].sum() / full.sum().clamp_min(1e-12))
        outside = (1 - inside) / max(float((~mask).float().mean()), 1e-6)
    unit = small / small.sum().clamp_min(1e-12)
    return _Seen(one.row, unit, heat.half(), spread, outside, one.thumbnail)


def _summarize_class(
    number: int, name: str, seen: Sequence[_Seen], view: str, n_examples: int
) -> ClassSummary:
    maps, rows = torch.stack([one.map for one in seen]), [one.row for one in seen]
    mean = class_map = maps.mean(0)
    if len(seen) >= FEWEST:
        picked = [one.heat for one in seen[:: max(1, math.ceil(len(seen) / MOST))]]
        fewest = min(map(len, picked))  # where some inputs fell back on fewer members
        heat = torch.stack([one[:fewest] for one in picked]).float()
        heat = scale(heat.flatten(0, 1)).reshape(heat.shape)
        learned = ensemble_class(heat, SEAConfig(), quiet=True)
        class_map = learned.attribution[0]
    nearness = cosine_similarity(maps.flatten(1), mean.flatten().unsqueeze(0), dim=1)
    order = nearness.argsort(descending=True, stable=True).tolist()
    first, last = order[:n_examples], order[n_examples:][::-1][:n_examples]
    spreads = [one.spread for one in seen if one.spread is not None]
    outside = [one.outside for one in seen if one.outside is not None]
    shortcuts = find_shortcuts(maps, outside, view)
    row: dict[str, Any] = {"class": number, "name": name, "inputs": len(seen)}
    for column, known in (("accuracy", "correct"), ("score", "score"), ("agreement", "agreement")):
        row[column] = _average(one[known] for one in rows)
    for column in ("keep", "remove"):  # with the top 10 % alone, and without them
        row[f"{column}_10"] = _average(one[column] and one[column][3] for one in rows)
    told = [
        f"{zone}: {times:.1f} times an even spread, in {share:.0%}"
        for zone, times, share in shortcuts
    ]
    row["shortcuts"] = "; ".join(told)
    row["prototypes"], row["outliers"] = ([rows[i]["id"] for i in some] for some in (first, last))
    spread = torch.stack(spreads).sum(0) / len(seen) if spreads else None
    examples = {rows[i]["id"]: (seen[i].picture, maps[i]) for i in first + last}
    return ClassSummary(row, mean, class_map, spread, shortcuts, examples)


def _average(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def shrink(maps: Tensor) -> Tensor:
    """Maps of images [..., H, W] averaged onto at most 28 x 28 cells; others as they are."""
    if maps.ndim < 2 or max(maps.shape[-2:]) <= SIDE:
        return maps.clone()
    size = (min(SIDE, maps.shape[-2]), min(SIDE, maps.shape[-1]))
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    return adaptive_avg_pool2d(flat, size).reshape(*maps.shape[:-2], *size)


def find_shortcuts(
    maps: Tensor, outside: Sequence[float] = (), view: str = "picture"
) -> list[tuple[str, float, float]]:
    """Zones of the frame in which most inputs of a class have far more than their even share.

    Of each zone its name ("border", a corner, a cell near the edge, "outside the mask"), how many
    times the evidence of an even spread it has (the median), and in which share of the inputs it
    has at least twice that.

    Args:
        maps: of one class, [N, *shape], each with the sum 1.
        outside: by input with a mask, evidence outside it over an even spread's.
        view: of the inputs; pictures alone have a frame.
    """
    if len(maps) < FEWEST:
        return []
    times: dict[str, Tensor] = {}  # by zone and input, its evidence over that of an even spread
    if view == "picture":
        for zone, where in _zones(maps.shape[1], maps.shape[2]).items():
            times[zone] = maps[:, where].sum(1) / where.float().mean()
        # A mark on every input lights one cell in all of them; objects move from input to input.
        typical = maps.median(0).values * maps[0].numel()
        row, column = divmod(int(typical.argmax()), maps.shape[2])
        edge = min(row, column, maps.shape[1] - 1 - row, maps.shape[2] - 1 - column)
        if edge < FRAME * min(maps.shape[1:]) and float(typical[row, column]) > 2 * SUSPECT:
            times[f"cell ({row}, {column})"] = maps[:, row, column] * maps[0].numel()
    if outside:
        times[OUTSIDE] = torch.tensor(outside)
    found = []
    for zone, ratios in times.items():
        share = float((ratios >= (1 if zone == OUTSIDE else SUSPECT)).float().mean())
        if share >= TYPICAL:
            found.append((zone, float(ratios.median()), share))
    return sorted(found, key=lambda one: -one[1])


def _zones(height: int, width: int) -> dict[str, Tensor]:
    """Where the border and the corners are."""

    def find_sides(share: float) -> tuple[Tensor, ...]:
        rows, columns = (max(1, round(share * side)) for side in (height, width))
        down, across = torch.arange(height)[:, None], torch.arange(width)
        return down < rows, down >= height - rows, across < columns, across >= width - columns

    top, bottom, left, right = find_sides(FRAME)
    zones = {"border": top | bottom | left | right}
    top, bottom, left, right = find_sides(2 * FRAME)
    zones |= {"top left": top & left, "top right": top & right}
    return zones | {"bottom left": bottom & left, "bottom right": bottom & right}


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
    strips = [describe_class(c) for c in summary.classes[:MOST_SHOWN]]
    if len(rows) > len(strips):
        left_out = len(rows) - len(strips)
        notes.append(f"Maps of the {len(strips)} largest classes; {left_out} more in the table.")
    title = f"What {summary.model or 'the model'} looks at, by class"
    table = [[_write_cell(row[column]) for column in HEADINGS] for row in rows]
    return write_summary_page(folder / PAGE, title, notes, [*HEADINGS.values()], table, strips)


def describe_class(c: ClassSummary) -> dict[str, Any]:
    """The class's maps, then prototypes and outliers, as a row of panels."""
    maps = {"mean map": c.mean_map, "class map (SEA)": c.class_map}
    if c.disagreement is not None:
        maps["members disagree"] = c.disagreement
    panels = [describe_panel(title, _flatten(values)) for title, values in maps.items()]
    for kind in ("prototype", "outlier"):
        for id_ in c.row[f"{kind}s"]:
            panels.append(describe_example(f"{kind}: {os.path.basename(id_)}", *c.examples[id_]))
    note = f"Likely shortcuts: {c.row['shortcuts']} of the inputs." if c.shortcuts else ""
    return {"title": c.row["name"], "note": note, "panels": panels}


def describe_example(title: str, thumbnail: Tensor | None, small: Tensor) -> dict[str, Any]:
    """One input as a panel: its map over its small picture, or alone."""
    if thumbnail is None or small.ndim == 1:
        return describe_panel(title, _flatten(small))
    if small.ndim == 3:
        small = small[len(small) // 2]  # the slice that the picture shows
    size = (int(thumbnail.shape[0]), int(thumbnail.shape[1]))
    large = interpolate(small[None, None].float(), size, mode="area")[0, 0]
    return describe_panel(title, large, thumbnail.expand(-1, -1, 3).to(torch.uint8).numpy())


def _flatten(values: Tensor) -> Tensor:
    return values.amax(0) if values.ndim == 3 else values  # a volume, seen along its depth


def _write_cell(value: Any) -> str | None:
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return None if value in (None, "") else text
