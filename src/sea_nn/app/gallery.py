"""What a run over a data set has explained, to browse: filters, sorting, pages, one opened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sea_nn.app.uploads import MOST_BYTES
from sea_nn.datasets.read import ExplainedDataset, ExplainedInput, read_dataset
from sea_nn.datasets.storage import read_inputs
from sea_nn.errors import InputError
from sea_nn.show.panels import name_method
from sea_nn.show.viewer.describe import describe_one, describe_panel

PAGE = 30
SORTS = {
    "as they come": None,
    "least agreement first": "agreement",
    "lowest score first": "score",
    "highest score first": "-score",
}
FILTERS = ("all", "wrong", "members disagree", "failed checks", "no map")
ANY = -1  # every class
LITTLE = 0.2
"""Members that agree less than this, by the mean of their rank correlations, disagree."""


class Gallery:
    """The results in a folder that ``sea run`` wrote, or is writing."""

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.data = read_dataset(self.out)

    def refresh(self) -> None:
        """See what has been explained since."""
        self.data = ExplainedDataset(self.out)

    def classes(self) -> list[tuple[str, int]]:
        """Every class, and those that were explained, by name."""
        table = self.data.to_arrow().to_pydict()
        pairs = zip(table["target"], table["target_name"], strict=True)
        found = {t: name or f"class {t}" for t, name in pairs if t is not None}
        named = sorted(((name, t) for t, name in found.items()), key=lambda pair: pair[0])
        return [("every class", ANY), *named]

    def select(
        self, which: str = "all", target: int = ANY, sort: str = "as they come"
    ) -> list[str]:
        """The ids of the inputs to show."""
        if which not in FILTERS or sort not in SORTS:
            raise InputError(f"there is no filter {which!r:.40} or order {sort!r:.40}")
        wanted: dict[str, Any] = {"failed": which == "no map"}
        if which == "wrong":
            wanted["correct"] = False
        elif which == "members disagree":
            wanted["agreement"] = (-1.0, LITTLE)
        elif which == "failed checks":
            wanted["checked"] = False
        if target != ANY:
            wanted["target"] = target
        return self.data.select(sort=SORTS[sort], **wanted)

    def show(self, ids: list[str], page: int = 1) -> tuple[list[dict[str, Any]], str, int]:
        """The panels of one page, what it is a page of, and how many pages there are."""
        pages = max(1, -(-len(ids) // PAGE))
        page = min(max(page, 1), pages)
        part = ids[(page - 1) * PAGE : page * PAGE]
        done, every = len(self.data), self.data.manifest.count
        said = f"{len(ids):,} shown; {done:,} of {every:,} inputs explained."
        return [_describe(self.data[id_]) for id_ in part], said, pages

    def open(self, id_: str) -> tuple[str, dict[str, Any] | None]:
        """What is known of one input, in words, and its explanation for the viewer."""
        one = self.data[id_]
        row = one.row
        if row["error"] is not None:
            return f"{id_}: {row['error']}", None
        said = [f"{id_}: the model says {_name(row)}"]
        if row["correct"] is False:
            names, truth = self.data.manifest.labels, row["label"]
            known = truth is not None and 0 <= truth < len(names)
            said.append(f"which is wrong{f': it is {names[truth]}' if known else ''}")
        checks = "; ".join(_to_words(check) for check in row["checks"] or ())
        return ", ".join(said) + (
            f". Failed checks: {checks}" if checks else ""
        ) + ".", describe_one(one.to_explanation())

    def read(self, id_: str) -> tuple[str, bytes] | None:
        """The input's own file, if it is still the one that the run explained.

        No row can name another file: the path must be that of the run's list of inputs, and what
        lies there must have the hash that the list has.
        """
        path, known = self.data[id_].row["path"], read_inputs(self.out)
        places = [k for k, one in enumerate(known["id"]) if one == id_]
        if path is None or not places or known["path"][places[0]] != path:
            return None
        file = Path(path)
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return None
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest()[:16] not in str(known["digest"][places[0]]):
            return None
        return id_, content


def _name(row: Mapping[str, Any]) -> str:
    name = row["target_name"] or f"class {row['target']}"
    return name if row["score"] is None else f"{name} {row['score']:.2f}"


def _describe(one: ExplainedInput) -> dict[str, Any]:
    """The map over the thumbnail, or alone, with what is known of the input."""
    row, view = one.row, one.view
    if row["error"] is not None:
        return {"id": one.id, "title": "error", "note": row["error"]}
    agreement = row["agreement"]
    facts = [
        "wrong" if row["correct"] is False else "",
        f"agree {agreement:.2f}" if agreement is not None and np.isfinite(agreement) else "",
        f"{len(row['checks'])} failed checks" if row["checks"] else "",
    ]
    values, thumbnail = one.map, one.thumbnail
    if view == "slices":
        values = values[len(values) // 2]  # the slice that the thumbnail shows
    if values.ndim == 2 and view != "lines" and thumbnail is not None:
        size = (min(values.shape[0], thumbnail.shape[0]), min(values.shape[1], thumbnail.shape[1]))
        values = torch.nn.functional.adaptive_avg_pool2d(values[None, None].float(), size)[0, 0]
    image = None if thumbnail is None else thumbnail.expand(-1, -1, 3).contiguous().numpy()
    panel = describe_panel(_name(row), values, image)
    return panel | {"id": one.id, "note": ", ".join(filter(None, facts))}


def _to_words(check: str) -> str:
    """A row's check in words; rows hold flat maps, as "NAME: flat"."""
    name, _, found = check.partition(": ")
    said = "its map is the same everywhere, so it does not count" if found == "flat" else found
    return f"{name_method(name)}: {said}"
