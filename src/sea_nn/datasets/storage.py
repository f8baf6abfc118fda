"""Where a run keeps its results, and how a shard appears there: whole, or not at all.

    OUT/manifest.json                 what the run is
    OUT/tensors/0000/0000012.5e1f….safetensors   maps of shard 12, named by their content
    OUT/rows/0000/0000012.parquet     its rows; this file commits the shard, so it comes last
    OUT/log/*.jsonl                   who did what, when, and in how many seconds

Every byte lies under a checksum: the manifest, the Parquet files and each line of the log hold
their own (``seal``), and rows hold that of the tensor file that they belong to.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as serialize

from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import remove_drafts, write_atomically
from sea_nn.extras import import_extra

MANIFEST = "manifest.json"
RESULTS = re.compile(r"[0-9]{7}[.][0-9a-f]{12}[.]safetensors")  # a file of a shard's tensors
MARK, DIGITS = "sea_nn sha256 ", 64
BLANK = MARK + "0" * DIGITS
"""Holds the place of a file's checksum while it is computed."""
KEY = b"sea_nn"  # of the facts in a Parquet file's metadata
THREADS = max(1, min(16, os.cpu_count() or 1))
AGAIN = "start the same run again, which makes whole what is missing or damaged"
Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]
Result = tuple[dict[str, Any], Tensors | None]
"""What is known of an input: its columns, and its tensors if it could be explained."""
COLUMNS = {
    "index": "int64", "id": "string", "path": "string", "digest": "string", "label": "int32",
    "target": "int32", "target_name": "string", "score": "float32", "unit": "string",
    "predicted": "int32", "correct": "bool_", "agreement": "float32", "predict_error": "float32",
    "methods": "[string", "checks": "[string", "keep": "[float32", "remove": "[float32",
    "evaluations": "int32", "error": "string", "error_kind": "string", "map_max": "float32",
}  # fmt: skip
"""The columns of a row and their types in Arrow; "[" begins a list."""


class BusyError(SEAError, RuntimeError):
    """Another run is at work on the same folder."""


class DamagedError(InputError):
    """A file of a run is not what the run wrote."""


def import_arrow() -> Any:
    """Return pyarrow with its Parquet module, imported when a data set is worked on."""
    import_extra("pyarrow.parquet", "a whole data set, written as Parquet,")
    return sys.modules["pyarrow"]


def row_schema() -> Any:
    """The columns of a row, in Arrow's types."""
    pa = import_arrow()
    types = {name: getattr(pa, kind.lstrip("["))() for name, kind in COLUMNS.items()}
    many = {name: pa.list_(types[name]) for name, kind in COLUMNS.items() if "[" in kind}
    return pa.schema({**types, **many})


def seal(content: bytes) -> bytes:
    """A content that holds ``BLANK``, with its own checksum in that place."""
    start = content.rindex(BLANK.encode()) + len(MARK)
    digest = hashlib.sha256(content).hexdigest().encode()
    return content[:start] + digest + content[start + DIGITS :]


def is_sealed(content: bytes) -> bool:
    """Whether every byte is what ``seal`` gave."""
    start = content.rfind(MARK.encode()) + len(MARK)
    blank = content[:start] + b"0" * DIGITS + content[start + DIGITS :]
    return BLANK.encode() in blank and seal(blank) == content


def read_checked(path: Path, digest: str = "") -> bytes:
    """Read a file, by its own checksum if none is given.

    Raises:
        DamagedError: there is none, or one of its bytes is not what was written.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror}); {AGAIN}") from error
    if not (hashlib.sha256(content).hexdigest() == digest if digest else is_sealed(content)):
        raise DamagedError(f"{path} is damaged: it is not what was written; {AGAIN}")
    return content


def rows_path(out: Path, shard: int) -> Path:
    """The Parquet part that commits a shard."""
    return out / "rows" / f"{shard // 1000:04d}" / f"{shard:07d}.parquet"


def tensors_path(out: Path, shard: int, facts: Mapping[str, Any]) -> Path:
    """The tensor file of a shard, named by its content, as the shard's rows say."""
    name = f"{shard:07d}.{facts['tensors'][:12]}.safetensors"
    return out / "tensors" / f"{shard // 1000:04d}" / name


def commit(out: Path, shard: int, results: Sequence[Result], run: str) -> int:
    """Write a shard of a run: tensors first, then rows, whose rename makes it count; return bytes.

    The rows say which run they are of, and which tensors they belong to.
    """
    results = sorted(results, key=lambda result: int(result[0]["index"]))
    stored = {
        f"{row['index']}.{name}": values
        for row, tensors in results
        for name, values in (tensors or {}).items()
    }
    content = serialize(stored)
    facts = {"shard": shard, "run": run, "tensors": hashlib.sha256(content).hexdigest()}
    maps, target = tensors_path(out, shard, facts), rows_path(out, shard)
    with write_atomically(maps) as file:
        file.write(content)
    pa, draft, schema = import_arrow(), io.BytesIO(), row_schema()
    # Arrow's own copy of the schema, which is left out, would hold the facts a second time.
    how = {"compression": "zstd", "store_schema": False}
    with pa.parquet.ParquetWriter(draft, schema, **how) as writer:
        writer.write_table(pa.Table.from_pylist([row for row, _ in results], schema=schema))
        writer.add_key_value_metadata({KEY: json.dumps(facts), b"seal": BLANK})
    with write_atomically(target) as file:
        file.write(seal(draft.getvalue()))
    for other in maps.parent.glob(f"{shard:07d}.*.safetensors"):
        if other != maps:  # of before a retry, or of a process that was killed
            other.unlink(missing_ok=True)
    return len(content) + target.stat().st_size


def list_committed(out: Path) -> list[int]:
    """The shards that are there, in order, whole or damaged."""
    found = (out / "rows").glob("[0-9]*/[0-9]*.parquet")
    return sorted(int(path.stem) for path in found if path.stem.isdigit())


def read_rows(
    out: Path, shard: int, columns: Sequence[str] | None = None
) -> tuple[Any, dict[str, Any]]:
    """The rows of a committed shard, an Arrow table, and the facts that it was committed with."""
    pa, path = import_arrow(), rows_path(out, shard)
    content = read_checked(path)
    try:
        file = pa.parquet.ParquetFile(pa.BufferReader(content))
        # Arrow's own threads would free the content in their own time; at the end of a program
        # that aborts it.
        rows = file.read(columns=columns, use_threads=False)
        return rows, json.loads(file.metadata.metadata[KEY])
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} holds something else ({error}); {AGAIN}") from error


def read_tensors(out: Path, shard: int, facts: Mapping[str, Any]) -> dict[int, dict[str, Array]]:
    """The tensors of a committed shard by number of the input, checked."""
    content = read_checked(tensors_path(out, shard, facts), facts["tensors"])
    found: dict[int, dict[str, Array]] = {}
    for key, values in load_tensors(content).items():
        number, _, name = key.partition(".")
        found.setdefault(int(number), {})[name] = values
    return found


def find_whole(out: Path, look: Callable[[Any, Mapping[str, Any]], Any]) -> dict[int, Any]:
    """What ``look`` says of the rows and facts of each shard whose every byte is what was written.

    Rows are an Arrow table of number, id, hash and error.
    """

    def look_at(shard: int) -> Any:
        try:
            rows, facts = read_rows(out, shard, ["index", "id", "digest", "error"])
            read_tensors(out, shard, facts)
            return look(rows, facts) if facts["shard"] == shard else None
        except (DamagedError, KeyError):
            return None

    with ThreadPoolExecutor(THREADS) as team:
        shards = list_committed(out)
        found = zip(shards, team.map(look_at, shards), strict=True)
        return {shard: said for shard, said in found if said is not None}


def log(out: Path, event: str, **facts: Any) -> None:
    """Append an event, with the time, to the file of this process."""
    line = json.dumps({"time": time.time(), "event": event, **facts, "seal": BLANK})
    place = out / "log" / f"{platform.node()}-{os.getpid()}.jsonl"
    with suppress(OSError):  # a full disk is noticed where results are written
        place.parent.mkdir(exist_ok=True)
        with place.open("ab") as file:
            file.write(seal(line.encode()) + b"\n")


def read_log(out: Path) -> Iterator[dict[str, Any]]:
    """All events of a run; a line that is not what was written is an event "damaged"."""
    for path in sorted((out / "log").glob("*.jsonl")):
        damaged = {"event": "damaged", "file": str(path.relative_to(out))}
        for line in path.read_bytes().removesuffix(b"\n").split(b"\n"):
            yield json.loads(line) if is_sealed(line) else damaged


@contextmanager
def lock(out: Path) -> Iterator[None]:
    """Hold a run's folder for one driver; the lock goes when its process ends, however it ends.

    What ended processes left half-written there is removed.

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
        else:  # nobody else is at work here
            for folder in (out, *out.glob("rows/*"), *out.glob("tensors/*")):
                remove_drafts(folder)
        yield
