"""Where a run keeps its results, and how a shard appears there: whole, or not at all.

    OUT/manifest.json                 what the run is
    OUT/inputs.parquet                the ids, paths and content hashes of all inputs
    OUT/tensors/0000/0000012.safetensors   maps of shard 12
    OUT/rows/0000/0000012.parquet     its rows; this file commits the shard, so it comes last
    OUT/log/*.jsonl                   who did what, when, and in how many seconds

Rows name the tensor file that they belong to, so a shard can be replaced by one rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import save as serialize

from sea_nn.datasets.arrow import import_arrow
from sea_nn.datasets.items import Source
from sea_nn.datasets.plan import INPUTS
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import remove_stale, write_atomically

KEY = b"sea_nn"
Array = np.ndarray[Any, Any]


class BusyError(SEAError, RuntimeError):
    """Another run is at work on the same folder."""


@dataclass(frozen=True)
class Rows:
    """What is known of a shard: one dict an input, and the maps of those that were explained.

    Attributes:
        rows: by input, its columns; ``place`` is its number among the tensors, None if it failed.
        tensors: arrays whose first axis is the place.
        methods: the members' names.
    """

    rows: list[dict[str, Any]]
    tensors: dict[str, Array]
    methods: tuple[str, ...]


def row_schema() -> Any:
    """The columns of a row, in Arrow's types."""
    pa = import_arrow()
    numbers = pa.list_(pa.float32())
    return pa.schema(
        [
            ("index", pa.int64()),
            ("id", pa.string()),
            ("path", pa.string()),
            ("label", pa.int32()),
            ("target", pa.int32()),
            ("target_name", pa.string()),
            ("probability", pa.float32()),
            ("predicted", pa.int32()),
            ("correct", pa.bool_()),
            ("agreement", pa.float32()),
            ("checks", pa.list_(pa.string())),
            ("keep", numbers),
            ("remove", numbers),
            ("evaluations", pa.int32()),
            ("error", pa.string()),
            ("error_kind", pa.string()),
            ("place", pa.int32()),
        ]
    )


def rows_path(out: Path, shard: int) -> Path:
    """The Parquet part that commits a shard."""
    return out / "rows" / f"{shard // 1000:04d}" / f"{shard:07d}.parquet"


def tensors_path(out: Path, shard: int, version: int = 0) -> Path:
    """The tensor file of a shard; a retry writes one of another version."""
    suffix = f".{version}" if version else ""
    return out / "tensors" / f"{shard // 1000:04d}" / f"{shard:07d}{suffix}.safetensors"


def commit(out: Path, shard: int, found: Rows, version: int = 0) -> int:
    """Write a shard: tensors first, then the rows, whose rename makes it count; return bytes."""
    pa = import_arrow()
    content = serialize(found.tensors, {"sea_nn": json.dumps({"methods": found.methods})})
    place = tensors_path(out, shard, version)
    with write_atomically(place) as file:
        file.write(content)
    facts = {
        "shard": shard,
        "tensors": place.name,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "methods": list(found.methods),
    }
    table = pa.Table.from_pylist(found.rows, schema=row_schema())
    table = table.replace_schema_metadata({KEY: json.dumps(facts)})
    target = rows_path(out, shard)
    with write_atomically(target) as file:
        pa.parquet.write_table(table, file, compression="zstd")
    return len(content) + target.stat().st_size


def read_facts(path: Path) -> dict[str, Any]:
    """What a committed part says of its shard."""
    metadata = import_arrow().parquet.read_metadata(path).metadata or {}
    facts: dict[str, Any] = json.loads(metadata[KEY])
    return facts


def is_whole(out: Path, shard: int) -> bool:
    """Whether a shard is committed and its two files have the sizes that they should have."""
    path = rows_path(out, shard)
    try:
        facts = read_facts(path)
        place = tensors_path(out, shard).with_name(facts["tensors"])
        return bool(place.stat().st_size == facts["bytes"])
    except (OSError, KeyError, ValueError):  # pyarrow's errors are ValueErrors and OSErrors
        return False


def list_committed(out: Path, check: bool = False) -> list[int]:
    """The shards that are there, in order; with ``check``, only those whose files are whole."""
    found = []
    for folder in sorted((out / "rows").glob("[0-9]*")):
        for name in sorted(os.listdir(folder)):
            stem, dot, suffix = name.partition(".")
            if dot and suffix == "parquet" and stem.isdecimal():
                found.append(int(stem))
    return [shard for shard in found if is_whole(out, shard)] if check else found


def remove_drafts(out: Path) -> None:
    """Remove what ended processes left half-written."""
    for folder in (out, *out.glob("rows/*"), *out.glob("tensors/*")):
        remove_stale(folder)


def read_rows(out: Path, shard: int, columns: Sequence[str] | None = None) -> Any:
    """The rows of a committed shard, an Arrow table."""
    path = rows_path(out, shard)
    if not path.is_file():
        raise InputError(f"shard {shard} of {out} is not explained yet")
    return import_arrow().parquet.ParquetFile(path).read(columns=columns)


def write_inputs(out: Path, source: Source) -> None:
    """Write the ids, paths and hashes of all inputs."""
    pa = import_arrow()
    digests, nothing = source.digests, [None] * len(source)
    table = pa.table(
        {
            "id": pa.array(list(source.ids), pa.string()),
            "path": pa.array(nothing if source.paths is None else list(source.paths), pa.string()),
            "digest": pa.array(nothing if isinstance(digests, str) else list(digests), pa.string()),
        }
    )
    with write_atomically(out / INPUTS) as file:
        pa.parquet.write_table(table, file, compression="zstd")


def read_inputs(out: Path, columns: Sequence[str] | None = None) -> Any:
    """The table that ``write_inputs`` wrote."""
    return import_arrow().parquet.read_table(out / INPUTS, columns=columns)


class Log:
    """One file of events for each process that works on a run."""

    def __init__(self, out: Path) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        (out / "log").mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = (out / "log" / f"{self.name}.jsonl").open("a", encoding="utf-8")

    def write(self, event: str, **facts: Any) -> None:
        """Append an event with the time."""
        line = {"time": round(time.time(), 3), "event": event, **facts}
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError:
            pass  # a full disk is noticed where results are written

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()


def read_log(out: Path) -> Iterator[Mapping[str, Any]]:
    """All events of a run; a line that was cut short is passed over."""
    for path in sorted((out / "log").glob("*.jsonl")):
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


@contextmanager
def lock(out: Path) -> Iterator[None]:
    """Hold a run's folder for one driver; the lock goes when its process ends, however it ends."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a") as file:
        try:
            import fcntl  # not on Windows

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another run is at work on {out}; wait for it, or stop it and start again"
            ) from None
        except (ImportError, OSError):
            pass  # no locks here; two runs at once would write the same files twice
        yield
