"""A run's manifest: settings, model, source and shards, written before anything is computed.

A rerun compares its own manifest with the one on disk and refuses to mix results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sea_nn.datasets.fingerprint import fingerprint, fingerprint_model
from sea_nn.datasets.items import Prepare, Source
from sea_nn.datasets.storage import (
    BLANK,
    MANIFEST,
    DamagedError,
    list_committed,
    read_inputs,
    read_rows,
    read_sealed,
    write_inputs,
    write_sealed,
)
from sea_nn.config import SEAConfig
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.provenance import find_versions
from sea_nn.features import Kind, find_kind
from sea_nn.sea import SEA

FORMAT, VERSION = "sea_nn.dataset", 3
LARGE = 10_000  # numbers in an input from which on small batches are as good as large ones
SOME = 3  # names given as examples in a message
Precision = Literal["float16", "uint8", "float32"]
ERRORS = {
    "float16": "at most 0.00025 of the map's largest value",
    "uint8": "at most 0.002 of the map's largest value",
    "float32": "none",
}
"""How far a stored map may be from the computed one."""


class LostError(SEAError, RuntimeError):
    """Results were removed while the run was on."""

    @classmethod
    def of(cls, out: Path, found: str) -> LostError:
        """The error, with what was found instead."""
        return cls(
            f"results in {out} were removed or replaced while the run was on ({found}); start the "
            "same command again: it does what is missing"
        )


@dataclass(frozen=True)
class Settings:
    """Everything that decides the results of a run, as plain values.

    Attributes:
        sea: the ensemble: members with options, configuration, budget, seed, precision.
        target: "predicted", "label", or a class number.
        batch_size: inputs explained together. Batches are aligned to the whole data set, so
            neither shards nor workers change what is computed together.
        shard_size: inputs in a shard, a multiple of the batch size.
        precision: how maps are stored.
        members: whether the members' maps are stored too.
        curve: whether the model is asked about the top features, kept and removed.
        device: "cpu" or "cuda".
        internal_batch_size: the most evaluations in one pass; None: by memory.
        labels: the model's class names.
        model: hashes of its weights, buffers, code and constants, and of the preprocessing.
    """

    sea: Mapping[str, Any]
    target: str | int
    batch_size: int
    shard_size: int
    precision: Precision
    members: bool
    curve: bool
    device: str
    internal_batch_size: int | None = None
    labels: tuple[str, ...] = ()
    model: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What a run is. ``settings``, ``shape`` and ``source`` must not change in a rerun."""

    settings: Settings
    source: Mapping[str, str]
    shape: tuple[int, ...]
    count: int
    threads: int
    model: str = ""
    feature_names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=find_versions)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def labels(self) -> tuple[str, ...]:
        """The model's class names."""
        return self.settings.labels

    @property
    def kind(self) -> Kind:
        """Of the inputs."""
        return find_kind(torch.empty(1, *self.shape, device="meta"))

    @property
    def n_shards(self) -> int:
        """How many shards the inputs are divided into."""
        return -(-self.count // self.settings.shard_size)

    @property
    def key(self) -> str:
        """One hash of all that must not change but for the inputs; rows hold it."""
        told = json.dumps([asdict(self.settings), self.shape], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:32]

    def numbers(self, shard: int) -> range:
        """The inputs of a shard."""
        size = self.settings.shard_size
        return range(shard * size, min((shard + 1) * size, self.count))

    def bind(self, shard: int, source: Source) -> dict[str, Any]:
        """What a shard's rows say of where they belong: the run, and its inputs."""
        inputs = source.fingerprint(self.numbers(shard))
        return {"shard": shard, "run": self.key, "inputs": inputs}

    def write(self, out: Path) -> None:
        """Write it to its place in a run's folder."""
        head = {"format": FORMAT, "version": VERSION, "map_error": ERRORS[self.settings.precision]}
        facts = {**head, **asdict(self), "seal": BLANK}
        write_sealed(out / MANIFEST, json.dumps(facts, indent=2).encode())

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
            written = facts["format"], facts["version"]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DamagedError(f"{path} cannot be read: {error}") from error
        if written != (FORMAT, VERSION):
            raise InputError(
                f"{path} is {written[0]} {written[1]}, and this version of sea-nn reads {FORMAT} "
                f"{VERSION}: read it with the version that wrote it, or explain again"
            )
        facts = json.loads(read_sealed(path))
        for name in ("format", "version", "map_error", "seal"):
            facts.pop(name)
        facts["shape"], facts["feature_names"] = map(
            tuple, (facts["shape"], facts["feature_names"])
        )
        settings = facts.pop("settings")
        settings["labels"] = tuple(settings["labels"])
        return cls(settings=Settings(**settings), **facts)

    def check_there(self, out: Path) -> None:
        """Raise a ``LostError`` if the folder does not hold this run any more."""
        try:
            if Manifest.read(out).created == self.created:
                return
            found = "another run's results are there"
        except (InputError, OSError) as error:
            found = str(error)
        raise LostError.of(out, found)


def begin(folder: Path, new: Manifest, source: Source, retry_errors: bool) -> Manifest:
    """Begin a run, or make sure that the one in the folder is the same and return its manifest.

    Raises:
        InputError: settings, model or inputs differ, and how.
    """
    old = _find_manifest(folder)
    if old is None:
        for shard in list_committed(folder):
            with suppress(DamagedError):
                facts = read_rows(folder, shard, ["index"])[1]
                if not new.bind(shard, source).items() <= facts.items():
                    raise InputError(
                        f"{folder} holds rows of another run, or of other inputs, and no "
                        f"{MANIFEST} that can be read; choose another folder"
                    )
        write_inputs(folder, source.ids, source.paths, source.digests)
        new.write(folder)
        return new
    different = compare(old, new)
    repaired = old.source["fingerprint"] != new.source["fingerprint"]
    if repaired:
        different += _compare_inputs(folder, source, retry_errors)
    if different:
        raise InputError(
            f"{folder} holds a run of something else, and results must not be mixed. "
            + "; ".join(different)
            + ". Choose another folder, or repeat what it was before"
        )
    if repaired:  # of inputs that failed, which are tried again
        old = replace(old, source=new.source)
        old.write(folder)
    try:
        fresh = read_inputs(folder)["digest"] != list(source.digests)
    except DamagedError:
        fresh = True
    if fresh:
        write_inputs(folder, source.ids, source.paths, source.digests)
    return old


def _find_manifest(folder: Path) -> Manifest | None:
    if not (folder / MANIFEST).exists():
        return None
    try:
        return Manifest.read(folder)
    except DamagedError:  # its rows say themselves what run they are of
        return None


def compare(old: Manifest, new: Manifest) -> list[str]:
    """What differs between two manifests such that their results must not be mixed."""
    before, after = (_flatten(m) for m in (old, new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    told = [f"{name}: {_shorten(before.get(name), after.get(name))}" for name in names]
    pythons = old.versions.get("python"), new.versions.get("python")
    if any(name in ("model code", "preprocess") for name in names) and len(set(pythons)) > 1:
        told.append(f"Python was {pythons[0]} and is {pythons[1]}, which compiles code otherwise")
    return told


def _flatten(manifest: Manifest) -> dict[str, Any]:
    """What must not change, by the name that a message has for it."""
    facts = to_plain(asdict(manifest.settings))
    found = {f"setting {name}": value for name, value in facts.pop("sea").items()}
    for name, value in facts.pop("model").items():
        found[name if name == "preprocess" else f"model {name}"] = value
    labels = facts.pop("labels")
    found["setting stored members"] = facts.pop("members")
    found |= {f"setting {name}": value for name, value in facts.items()}
    return {**found, "labels": labels, "input shape": list(manifest.shape)}


def _shorten(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        names = [k for k in sorted({*was, *now}) if was.get(k) != now.get(k)]
        return ", ".join(f"{k} was {was.get(k)!r} and is {now.get(k)!r}" for k in names)
    if isinstance(was, list) and isinstance(now, list) and len(was) + len(now) > 2 * SOME:
        if len(was) != len(now):
            return f"{len(was)} were and {len(now)} are given"
        place = next(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a != b)
        return f"number {place} was {was[place]!r} and is {now[place]!r}"
    return f"was {was!r} and is {now!r}"


def _compare_inputs(folder: Path, source: Source, retry_errors: bool) -> list[str]:
    """How the source differs from the one that the run began with."""
    table = read_inputs(folder)
    before = dict(zip(table["id"], table["digest"], strict=True))
    now = dict(zip(source.ids, source.digests, strict=True))
    spared: set[str] = set()
    if retry_errors:
        found = (find_failed(folder, shard) for shard in list_committed(folder))
        spared = {id_ for failed in found for id_ in failed.values()}
    parts = {
        "new": [i for i in now if i not in before],
        "missing": [i for i in before if i not in now],
        "changed": [i for i in now if before.get(i, now[i]) != now[i]],
    }
    told = [
        f"{len(names)} {what} ({', '.join(names[:SOME])}{' …' if len(names) > SOME else ''})"
        for what, names in parts.items()
        if [name for name in names if what != "changed" or name not in spared]
    ]
    if not told and not parts["changed"]:
        told = ["another order, or another version of the data set"]
    return [f"source: {', '.join(told)}"] if told else []


def find_failed(folder: Path, shard: int) -> dict[int, str]:
    """The inputs of a shard that have an error: numbers and ids."""
    table = read_rows(folder, shard, ["id", "index", "error"])[0].to_pydict()
    columns = zip(table["id"], table["index"], table["error"], strict=True)
    return {index: id_ for id_, index, error in columns if error is not None}


def choose_settings(
    sea: SEA, shape: Sequence[int], preprocess: Prepare | None, **given: Any
) -> Settings:
    """Fill in what was left open: batches that pay, shards of about a minute's work or less.

    With a budget the model is not asked beyond it, so the curve is then the learned function's.
    """
    if given["precision"] not in ERRORS:
        raise InputError(
            f"precision must be one of {', '.join(ERRORS)}; got {given['precision']!r}"
        )
    target = given["target"]
    if isinstance(target, bool) or not (target in (None, "label") or isinstance(target, int)):
        raise InputError(f"target must be None, 'label' or a class number; got {target!r}")
    for name in ("batch_size", "shard_size"):
        if given[name] is not None and given[name] < 1:
            raise InputError(f"{name} must be at least 1; got {given[name]}")
    device = find_device(sea.forward_func).type
    large = int(torch.Size(shape).numel()) >= LARGE
    batch = given["batch_size"] or {"cpu": 4 if large else 64}.get(device, 64 if large else 256)
    shard = given["shard_size"] or (64 if large else 512)
    picture = find_kind(torch.empty(1, *shape, device="meta")).view == "picture"
    output = sea.settings.output
    asks = picture and sea.settings.budget is None and (output is None or output.kind != "value")
    model = {**fingerprint_model(sea.forward_func), "preprocess": fingerprint(preprocess)}
    filled = {
        "sea": describe_sea(sea),
        "target": "predicted" if target is None else target,
        "batch_size": batch,
        "shard_size": -(-shard // batch) * batch,
        "curve": asks if given["curve"] is None else given["curve"],
        "device": device,
        "labels": tuple(map(str, given["labels"] or ())),
        "model": model,
    }
    return Settings(**{**given, **filled})


def describe_sea(sea: SEA) -> dict[str, Any]:
    """The ensemble's settings as plain values."""
    own = sea.settings
    found: dict[str, Any] = to_plain(
        {
            "members": {
                entry.label: {"by": entry.member, **entry.options} for entry in sea.entries
            },
            "config": (own.config or SEAConfig()).to_dict(),
            "output": None if own.output is None else own.output.kind,
            "seed": own.seed,
            "autocast": str(own.autocast),
            "absent": own.absent,
            "grid": own.grid,
            "budget": own.budget,
        }
    )
    return found


def to_plain(value: Any) -> Any:
    """Values as JSON has them; what it does not know becomes its name and its hash."""

    def describe(odd: Any) -> str:
        name = getattr(odd, "__qualname__", None) or type(odd).__qualname__
        return f"{name} {fingerprint(odd)}"

    return json.loads(json.dumps(value, default=describe))


def find_device(model: Callable[..., Any]) -> torch.device:
    """Where the model is; a function without parameters counts as on the CPU."""
    if isinstance(model, nn.Module):
        return next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.device("cpu")
