"""``read_dataset``: the results of a run, finished or not, by id or as a table.

data = read_dataset("out")
data["cat.jpg"].map             # float32 [H, W]
data.to_pandas()
data.select(correct=False, sort="-score")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset

from sea_nn.datasets import storage
from sea_nn.datasets.manifest import Manifest
from sea_nn.datasets.shard import widen
from sea_nn.datasets.storage import COLUMNS, MANIFEST, Array
from sea_nn.datasets.summary import Summary, summarize
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import check_path
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import Provenance
from sea_nn.extras import import_extra
from sea_nn.features import scale


@dataclass(frozen=True)
class ExplainedInput:
    """One input of a run: its row, and its tensors, read when they are asked for.

    ``row["error"]`` is None if it was explained; ``methods`` are the members' names.
    """

    row: Mapping[str, Any]
    _data: ExplainedDataset

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.row["id"])

    @property
    def methods(self) -> tuple[str, ...]:
        """The members that explained it."""
        return tuple(self.row["methods"] or ())

    @property
    def map(self) -> Tensor:
        """The SEA map, float32 [H, W], [F] or [C, T]."""
        return widen(self._get("map")) * float(self.row["map_max"])

    @property
    def members(self) -> Tensor | None:
        """The members' heatmaps, float32 [m, *shape]; None if the run did not keep them."""
        found = self._tensors.get("members")
        return None if found is None else widen(found)

    @property
    def top(self) -> Tensor:
        """The first features as greedy took them, int64 [k]."""
        return torch.from_numpy(self._get("top").astype(np.int64))

    @property
    def thumbnail(self) -> Tensor | None:
        """The input as a small picture, uint8 [h, w, 3]; None if it is none."""
        found = self._tensors.get("thumbnail")
        return None if found is None else torch.from_numpy(found).expand(-1, -1, 3)

    def _get(self, name: str) -> Array:
        if not self._tensors:
            raise InputError(f"{self.id} has no map: {self.row['error']}")
        return self._tensors[name]

    @property
    def _tensors(self) -> Mapping[str, Array]:
        """What is stored of it, none if it failed."""
        number, data = self.row["index"], self._data
        return data._load(number // data.manifest.shard_size).get(number, {})

    def to_explanation(self) -> Explanation:
        """For reports and plots; order and gains are read off the stored map.

        A run that did not keep its members' maps shows its own map in their place.
        """
        values, manifest = self.map, self._data.manifest
        sea, flat = manifest.sea, values.flatten()
        order = flat.argsort(descending=True, stable=True)
        members, methods = self.members, self.methods
        if members is None:
            members, methods = scale(values.unsqueeze(0)), ("SEA's own map",)
        name = self.row["target_name"] or f"class {self.row['target']}"
        picture = self.thumbnail if manifest.kind.view == "picture" else None
        if picture is not None:
            large = interpolate(picture.permute(2, 0, 1)[None].float(), tuple(values.shape))
            picture = large.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
        return Explanation(
            attribution=values[None] if manifest.kind.channels is None else values[None, None],
            maps=members[None],
            methods=methods,
            target=torch.tensor([self.row["target"]]),
            score=torch.tensor([self.row["score"]]),
            order=order[None],
            gains=flat[order][None],
            feature_shape=tuple(values.shape),
            images=picture,
            labels=(f"{name} ({self.id})",),
            feature_names=tuple(manifest.feature_names) or None,
            provenance=Provenance(
                config=sea["config"],
                members=sea["members"],
                call={"output": sea["output"]},
                versions=manifest.versions,
                seed=sea["seed"],
                evaluations={"all": self.row["evaluations"]},
                model=manifest.model_name,
                device=manifest.device,
                created=manifest.created,
            ),
        )


class ExplainedDataset:
    """The results of a run. It sees the shards that were committed when it was opened."""

    def __init__(self, out: str | Path) -> None:
        self.out = check_path(out).expanduser().resolve()
        self.manifest = Manifest.read(self.out)
        self.shards = storage.list_committed(self.out)
        self._shard = lru_cache(64)(partial(storage.read_rows, self.out))
        self._load = lru_cache(8)(lambda k: storage.read_tensors(self.out, k, self._shard(k)[1]))

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.manifest.count} explained inputs in {self.out}>"

    def __len__(self) -> int:
        return sum(len(self.manifest.numbers(shard)) for shard in self.shards)

    @property
    def ids(self) -> list[str]:
        """The ids of the inputs that have a row."""
        return list(self._numbers)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._numbers

    def __getitem__(self, id_: str) -> ExplainedInput:
        """One input by its id."""
        if id_ not in self._numbers:
            raise InputError(
                f"there is no input {id_!r} in {self.out}, or it is not explained yet: "
                f"{len(self)} of {self.manifest.count} are"
            )
        shard, place = divmod(self._numbers[id_], self.manifest.shard_size)
        return ExplainedInput(self._shard(shard)[0].slice(place, 1).to_pylist()[0], self)

    def __iter__(self) -> Iterator[ExplainedInput]:
        """All inputs in order, a shard at a time."""
        for shard in self.shards:
            for row in self._shard(shard)[0].to_pylist():
                yield ExplainedInput(row, self)

    def select(self, *, sort: str | None = None, **wanted: Any) -> list[str]:
        """The ids of the inputs that a gallery shows.

        Args:
            sort: a column, "-" before it for the largest first; rows without a value come last.
            **wanted: a column and its value; a pair of numbers is a range, ends included, and None
                means no value. ``failed=True`` takes those with an error, ``checked=False`` those
                with a failed check.

        >>> data.select(correct=False, sort="-score")     # doctest: +SKIP
        >>> data.select(target=3, agreement=(-1, 0.2))          # doctest: +SKIP
        """
        column, down = (sort or "index").lstrip("-"), (sort or "").startswith("-")
        known = [*COLUMNS, "seconds", "failed", "checked"]
        for name in (*wanted, column):
            if name not in known:
                raise InputError(f"there is no column {name!r}; known are {', '.join(known)}")
        rows = self.to_arrow().to_pylist()
        for row in rows:
            row |= {"failed": row["error"] is not None, "checked": not row["checks"]}
        for name, want in wanted.items():
            if isinstance(want, tuple):
                rows = [row for row in rows if row[name] is not None]
                rows = [row for row in rows if want[0] <= row[name] <= want[1]]
            else:
                rows = [row for row in rows if row[name] == want]
        there = [row for row in rows if row[column] is not None]
        there.sort(key=lambda row: row[column], reverse=down)
        return [row["id"] for row in (*there, *(row for row in rows if row[column] is None))]

    def to_arrow(self) -> Any:
        """All rows as one Arrow table, with the seconds that each input took."""
        pa = storage.import_arrow()
        parts = {shard: self._shard(shard)[0] for shard in self.shards}
        table = pa.concat_tables([storage.row_schema().empty_table(), *parts.values()])
        commits = (e for e in storage.read_log(self.out) if e.get("event") == "commit")
        each = {e["shard"]: e["seconds"] / max(1, e["n_inputs"]) for e in commits}
        seconds = [each.get(shard) for shard, part in parts.items() for _ in range(len(part))]
        return table.append_column("seconds", pa.array(seconds, pa.float32()))

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        return import_extra("pandas", "this table") and self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame."""
        return import_extra("polars", "this table").from_arrow(self.to_arrow())

    def to_torch(self) -> TorchDataset:
        """The explained inputs as a data set of dicts: map, target, score, id."""
        return TorchDataset(self)

    def to_explanations(self, limit: int = 200) -> list[Explanation]:
        """The first ``limit`` explained inputs, for reports and plots."""
        ids = self.select(failed=False)[:limit]
        if not ids:
            raise InputError(f"{self.out} holds no explained inputs yet")
        return [self[id_].to_explanation() for id_ in ids]

    def verify(self) -> list[int | str]:
        """The shards with a byte that is not what was written, and names of other such files.

        Every byte of the run's files is looked at but for those of ``summary``.
        """
        events = storage.read_log(self.out)
        damaged = {event["file"] for event in events if event["event"] == "damaged"}
        try:
            Manifest.read(self.out)
        except InputError:
            damaged.add(MANIFEST)
        whole = storage.find_whole(self.out, lambda rows, facts: facts["run"])
        shards = (k for k in self.shards if whole.get(k) != self.manifest.key)
        return [*shards, *sorted(damaged)]

    def summary(self, **options: Any) -> Summary:
        """What the explanations say by class; see ``sea_nn.datasets.summary.summarize``."""
        return summarize(self, **options)

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        parts = ((k, storage.read_rows(self.out, k, ["id"])[0]) for k in self.shards)
        ids = ((self.manifest.numbers(k), rows["id"].to_pylist()) for k, rows in parts)
        return {id_: n for numbers, some in ids for n, id_ in zip(numbers, some, strict=True)}


class TorchDataset(Dataset[dict[str, Any]]):
    """Explained inputs for a DataLoader; those with an error are left out."""

    def __init__(self, data: ExplainedDataset) -> None:
        self.data, self.ids = data, data.select(failed=False)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        one = self.data[self.ids[index]]
        row = {name: one.row[name] for name in ("target", "score", "id")}
        return {"map": one.map, **row}


def read_dataset(out: str | Path) -> ExplainedDataset:
    """Open the folder that ``explain_dataset`` or ``sea run`` wrote, finished or not."""
    return ExplainedDataset(out)
