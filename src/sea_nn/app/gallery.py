"""What a run over a data set has explained, to browse: filters, sorting, pages, one opened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sea_nn.app.uploads import MOST_BYTES
from sea_nn.datasets.read import ExplainedInput, read_dataset
from sea_nn.datasets.summary import describe_example
from sea_nn.show.panels import name_method
from sea_nn.show.viewer.describe import describe_one

PAGE = 30
SORTS = {
    "as they come": None,
    "least agreement first": "agreement",
    "lowest score first": "score",
    "highest score first": "-score",
}
LITTLE = 0.2
"""Members that agree less than this, by the mean of their rank correlations, disagree."""
FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "wrong": {"correct": False},
    "members disagree": {"agreement": (-1.0, LITTLE)},
    "failed checks": {"checked": False},
    "no map": {"failed": True},
}
ANY = -1  # every class


class Gallery:
    """The results in a folder that ``sea run`` wrote, or is writing."""

    def __init__(self, out: str | Path) -> None:
        self.data = read_dataset(out)

    def refresh(self) -> None:
        """See what has been explained since."""
        self.data = read_dataset(self.data.out)

    def classes(self) -> list[tuple[str, int]]:
        """Every class, and those that were explained, by name."""
        table = self.data.to_arrow().to_pydict()
        pairs = zip(table["target"], table["target_name"], strict=True)
        found = {t: name or f"class {t}" for t, name in pairs if t is not None}
        return [("every class", ANY), *sorted((name, t) for t, name in found.items())]

    def select(
        self, which: str = "all", target: int = ANY, sort: str = "as they come"
    ) -> list[str]:
        """The ids of the inputs to show."""
        wanted = {"failed": False, **FILTERS[which]}
        if target != ANY:
            wanted["target"] = target
        return self.data.select(sort=SORTS[sort], **wanted)

    def show(self, ids: list[str], page: int = 1) -> tuple[list[dict[str, Any]], str, int, int]:
        """The panels of one page, what it is a page of, its number, and how many there are."""
        pages = max(1, -(-len(ids) // PAGE))
        page = min(max(page, 1), pages)
        part = ids[(page - 1) * PAGE : page * PAGE]
        done, every = len(self.data), self.data.manifest.count
        said = f"{len(ids):,} shown; {done:,} of {every:,} inputs explained."
        return [_describe(self.data[id_]) for id_ in part], said, page, pages

    def open(self, id_: str) -> tuple[str, dict[str, Any] | None]:
        """What is known of one input, in words, and its explanation for the viewer."""
        one = self.data[id_]
        row, names = one.row, self.data.manifest.labels
        if row["error"] is not None:
            return f"{id_}: {row['error']}", None
        said = f"{id_}: the model says {_name(row)}"
        if row["correct"] is False:
            truth = row["label"]
            known = truth is not None and 0 <= truth < len(names)
            said += f", which is wrong{f': it is {names[truth]}' if known else ''}"
        if row["checks"]:
            said += f". Failed checks: {'; '.join(map(_to_words, row['checks']))}"
        return f"{said}.", describe_one(one.to_explanation())

    def read(self, id_: str) -> tuple[str, bytes] | None:
        """The input's own file, if it is still the one that the run explained.

        No row can name another file: what lies there must have the hash that the row has.
        """
        row = self.data[id_].row
        file = Path(row["path"] or "")
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return None
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest()[:16] not in row["digest"]:
            return None
        return id_, content


def _name(row: Mapping[str, Any]) -> str:
    name = row["target_name"] or f"class {row['target']}"
    return name if row["score"] is None else f"{name} {row['score']:.2f}"


def _describe(one: ExplainedInput) -> dict[str, Any]:
    """The map over the thumbnail, or alone, with what is known of the input."""
    row, agreement = one.row, one.row["agreement"]
    if row["error"] is not None:
        return {"id": one.id, "title": "error", "note": row["error"]}
    facts = [
        "wrong" if row["correct"] is False else "",
        f"agree {agreement:.2f}" if agreement is not None else "",
        f"{len(row['checks'])} failed checks" if row["checks"] else "",
    ]
    panel = describe_example(_name(row), one.thumbnail, one.map)
    return panel | {"id": one.id, "note": ", ".join(filter(None, facts))}


def _to_words(check: str) -> str:
    """A row's check in words; rows hold flat maps, as "NAME: flat"."""
    name, _, found = check.partition(": ")
    said = "its map is the same everywhere, so it does not count" if found == "flat" else found
    return f"{name_method(name)}: {said}"
