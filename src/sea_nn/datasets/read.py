"""``read_dataset``: the results of a run, finished or not, by id or as a table.

data = read_dataset("out")
data["cat.jpg"].map             # float32 [H, W]
data.to_pandas()
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from torch.utils.data import Dataset

from sea_nn.datasets.arrow import import_arrow
from sea_nn.datasets.plan import Manifest
from sea_nn.datasets.shard import widen
from sea_nn.datasets.storage import (
    list_committed,
    read_facts,
    read_inputs,
    read_log,
    read_rows,
    row_schema,
    rows_path,
    tensors_path,
)
from sea_nn.datasets.summary import Summary, summarize
from sea_nn.errors import InputError, MissingExtraError


@dataclass(frozen=True)
class ExplainedInput:
    """One input of a run: its row, and its tensors, read when they are asked for.

    Attributes:
        row: the columns of its row; ``row["error"]`` is None if it was explained.
        methods: the members' names.
    """

    row: Mapping[str, Any]
    methods: tuple[str, ...]
    _path: Path

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.row["id"])

    @cached_property
    def map(self) -> Tensor:
        """The SEA map, float32 [H, W], [F] or [C, T]."""
        return widen(self._read("map")) * float(self._read("map_max"))

    @cached_property
    def members(self) -> Tensor | None:
        """The members' heatmaps, float32 [m, *shape]; None if the run did not keep them."""
        values = self._read("members", optional=True)
        return None if values is None else widen(values)

    @cached_property
    def top(self) -> Tensor:
        """The first features as greedy took them, int64 [k]."""
        return torch.from_numpy(self._read("top").astype(np.int64))

    @cached_property
    def thumbnail(self) -> Tensor | None:
        """The input as a small picture, uint8 [h, w, 3]; None if it is none."""
        values = self._read("thumbnail", optional=True)
        return None if values is None else torch.from_numpy(values).expand(-1, -1, 3)

    def _read(self, name: str, optional: bool = False) -> Any:
        place = self.row["place"]
        if place is None:
            if optional:
                return None
            raise InputError(f"{self.id} has no map: {self.row['error']}")
        with safe_open(self._path, framework="numpy") as file:
            if optional and name not in file.keys():  # noqa: SIM118
                return None
            # numpy has no scalars in slices of one axis: a slice of one row, then its only entry.
            return file.get_slice(name)[place : place + 1][0]


class ExplainedDataset:
    """The results of a run. It sees the shards that were committed when it was opened."""

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out).expanduser().resolve()
        self.manifest = Manifest.read(self.out)
        self.shards = list_committed(self.out)

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.manifest.count} explained inputs in {self.out}>"

    def __len__(self) -> int:
        return sum(len(self.manifest.numbers(shard)) for shard in self.shards)

    @property
    def complete(self) -> bool:
        """Whether every input has a row."""
        return len(self) == self.manifest.count

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the inputs that have a row."""
        every = read_inputs(self.out, ["id"])["id"].to_pylist()
        return [every[n] for shard in self.shards for n in self.manifest.numbers(shard)]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._numbers and self._numbers[id_] // self._size in self._there

    def __getitem__(self, id_: str) -> ExplainedInput:
        """One input by its id."""
        if id_ not in self._numbers:
            raise InputError(f"there is no input {id_!r} in {self.out}")
        number = self._numbers[id_]
        shard = number // self._size
        if shard not in self._there:
            raise InputError(f"{id_!r} is not explained yet: the run stopped before shard {shard}")
        rows, facts = self._shard(shard)
        row = rows.slice(number - shard * self._size, 1).to_pylist()[0]
        return self._wrap(row, facts, shard)

    def __iter__(self) -> Iterator[ExplainedInput]:
        """All inputs in order, a shard at a time."""
        for shard in self.shards:
            rows, facts = self._shard(shard)
            for row in rows.to_pylist():
                yield self._wrap(row, facts, shard)

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """All rows as one Arrow table, with the seconds that each input took."""
        pa = import_arrow()
        schema = row_schema()
        wanted = None if columns is None else [c for c in columns if c != "seconds"]
        if not self.shards:
            empty = schema.empty_table()
            return empty if wanted is None else empty.select(wanted)
        parts = [read_rows(self.out, shard, wanted) for shard in self.shards]
        table = pa.concat_tables([part.replace_schema_metadata(None) for part in parts])
        if columns is not None and "seconds" not in columns:
            return table
        seconds = self._seconds
        column = [
            seconds.get(s) for s, p in zip(self.shards, parts, strict=True) for _ in range(len(p))
        ]
        return table.append_column("seconds", pa.array(column, pa.float32()))

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"this needs pandas ({error}): pip install pandas") from error
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame."""
        try:
            import polars
        except ImportError as error:
            raise MissingExtraError(f"this needs polars ({error}): pip install polars") from error
        return polars.from_arrow(self.to_arrow())

    def to_torch(self) -> TorchDataset:
        """The explained inputs as a data set of dicts: map, target, probability, id."""
        return TorchDataset(self)

    def read_shard(self, shard: int) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
        """The rows of a shard, and its tensors: "map" and "members" widened, the rest as stored."""
        rows, facts = self._shard(shard)
        tensors: dict[str, Tensor] = {}
        with safe_open(self._tensors(shard, facts), framework="numpy") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, values in stored.items():
            if name == "map":
                largest = torch.from_numpy(stored["map_max"])
                wide = widen(values)
                tensors[name] = wide * largest.reshape(-1, *(1,) * (wide.ndim - 1))
            elif name == "members":
                tensors[name] = widen(values)
            elif name == "top":
                tensors[name] = torch.from_numpy(values.astype(np.int64))
            else:
                tensors[name] = torch.from_numpy(values)
        return rows.to_pylist(), tensors

    def verify(self) -> list[int]:
        """The shards whose tensor file is not the one that was written, by its hash."""
        wrong = []
        for shard in self.shards:
            facts = read_facts(rows_path(self.out, shard))
            path = self._tensors(shard, facts)
            content = path.read_bytes() if path.is_file() else b""
            if hashlib.sha256(content).hexdigest() != facts["sha256"]:
                wrong.append(shard)
        return wrong

    def summary(self, **options: Any) -> Summary:
        """What the explanations say by class; see ``sea_nn.datasets.summary.summarize``."""
        return summarize(self, **options)

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        ids = read_inputs(self.out, ["id"])["id"].to_pylist()
        return {id_: number for number, id_ in enumerate(ids)}

    @cached_property
    def _there(self) -> frozenset[int]:
        return frozenset(self.shards)

    @property
    def _size(self) -> int:
        return self.manifest.settings.shard_size

    @cached_property
    def _seconds(self) -> dict[int, float]:
        events = (e for e in read_log(self.out) if e.get("event") == "commit")
        return {int(e["shard"]): float(e["each"]) for e in events}

    @cached_property
    def _shard(self) -> Any:
        @lru_cache(4)
        def read(shard: int) -> tuple[Any, dict[str, Any]]:
            return read_rows(self.out, shard), read_facts(rows_path(self.out, shard))

        return read

    def _tensors(self, shard: int, facts: Mapping[str, Any]) -> Path:
        return tensors_path(self.out, shard).with_name(facts["tensors"])

    def _wrap(self, row: dict[str, Any], facts: Mapping[str, Any], shard: int) -> ExplainedInput:
        return ExplainedInput(row, tuple(facts["methods"]), self._tensors(shard, facts))


class TorchDataset(Dataset[dict[str, Any]]):
    """Explained inputs for a DataLoader; those with an error are left out."""

    def __init__(self, data: ExplainedDataset) -> None:
        self.data = data
        table = data.to_arrow(["id", "error"]).to_pydict()
        self.ids = [i for i, e in zip(table["id"], table["error"], strict=True) if e is None]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        one = self.data[self.ids[index]]
        return {
            "map": one.map,
            "target": one.row["target"],
            "probability": one.row["probability"],
            "id": one.id,
        }


def read_dataset(out: str | Path) -> ExplainedDataset:
    """Open the folder that ``explain_dataset`` or ``sea run`` wrote, finished or not."""
    return ExplainedDataset(out)
