"""What a run over a data set has explained, to browse: filters, sorting, pages, one opened."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.app.views import encode_explanation, to_url
from sea_nn.datasets.read import ExplainedDataset, ExplainedInput, read_dataset
from sea_nn.errors import InputError
from sea_nn.explanation.explanation import Explanation
from sea_nn.show.panels import blend, heat, name_method, paint
from sea_nn.show.plots import plot_explanation

PAGE = 30
SIDE = 112
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

    def show(self, ids: list[str], page: int = 0) -> dict[str, Any]:
        """One page of thumbnails, with what is known of each."""
        pages = max(1, -(-len(ids) // PAGE))
        page = min(max(page, 0), pages - 1)
        part = ids[page * PAGE : (page + 1) * PAGE]
        return {
            "count": len(ids),
            "done": len(self.data),
            "of": self.data.manifest.count,
            "page": page,
            "pages": pages,
            "items": [_encode(self.data[id_]) for id_ in part],
        }

    def open(self, id_: str) -> dict[str, Any]:
        """Everything about one input."""
        one = self.data[id_]
        facts = _encode(one) | {"checks": [_to_words(check) for check in one.row["checks"] or ()]}
        truth, names = one.row["label"], self.data.manifest.labels
        facts["truth"] = names[truth] if truth is not None and truth < len(names) else None
        if one.row["error"] is not None:
            return facts
        e = one.to_explanation()
        facts |= {"kind": e.kind, "keep": one.row["keep"], "remove": one.row["remove"]}
        if e.images is None:  # bars, lines or slices
            facts["figure"] = _draw_figure(e)
            return facts
        found = encode_explanation(e)
        found |= {"order": [], "gains": []}  # of every pixel: nobody reads them here
        if one.members is None:
            found["layers"] = found["layers"][:1]
        facts["map"] = found
        facts["picture"] = facts["hidden"] = to_url(e.images[0])
        return facts

    def read(self, id_: str) -> tuple[str, bytes] | None:
        """The input's own file, if it still lies where the run found it."""
        path = self.data[id_].row["path"]
        if path is None or not Path(path).is_file():
            return None
        return id_, Path(path).read_bytes()


def _encode(one: ExplainedInput) -> dict[str, Any]:
    row = one.row
    return {
        "id": one.id,
        "label": row["target_name"] or f"class {row['target']}",
        "score": row["score"],
        "correct": row["correct"],
        "agreement": _finite(row["agreement"]),
        "failed": len(row["checks"] or ()),
        "error": row["error"],
        "url": None if row["error"] else _draw(one),
    }


def _draw(one: ExplainedInput) -> str:
    """The map over the thumbnail, or alone."""
    values, thumbnail = one.map, one.thumbnail
    if one.view == "slices":
        values = values[len(values) // 2]  # the slice that the thumbnail shows
    elif one.view == "bars":
        values = values.unsqueeze(0)
    if thumbnail is None:
        painted = paint(heat(values, 0))
        side = (SIDE, SIDE)
        drawn = torch.from_numpy(painted).permute(2, 0, 1)[None].float()
        painted = interpolate(drawn, side, mode="nearest")[0].permute(1, 2, 0).numpy()
        return to_url(_to_bytes(painted))
    size = (int(thumbnail.shape[0]), int(thumbnail.shape[1]))
    small = interpolate(values[None, None].float(), size, mode="area")[0, 0]
    return to_url(_to_bytes(blend(thumbnail.contiguous().numpy(), heat(small, 0))), SIDE)


def _draw_figure(e: Explanation) -> str:
    data = base64.b64encode(plot_explanation(e)._repr_png_()).decode()
    return f"data:image/png;base64,{data}"


def _to_bytes(painted: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy((painted * 255).round().astype(np.uint8))


def _to_words(check: str) -> str:
    """A row's check in words; rows hold flat maps, as "NAME: flat"."""
    name, _, found = check.partition(": ")
    said = "its map is the same everywhere, so it does not count" if found == "flat" else found
    return f"{name_method(name)}: {said}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
