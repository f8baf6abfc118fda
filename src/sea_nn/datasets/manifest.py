"""A run's manifest: settings, model, source and shards, written before anything is computed.

A rerun compares its own manifest with the one on disk and refuses to mix results.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sea_nn.datasets.items import Source
from sea_nn.datasets.storage import MANIFEST, list_committed, read_inputs, read_rows, write_inputs
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.provenance import find_versions, hash_tensor, hash_weights
from sea_nn.features import Kind, find_kind
from sea_nn.sea import SEA

FORMAT, VERSION = "sea_nn.dataset", 2
LARGE = 10_000  # numbers in an input from which on small batches are as good as large ones
SOME = 3  # names given as examples in a message
Precision = Literal["float16", "uint8", "float32"]
ERRORS = {
    "float16": "at most 0.00025 of the map's largest value",
    "uint8": "at most 0.002 of the map's largest value",
    "float32": "none",
}
"""How far a stored map may be from the computed one."""


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


@dataclass(frozen=True)
class Manifest:
    """What a run is. ``settings``, ``weights`` and ``source`` must not change in a rerun."""

    settings: Settings
    weights: str
    source: Mapping[str, str]
    shape: tuple[int, ...]
    count: int
    threads: int
    model: str = ""
    labels: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=find_versions)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def kind(self) -> Kind:
        """Of the inputs."""
        return find_kind(torch.empty(1, *self.shape, device="meta"))

    @property
    def n_shards(self) -> int:
        """How many shards the inputs are divided into."""
        return -(-self.count // self.settings.shard_size)

    def numbers(self, shard: int) -> range:
        """The inputs of a shard."""
        size = self.settings.shard_size
        return range(shard * size, min((shard + 1) * size, self.count))

    def write(self, out: Path) -> None:
        """Write it to its place in a run's folder."""
        head = {"format": FORMAT, "version": VERSION, "map_error": ERRORS[self.settings.precision]}
        with write_atomically(out / MANIFEST) as file:
            file.write(json.dumps({**head, **asdict(self)}, indent=2).encode())

    @classmethod
    def read(cls, out: Path) -> Manifest:
        """Read the manifest of a run's folder.

        Raises:
            InputError: there is none, or it cannot be read.
        """
        path = out / MANIFEST
        if not path.is_file():
            raise InputError(f"{out} holds no data set of explanations: there is no {MANIFEST}")
        try:
            facts = json.loads(path.read_text("utf-8"))
            written = facts.pop("format"), facts.pop("version")
            if written != (FORMAT, VERSION):
                raise ValueError(
                    f"it is {written[0]} {written[1]}, and this version of sea-nn reads {FORMAT} "
                    f"{VERSION}: read it with the version that wrote it, or explain again"
                )
            facts.pop("map_error")
            for name in ("shape", "labels", "feature_names"):
                facts[name] = tuple(facts[name])
            return cls(**{**facts, "settings": Settings(**facts["settings"])})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error


def begin(folder: Path, new: Manifest, source: Source, retry_errors: bool) -> Manifest:
    """Begin a run, or make sure that the one in the folder is the same and return its manifest.

    Raises:
        InputError: settings, weights or inputs differ, and how.
    """
    if not (folder / MANIFEST).exists():
        strangers = [name for name in ("rows", "tensors") if (folder / name).exists()]
        if strangers:
            raise InputError(
                f"{folder} holds {' and '.join(strangers)} but no {MANIFEST}; choose another folder"
            )
        write_inputs(folder, source.ids, source.paths, source.digests)
        new.write(folder)
        return new
    old = Manifest.read(folder)
    different = _compare(old, new)
    repaired = old.source["fingerprint"] != new.source["fingerprint"]
    if repaired:
        different += _compare_inputs(folder, source, retry_errors)
    if different:
        raise InputError(
            f"{folder} holds a run of something else, and results must not be mixed. "
            + "; ".join(different)
            + ". Choose another folder, or repeat the old settings"
        )
    if repaired:  # of inputs that failed, which are tried again
        old = replace(old, source=new.source)
        write_inputs(folder, source.ids, source.paths, source.digests)
        old.write(folder)
    return old


def _compare(old: Manifest, new: Manifest) -> list[str]:
    """What differs between two manifests such that their results must not be mixed."""
    before, after = asdict(old.settings), _plain(asdict(new.settings))
    pairs = {name: (before[name], after[name]) for name in before if name != "sea"}
    for part in sorted({*before["sea"], *after["sea"]}):
        pairs[part] = before["sea"].get(part), after["sea"].get(part)
    different = [
        f"setting {name}: {_shorten(was, now)}" for name, (was, now) in pairs.items() if was != now
    ]
    if old.weights != new.weights:
        different.append(f"model weights: {old.weights[:12]} before, {new.weights[:12]} now")
    if old.shape != tuple(new.shape):
        different.append(f"input shape: {list(old.shape)} before, {list(new.shape)} now")
    return different


def _shorten(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        names = [k for k in sorted({*was, *now}) if was.get(k) != now.get(k)]
        return ", ".join(f"{k} was {was.get(k)!r} and is {now.get(k)!r}" for k in names)
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
        "changed": [i for i in now if before.get(i, now[i]) != now[i] and i not in spared],
    }
    told = [
        f"{len(names)} {what} ({', '.join(names[:SOME])}{' …' if len(names) > SOME else ''})"
        for what, names in parts.items()
        if names
    ]
    if not told and list(before) != list(now):
        told = ["another order"]
    return [f"source: {', '.join(told)}"] if told else []


def find_failed(folder: Path, shard: int) -> dict[int, str]:
    """The inputs of a shard that have an error: numbers and ids."""
    table = read_rows(folder, shard, ["id", "index", "error"]).to_pydict()
    columns = zip(table["id"], table["index"], table["error"], strict=True)
    return {index: id_ for id_, index, error in columns if error is not None}


def choose_settings(sea: SEA, shape: Sequence[int], **given: Any) -> Settings:
    """Fill in what was left open: batches that pay, shards of about a minute's work or less."""
    if given["precision"] not in ERRORS:
        raise InputError(
            f"precision must be one of {', '.join(ERRORS)}; got {given['precision']!r}"
        )
    for name in ("batch_size", "shard_size"):
        if given[name] is not None and given[name] < 1:
            raise InputError(f"{name} must be at least 1; got {given[name]}")
    device = find_device(sea.forward_func).type
    large = int(torch.Size(shape).numel()) >= LARGE
    batch = given["batch_size"] or {"cpu": 4 if large else 64}.get(device, 64 if large else 256)
    shard = given["shard_size"] or (64 if large else 512)
    picture = find_kind(torch.empty(1, *shape, device="meta")).view == "picture"
    asks = picture and (sea.output is None or sea.output.kind != "value")
    filled = {
        "sea": describe_sea(sea),
        "target": "predicted" if given["target"] is None else given["target"],
        "batch_size": batch,
        "shard_size": -(-shard // batch) * batch,
        "curve": asks if given["curve"] is None else given["curve"],
        "device": device,
    }
    return Settings(**{**given, **filled})


def describe_sea(sea: SEA) -> dict[str, Any]:
    """The ensemble's settings as plain values."""
    found: dict[str, Any] = _plain(
        {
            "members": {entry.label: dict(entry.options) for entry in sea.entries},
            "config": sea.config.to_dict(),
            "output": None if sea.output is None else sea.output.kind,
            "seed": sea.seed,
            "autocast": str(sea.autocast),
            "compile": sea.compile,
            "budget": sea.budget,
        }
    )
    return found


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_describe))


def _describe(value: Any) -> str:
    """What JSON does not know, such that different things get different texts."""
    if isinstance(value, torch.Tensor):
        return f"tensor {list(value.shape)} {hash_tensor(value)}"
    code = getattr(value, "__code__", None)
    name = getattr(value, "__qualname__", None) or re.sub(r" at 0x\w+", "", str(value))
    return name if code is None else f"{name} {hashlib.sha256(code.co_code).hexdigest()[:8]}"


def find_device(model: Callable[..., Any]) -> torch.device:
    """Where the model is; a function without parameters counts as on the CPU."""
    if isinstance(model, nn.Module):
        return next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.device("cpu")


def hash_model(model: Callable[..., Any]) -> str:
    """A hash of a module's structure, parameters and buffers; of a function its name and code."""
    told = str(model) + hash_weights(model) if isinstance(model, nn.Module) else _describe(model)
    return hashlib.sha256(told.encode()).hexdigest()
