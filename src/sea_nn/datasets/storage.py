"""Where a run keeps its results, and how a shard appears there: whole, or not at all.

    OUT/manifest.json                 what the run is
    OUT/inputs.parquet                the ids, paths and content hashes of all inputs
    OUT/tensors/0000/0000012.5e1f….safetensors   maps of shard 12, named by their content
    OUT/rows/0000/0000012.parquet     its rows; this file commits the shard, so it comes last
    OUT/log/*.jsonl                   who did what, when, and in how many seconds

Rows name the tensor file that they belong to, so a shard can be replaced by one rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as serialize

from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import remove_stale, write_atomically
from sea_nn.extras import import_extra

MANIFEST = "manifest.json"
"""The file that makes a folder one of a run's results."""
INPUTS = "inputs.parquet"
KEY = b"sea_nn"
Array = np.ndarray[Any, Any]
COLUMNS = {
    "index": "int64", "id": "string", "path": "string", "label": "int32", "target": "int32",
    "target_name": "string", "score": "float32", "unit": "string", "predicted": "int32",
    "correct": "bool_", "agreement": "float32", "predict_error": "float32", "checks": "[string",
    "keep": "[float32", "remove": "[float32", "evaluations": "int32", "error": "string",
    "error_kind": "string", "place": "int32",
}  # fmt: skip
"""The columns of a row and their types in Arrow; "[" begins a list."""


class BusyError(SEAError, RuntimeError):
    """Another run is at work on the same folder."""


@dataclass(frozen=True)
class Rows:
    """What is known of a shard: the columns of each input, and the tensors of those explained.

    The first axis of a tensor is the column ``place``, which inputs that failed lack.
    """

    rows: list[dict[str, Any]]
    tensors: dict[str, Array]
    methods: tuple[str, ...]


def import_arrow() -> Any:
    """Return pyarrow with its Parquet module, imported when a data set is worked on."""
    import_extra("pyarrow.parquet", "a whole data set, written as Parquet,")
    return sys.modules["pyarrow"]


def row_schema() -> Any:
    """The columns of a row, in Arrow's types."""
    pa = import_arrow()
    types = ((name, getattr(pa, kind.lstrip("["))(), "[" in kind) for name, kind in COLUMNS.items())
    return pa.schema([(name, pa.list_(one) if many else one) for name, one, many in types])


def rows_path(out: Path, shard: int) -> Path:
    """The Parquet part that commits a shard."""
    return out / "rows" / f"{shard // 1000:04d}" / f"{shard:07d}.parquet"


def tensors_path(out: Path, shard: int) -> Path:
    """The tensor file that a committed shard's rows name."""
    return _tensor_folder(out, shard) / str(read_facts(out, shard)["tensors"])


def _tensor_folder(out: Path, shard: int) -> Path:
    return out / "tensors" / f"{shard // 1000:04d}"


def commit(out: Path, shard: int, found: Rows) -> int:
    """Write a shard: tensors first, then the rows, whose rename makes it count; return bytes."""
    pa = import_arrow()
    content = serialize(found.tensors, {"sea_nn": json.dumps({"methods": found.methods})})
    digest = hashlib.sha256(content).hexdigest()
    place = _tensor_folder(out, shard) / f"{shard:07d}.{digest[:12]}.safetensors"
    with write_atomically(place) as file:
        file.write(content)
    facts = {"shard": shard, "tensors": place.name, "bytes": len(content), "sha256": digest}
    facts["methods"] = list(found.methods)
    table = pa.Table.from_pylist(found.rows, schema=row_schema())
    table = table.replace_schema_metadata({KEY: json.dumps(facts)})
    target = rows_path(out, shard)
    with write_atomically(target) as file:
        pa.parquet.write_table(table, file, compression="zstd")
    for other in place.parent.glob(f"{shard:07d}.*.safetensors"):
        if other != place:  # of before a retry, or of a process that was killed
            other.unlink(missing_ok=True)
    return len(content) + target.stat().st_size


def read_facts(out: Path, shard: int) -> dict[str, Any]:
    """What a committed part says of its shard."""
    metadata = import_arrow().parquet.read_metadata(rows_path(out, shard)).metadata or {}
    facts: dict[str, Any] = json.loads(metadata[KEY])
    return facts


def list_committed(out: Path, check: bool = False) -> list[int]:
    """The shards that are there, in order; with ``check``, only those whose files are whole."""
    found = []
    for folder in sorted((out / "rows").glob("[0-9]*")):
        for name in sorted(os.listdir(folder)):
            stem, _, suffix = name.partition(".")
            if suffix == "parquet" and stem.isdecimal():
                found.append(int(stem))
    return [shard for shard in found if _is_whole(out, shard)] if check else found


def _is_whole(out: Path, shard: int) -> bool:
    try:
        facts = read_facts(out, shard)
        size = (_tensor_folder(out, shard) / facts["tensors"]).stat().st_size
        return bool(size == facts["bytes"])
    except (OSError, KeyError, ValueError):  # pyarrow's errors are ValueErrors and OSErrors
        return False


def remove_drafts(out: Path) -> None:
    """Remove what ended processes left half-written."""
    for folder in (out, *out.glob("rows/*"), *out.glob("tensors/*")):
        remove_stale(folder)


def read_rows(out: Path, shard: int, columns: Sequence[str] | None = None) -> Any:
    """The rows of a committed shard, an Arrow table."""
    return import_arrow().parquet.ParquetFile(rows_path(out, shard)).read(columns=columns)


def write_inputs(
    out: Path, ids: Sequence[str], paths: Sequence[str] | None, digests: Sequence[str]
) -> None:
    """Write the ids, paths and hashes of all inputs."""
    pa = import_arrow()
    files = pa.nulls(len(ids), pa.string()) if paths is None else list(paths)
    table = pa.table({"id": list(ids), "path": files, "digest": list(digests)})
    with write_atomically(out / INPUTS) as file:
        pa.parquet.write_table(table, file, compression="zstd")


def read_inputs(out: Path) -> dict[str, list[Any]]:
    """The columns that ``write_inputs`` wrote."""
    columns: dict[str, list[Any]] = import_arrow().parquet.read_table(out / INPUTS).to_pydict()
    return columns


def log(out: Path, event: str, **facts: Any) -> None:
    """Append an event, with the time, to the file of this process."""
    line = json.dumps({"time": time.time(), "event": event, **facts})
    place = out / "log" / f"{platform.node()}-{os.getpid()}.jsonl"
    with suppress(OSError):  # a full disk is noticed where results are written
        place.parent.mkdir(exist_ok=True)
        with place.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_log(out: Path) -> Iterator[Mapping[str, Any]]:
    """All events of a run; a line that was cut short is passed over."""
    for path in sorted((out / "log").glob("*.jsonl")):
        for line in path.read_text("utf-8", "replace").splitlines():
            with suppress(ValueError):
                yield json.loads(line)


@contextmanager
def lock(out: Path) -> Iterator[None]:
    """Hold a run's folder for one driver; the lock goes when its process ends, however it ends.

    Raises:
        BusyError: another run holds it.
        InputError: nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("a")
    except OSError as error:
        raise InputError(
            f"results cannot be written to {out} ({error.strerror}); choose another folder"
        ) from error
    with file:
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
