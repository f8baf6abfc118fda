"""Where a run keeps its results, and how a shard appears there: whole, or not at all.

    OUT/manifest.json                 what the run is
    OUT/inputs.parquet                the ids, paths and content hashes of all inputs
    OUT/tensors/0000/0000012.5e1f….safetensors   maps of shard 12, named by their content
    OUT/rows/0000/0000012.parquet     its rows; this file commits the shard, so it comes last
    OUT/log/*.jsonl                   who did what, when, and in how many seconds

Every byte lies under a checksum: the manifest and the Parquet files hold their own (``seal``), rows
hold that of the tensor file that they belong to, and each line of the log has one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as serialize

from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import remove_stale, write_atomically
from sea_nn.extras import import_extra

MANIFEST, INPUTS = "manifest.json", "inputs.parquet"
OWN = frozenset((MANIFEST, INPUTS, "rows", "tensors", "log", "summary", ".lock"))
"""Names of what a run and its summary write in their folder."""
MARK, DIGITS = "sea_nn sha256 ", 64
BLANK = MARK + "0" * DIGITS
"""Holds the place of a file's checksum while it is computed."""
KEY, SEAL = b"sea_nn", b"sea_nn_seal"  # of metadata
Array = np.ndarray[Any, Any]
COLUMNS = {
    "index": "int64", "id": "string", "path": "string", "label": "int32", "target": "int32",
    "target_name": "string", "score": "float32", "unit": "string", "predicted": "int32",
    "correct": "bool_", "agreement": "float32", "predict_error": "float32", "methods": "[string",
    "checks": "[string", "keep": "[float32", "remove": "[float32", "evaluations": "int32",
    "error": "string", "error_kind": "string", "place": "int32", "checksum": "int64",
}  # fmt: skip
"""The columns of a row and their types in Arrow; "[" begins a list. ``place`` is where an input's
tensors lie in the tensor file, and ``checksum`` is theirs; inputs that failed have neither."""


class BusyError(SEAError, RuntimeError):
    """Another run is at work on the same folder."""


class DamagedError(InputError):
    """A file of a run is not what the run wrote."""


@dataclass(frozen=True)
class Rows:
    """What is known of a shard: the columns of each input, and the tensors of those explained."""

    rows: list[dict[str, Any]]
    tensors: dict[str, Array]


def import_arrow() -> Any:
    """Return pyarrow with its Parquet module, imported when a data set is worked on."""
    import_extra("pyarrow.parquet", "a whole data set, written as Parquet,")
    return sys.modules["pyarrow"]


def row_schema() -> Any:
    """The columns of a row, in Arrow's types."""
    pa = import_arrow()
    types = ((name, getattr(pa, kind.lstrip("["))(), "[" in kind) for name, kind in COLUMNS.items())
    return pa.schema([(name, pa.list_(one) if many else one) for name, one, many in types])


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file that holds ``BLANK`` once, with its own checksum in that place."""
    start = content.rindex(BLANK.encode()) + len(MARK)
    digest = hashlib.sha256(content).hexdigest().encode()
    with write_atomically(path) as file:
        file.write(content[:start] + digest + content[start + DIGITS :])


def read_sealed(path: Path) -> bytes:
    """Read a file that ``write_sealed`` wrote.

    Raises:
        DamagedError: there is none, or one of its bytes is not what was written.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror}); {AGAIN}") from error
    start = content.rfind(MARK.encode()) + len(MARK)
    blank = content[:start] + b"0" * DIGITS + content[start + DIGITS :]
    if hashlib.sha256(blank).hexdigest().encode() != content[start : start + DIGITS]:
        raise DamagedError(f"{path} is damaged: it is not what was written; {AGAIN}")
    return content


AGAIN = "start the same run again, which makes whole what is missing or damaged"


def _to_parquet(table: Any, facts: Mapping[str, Any]) -> bytes:
    pa, file = import_arrow(), io.BytesIO()
    # Arrow's own copy of the schema, which is left out, would hold the facts a second time.
    with pa.parquet.ParquetWriter(
        file, table.schema, compression="zstd", store_schema=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({KEY: json.dumps(dict(facts)), SEAL: BLANK})
    return file.getvalue()


def _read_parquet(path: Path, columns: Sequence[str] | None = None) -> tuple[Any, dict[str, Any]]:
    pa = import_arrow()
    content = read_sealed(path)
    try:
        file = pa.parquet.ParquetFile(pa.BufferReader(content))
        return file.read(columns=columns), json.loads(file.metadata.metadata[KEY])
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} holds something else ({error}); {AGAIN}") from error


def rows_path(out: Path, shard: int) -> Path:
    """The Parquet part that commits a shard."""
    return out / "rows" / f"{shard // 1000:04d}" / f"{shard:07d}.parquet"


def tensors_path(out: Path, shard: int, facts: Mapping[str, Any] | None = None) -> Path:
    """The tensor file that a committed shard's rows name."""
    name = Path(str((facts or read_rows(out, shard)[1])["tensors"])).name
    return out / "tensors" / f"{shard // 1000:04d}" / name


def commit(out: Path, shard: int, found: Rows, facts: Mapping[str, Any]) -> int:
    """Write a shard: tensors first, then the rows, whose rename makes it count; return bytes.

    ``facts`` say which run and which inputs it is of.
    """
    content = serialize(found.tensors)
    digest = hashlib.sha256(content).hexdigest()
    facts = {**facts, "tensors": f"{shard:07d}.{digest[:12]}.safetensors", "sha256": digest}
    place, target = tensors_path(out, shard, facts), rows_path(out, shard)
    with write_atomically(place) as file:
        file.write(content)
    table = import_arrow().Table.from_pylist(found.rows, schema=row_schema())
    write_sealed(target, _to_parquet(table, facts))
    for other in place.parent.glob(f"{shard:07d}.*.safetensors"):
        if other != place:  # of before a retry, or of a process that was killed
            other.unlink(missing_ok=True)
    return len(content) + target.stat().st_size


def list_committed(out: Path) -> list[int]:
    """The shards that are there, in order, whole or damaged."""
    found = []
    for folder in sorted((out / "rows").glob("[0-9]*")):
        for name in sorted(os.listdir(folder)):
            stem, _, suffix = name.partition(".")
            if suffix == "parquet" and stem.isdecimal():
                found.append(int(stem))
    return found


def read_rows(
    out: Path, shard: int, columns: Sequence[str] | None = None
) -> tuple[Any, dict[str, Any]]:
    """The rows of a committed shard, an Arrow table, and the facts that it was committed with."""
    return _read_parquet(rows_path(out, shard), columns)


def read_tensors(out: Path, shard: int, facts: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a committed shard.

    Raises:
        DamagedError: one of their bytes is not what was written.
    """
    path = tensors_path(out, shard, facts)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror}); {AGAIN}") from error
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise DamagedError(f"{path} is damaged: it is not what was written; {AGAIN}")
    found: dict[str, Array] = load_tensors(content)
    return found


def is_whole(out: Path, shard: int, facts: Mapping[str, Any] | None = None) -> bool:
    """Whether every byte of a shard is what was written, for the run that ``facts`` name."""
    try:
        _, own = read_rows(out, shard, ["index"])
        read_tensors(out, shard, own)
    except (DamagedError, KeyError):
        return False
    return facts is None or all(own.get(name) == value for name, value in facts.items())


def sum_tensors(tensors: Mapping[str, Array]) -> int:
    """A checksum of one input's tensors: their names, types, shapes and bytes."""
    found = 0
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name])
        found = zlib.crc32(f"{name} {values.dtype} {values.shape}".encode(), found)
        found = zlib.crc32(values.tobytes(), found)
    return found


def remove_drafts(out: Path) -> None:
    """Remove what ended processes left half-written."""
    for folder in (out, *out.glob("rows/*"), *out.glob("tensors/*")):
        remove_stale(folder)


def write_inputs(
    out: Path, ids: Sequence[str], paths: Sequence[str] | None, digests: Sequence[str]
) -> None:
    """Write the ids, paths and hashes of all inputs."""
    pa = import_arrow()
    files = pa.nulls(len(ids), pa.string()) if paths is None else list(paths)
    table = pa.table({"id": list(ids), "path": files, "digest": list(digests)})
    write_sealed(out / INPUTS, _to_parquet(table, {}))


def read_inputs(out: Path) -> dict[str, list[Any]]:
    """The columns that ``write_inputs`` wrote."""
    columns: dict[str, list[Any]] = _read_parquet(out / INPUTS)[0].to_pydict()
    return columns


def log(out: Path, event: str, **facts: Any) -> None:
    """Append an event, with the time, to the file of this process."""
    line = json.dumps({"time": time.time(), "event": event, **facts})
    place = out / "log" / f"{platform.node()}-{os.getpid()}.jsonl"
    with suppress(OSError):  # a full disk is noticed where results are written
        place.parent.mkdir(exist_ok=True)
        with place.open("ab") as file:
            file.write(f"{line[:-1]}, {_end_line(line)}\n".encode())


def _end_line(line: str) -> str:
    return f'"crc": {zlib.crc32(line.encode())}}}'


def _read_line(line: str) -> Any:
    """An event, or None if its line is not what was written."""
    start = line.rfind(', "crc": ')
    whole = f"{line[:start]}}}"
    return json.loads(whole) if start > 0 and line == f"{whole[:-1]}, {_end_line(whole)}" else None


def read_log(out: Path) -> Iterator[Mapping[str, Any]]:
    """All events of a run; a line that was cut short or damaged is passed over."""
    for path in sorted((out / "log").glob("*.jsonl")):
        for line in path.read_text("utf-8", "replace").splitlines():
            event = _read_line(line)
            if event is not None:
                yield event


def list_damaged_logs(out: Path) -> list[str]:
    """The files of the log with a line that is not what was written."""
    return [
        str(path.relative_to(out))
        for path in sorted((out / "log").glob("*.jsonl"))
        if not (text := path.read_bytes().decode("utf-8", "replace")).endswith("\n")
        or any(_read_line(line) is None for line in text[:-1].split("\n"))
    ]


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
