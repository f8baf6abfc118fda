"""Going on with a run: the folder must hold the same settings, weights and inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sea_nn.datasets.items import MANIFEST, Source
from sea_nn.datasets.plan import Manifest, compare
from sea_nn.datasets.storage import list_committed, read_inputs, read_rows, write_inputs
from sea_nn.errors import InputError

SOME = 3  # names given as examples in a message


def prepare(folder: Path, new: Manifest, source: Source, retry_errors: bool) -> Manifest:
    """Begin a run, or make sure that the one in the folder is the same."""
    if not (folder / MANIFEST).exists():
        strangers = [p.name for p in folder.iterdir() if p.name in ("rows", "tensors")]
        if strangers:
            raise InputError(
                f"{folder} holds {' and '.join(strangers)} but no {MANIFEST}; choose another folder"
            )
        write_inputs(folder, source)
        new.write(folder)
        return new
    old = Manifest.read(folder)
    different = compare(old, new)
    if old.source["fingerprint"] != new.source["fingerprint"]:
        changes = _compare_inputs(folder, source, retry_errors)
        different += changes
        if not changes:  # only failed inputs were repaired
            write_inputs(folder, source)
            old = replace(old, source=new.source)
            if not different:
                old.write(folder)
    if different:
        raise InputError(
            f"{folder} holds a run of something else, and results must not be mixed. "
            + "; ".join(different)
            + ". Choose another folder, or repeat the old settings"
        )
    return old


def _compare_inputs(folder: Path, source: Source, retry_errors: bool) -> list[str]:
    """How the source differs from the one that the run began with."""
    table = read_inputs(folder).to_pydict()
    before = dict(zip(table["id"], table["digest"], strict=True))
    digests = source.digests
    if isinstance(digests, str):
        now: dict[str, Any] = dict.fromkeys(source.ids)
    else:
        now = dict(zip(source.ids, digests, strict=True))
    new, gone = [i for i in now if i not in before], [i for i in before if i not in now]
    changed = [i for i, digest in now.items() if i in before and before[i] != digest]
    if retry_errors and changed and not new and not gone:
        failed = {
            id_ for shard in list_committed(folder) for id_, _ in failed_inputs(folder, shard)
        }
        changed = [i for i in changed if i not in failed]
        if not changed:
            return []
    parts = [
        f"{len(names)} {what} ({', '.join(names[:SOME])}{' …' if len(names) > SOME else ''})"
        for what, names in (("new", new), ("missing", gone), ("changed", changed))
        if names
    ]
    if not parts and not isinstance(digests, str):
        return []
    return [f"source: {', '.join(parts) or 'its content or order is another'}"]


def failed_inputs(folder: Path, shard: int) -> list[tuple[str, int]]:
    """The ids and numbers of a shard's inputs that have an error."""
    table = read_rows(folder, shard, ["id", "index", "error"]).to_pydict()
    columns = zip(table["id"], table["index"], table["error"], strict=True)
    return [(id_, index) for id_, index, error in columns if error is not None]
