"""A run's manifest: settings, model, source and shards, written before anything is computed.

A rerun compares its own manifest with the one on disk and refuses to mix results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from sea_nn.config import SEAConfig
from sea_nn.datasets import storage
from sea_nn.datasets.fingerprint import fingerprint
from sea_nn.datasets.sources import Source
from sea_nn.datasets.storage import BLANK, MANIFEST, DamagedError
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.fields import VERSIONS
from sea_nn.features import Kind, find_kind
from sea_nn.sea import SEA

FORMAT, VERSION = "sea_nn.dataset", 5
SOME = 3  # inputs that a message names
Precision = Literal["float16", "uint8", "float32"]


class LostError(SEAError, RuntimeError):
    """Results were removed while the run was on; ``found`` says what was there instead."""

    def __init__(self, out: Path, found: str) -> None:
        super().__init__(
            f"results in {out} were removed or replaced while the run was on ({found}); start the "
            "same command again: it does what is missing"
        )


@dataclass(frozen=True)
class Manifest:
    """What a run is; but for what ``FREE`` names, a rerun's must be the same."""

    sea: Mapping[str, Any]  # members with options, configuration, budget, seed, precision
    model: Mapping[str, str]  # hashes of weights, buffers and code, and of the preprocessing
    target: str | int  # "predicted", "label", or a class number
    batch_size: int  # aligned to the data set: shards and workers change no batch
    shard_size: int  # a multiple of the batch size
    precision: Precision
    stored_members: bool
    curve: bool  # whether the model is asked about the top features, kept and removed
    device: str  # "cpu" or "cuda"
    internal_batch_size: int | None  # the most evaluations in one pass; None: by memory
    labels: Sequence[str]  # the model's class names
    label_column: str | None  # of the true class; None for a usual name
    shape: Sequence[int]  # of an input
    count: int  # of inputs
    inputs: str  # one hash of the ids and contents of all
    source: str  # what the inputs are called
    threads: int  # of each worker
    model_name: str = ""
    feature_names: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=VERSIONS.copy)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def kind(self) -> Kind:
        """Of the inputs."""
        return find_kind(torch.empty(1, *self.shape, device="meta"))

    @property
    def decisive(self) -> dict[str, Any]:
        """What must not change but for the inputs, each by a name for messages."""
        facts = {name: value for name, value in asdict(self).items() if name not in FREE}
        sea, model = facts.pop("sea"), facts.pop("model")
        return dict(_flatten("setting", sea | facts)) | dict(_flatten("model", model))

    @cached_property
    def key(self) -> str:
        """One hash of all that must not change but for the inputs; rows hold it."""
        return hashlib.sha256(json.dumps(self.decisive, sort_keys=True).encode()).hexdigest()[:32]

    def numbers(self, shard: int) -> range:
        """The inputs of a shard."""
        return range(shard * self.shard_size, min((shard + 1) * self.shard_size, self.count))

    def write(self, out: Path) -> None:
        """Write it to its place in a run's folder."""
        facts = {"format": FORMAT, "version": VERSION, **asdict(self), "seal": BLANK}
        with write_atomically(out / MANIFEST) as file:
            file.write(storage.seal(json.dumps(facts, indent=2).encode()))

    @classmethod
    def read(cls, out: Path) -> Manifest:
        """Read the manifest of a run's folder.

        Raises:
            InputError: there is none, or it cannot be read.
            DamagedError: it is not what was written.
        """
        path = out / MANIFEST
        if not path.is_file():
            raise InputError(f"{out} holds no data set of explanations: there is no {MANIFEST}")
        try:
            facts = json.loads(path.read_bytes())
            written = facts.pop("format"), facts.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise DamagedError(f"{path} cannot be read: {error}") from error
        if written != (FORMAT, VERSION):
            raise InputError(
                f"{path} is {written[0]} {written[1]}, and this version of sea-nn reads {FORMAT} "
                f"{VERSION}: read it with the version that wrote it, or explain again"
            )
        storage.read_checked(path)
        del facts["seal"]
        return cls(**facts)

    def check_there(self, out: Path) -> None:
        """Raise a ``LostError`` if the folder does not hold this run any more."""
        found = "another run's results are there"
        try:
            if Manifest.read(out).created == self.created:
                return
        except InputError as error:
            found = str(error)
        raise LostError(out, found)


FREE = ("inputs", "source", "threads", "model_name", "feature_names", "versions", "created")


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values in nested lists and dicts, each with the names that lead to it."""
    if isinstance(value, Mapping | list | tuple) and value:
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for part, inner in pairs:
            yield from _flatten(f"{name} {part}", inner)
    else:
        yield name, None if value in ((), []) else value


def begin(
    folder: Path, new: Manifest, source: Source, retry_errors: bool
) -> tuple[Manifest, dict[int, list[int]]]:
    """Begin a run, or go on with the same one; its manifest, and by whole shard who failed.

    Raises:
        InputError: settings, model or inputs differ, and how.
    """
    old, told, changed = None, list[str](), list[str]()

    def look(rows: Any, facts: Mapping[str, Any]) -> list[int]:
        """The inputs of a shard that failed; where these are tried again, contents may differ."""
        if facts["run"] != new.key:
            told[:] = ["its rows are of another run"]
            return []
        failed = []
        for number, id_, digest, error in zip(*rows.to_pydict().values(), strict=True):
            failed += [] if error is None else [number]
            same = (id_, digest) == (source.ids[number], source.digests[number])
            if not same and (error is None or not retry_errors):
                changed.append(id_)
        return failed

    with suppress(DamagedError):  # its rows say themselves what run they are of
        if (folder / MANIFEST).exists():
            old = Manifest.read(folder)
            told = compare(old, new)
    done = {} if told else storage.find_whole(folder, look)
    if changed:
        some = ", ".join(sorted(changed)[:SOME]) + (" …" if len(changed) > SOME else "")
        told.append(f"source: {len(changed)} changed ({some})")
    elif old is not None and old.inputs != new.inputs and not retry_errors:
        told.append("source: inputs that are not explained yet are others")
    if told:
        raise InputError(
            f"{folder} holds a run of something else, and results must not be mixed. "
            f"{'; '.join(told)}; choose another folder, or repeat what it was before"
        )
    if old is None or old.inputs != new.inputs:
        old = new if old is None else replace(old, inputs=new.inputs)
        old.write(folder)
    return old, done


def compare(old: Manifest, new: Manifest) -> list[str]:
    """What differs between two manifests such that their results must not be mixed."""
    before, after = old.decisive, new.decisive
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    told = [f"{n}: was {before.get(n)!r} and is {after.get(n)!r}" for n in names]
    pythons = old.versions.get("python"), new.versions.get("python")
    if {"model code", "model preprocess"}.intersection(names) and pythons[0] != pythons[1]:
        told.append(f"Python was {pythons[0]} and is {pythons[1]}, which compiles code otherwise")
    return told


def describe_sea(sea: SEA) -> dict[str, Any]:
    """The ensemble's settings as JSON has them; what it does not know becomes name and hash."""

    def describe(odd: Any) -> str:
        name = getattr(odd, "__qualname__", None) or type(odd).__qualname__
        return f"{name} {fingerprint(odd)}"

    own = sea.settings
    facts = {name: getattr(own, name) for name in ("seed", "absent", "grid", "budget")} | {
        "members": {entry.label: {"by": entry.member, **entry.options} for entry in sea.entries},
        "config": (own.config or SEAConfig()).to_dict(),
        "output": None if own.output is None else own.output.kind,
        "autocast": str(own.autocast),
    }
    found: dict[str, Any] = json.loads(json.dumps(facts, default=describe))
    return found
