"""A run's manifest: settings, model, source and shards, written before anything is computed.

A rerun compares its own manifest with the one on disk and refuses to mix results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sea_nn.config import SEAConfig
from sea_nn.datasets.items import MANIFEST, Source, hash_tensor
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically
from sea_nn.explanation.provenance import find_versions
from sea_nn.sea import SEA

FORMAT, VERSION = "sea_nn.dataset", 1
INPUTS = "inputs.parquet"
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of the top features that are kept and removed for the measured curve."""
LARGE = 10_000  # numbers in an input from which on a CPU gains nothing from batches
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
        sea: the ensemble: members with options, configuration, seed, precision.
        target: "predicted", "label", or a class number.
        batch_size: inputs explained together. Batches are aligned to the whole data set, so
            neither shards nor workers change what is computed together.
        shard_size: inputs in a shard, a multiple of the batch size.
        precision: how maps are stored.
        members: whether the members' maps are stored too.
        curve: whether the model is asked about the top features, kept and removed.
        top: how many of the first features are stored in their order.
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
    top: int
    device: str
    internal_batch_size: int | None = None


@dataclass(frozen=True)
class Manifest:
    """What a run is. ``settings``, ``weights`` and ``source`` must not change in a rerun."""

    settings: Settings
    weights: str
    source: Mapping[str, Any]
    shape: tuple[int, ...]
    count: int
    threads: int
    model: str = ""
    labels: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=find_versions)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

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
        facts = {
            "format": FORMAT,
            "version": VERSION,
            **asdict(self),
            "n_shards": self.n_shards,
            "map_error": ERRORS[self.settings.precision],
        }
        with write_atomically(out / MANIFEST) as file:
            file.write(json.dumps(facts, indent=2).encode())

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
            if facts.pop("format") != FORMAT or facts.pop("version") > VERSION:
                raise InputError(f"{path} was written by a newer sea-nn or is something else")
            for name in ("n_shards", "map_error"):
                facts.pop(name)
            for name in ("shape", "labels", "feature_names"):
                facts[name] = tuple(facts[name])
            return cls(**{**facts, "settings": Settings(**facts["settings"])})
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} cannot be read: {error}") from error


def compare(old: Manifest, new: Manifest) -> list[str]:
    """What differs between two manifests such that their results must not be mixed."""
    different = []
    before, after = asdict(old.settings), _plain(asdict(new.settings))
    for name, value in before.items():
        if value == after[name]:
            continue
        if name == "sea":
            for part in sorted({*value, *after[name]}):
                was, now = value.get(part), after[name].get(part)
                if was != now:
                    different.append(f"setting {part}: {_shorten(was, now)}")
        else:
            different.append(f"setting {name}: {_shorten(value, after[name])}")
    if old.weights != new.weights:
        different.append(f"model weights: {old.weights[:12]} before, {new.weights[:12]} now")
    if tuple(old.shape) != tuple(new.shape):
        different.append(f"input shape: {list(old.shape)} before, {list(new.shape)} now")
    return different


def _shorten(was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        names = [k for k in sorted({*was, *now}) if was.get(k) != now.get(k)]
        return ", ".join(f"{k} was {was.get(k)!r} and is {now.get(k)!r}" for k in names)
    return f"was {was!r} and is {now!r}"


def choose_settings(
    sea: SEA,
    shape: Sequence[int],
    *,
    target: str | int | None,
    batch_size: int | None,
    shard_size: int | None,
    precision: Precision,
    members: bool,
    curve: bool | None,
    top: int,
    internal_batch_size: int | None,
) -> Settings:
    """Fill in what was left open: batches that pay, shards of about a minute's work or less."""
    if precision not in ERRORS:
        raise InputError(f"precision must be one of {', '.join(ERRORS)}; got {precision!r}")
    for name, value in (("batch_size", batch_size), ("shard_size", shard_size), ("top", top)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1; got {value}")
    size, device = int(torch.Size(shape).numel()), find_device(sea.forward_func).type
    large = size >= LARGE
    asks = len(shape) == 3 and (sea.output is None or sea.output.kind != "value")
    batch = batch_size or ((1 if large else 16) if device == "cpu" else (8 if large else 64))
    shard = shard_size or (64 if large else 512)
    return Settings(
        sea=describe_sea(sea),
        target="predicted" if target is None else target,
        batch_size=batch,
        shard_size=-(-shard // batch) * batch,
        precision=precision,
        members=members,
        curve=asks if curve is None else curve,
        top=top,
        device=device,
        internal_batch_size=internal_batch_size,
    )


def describe_sea(sea: SEA) -> dict[str, Any]:
    """The ensemble's settings as plain values."""
    config: SEAConfig = sea.config
    found: dict[str, Any] = _plain(
        {
            "members": {entry.label: dict(entry.options) for entry in sea.entries},
            "config": config.to_dict(),
            "output": None if sea.output is None else sea.output.kind,
            "seed": sea.seed,
            "autocast": str(sea.autocast),
            "compile": sea.compile,
            **({} if sea.budget is None else {"budget": sea.budget}),
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
    name = getattr(value, "__qualname__", None) or str(value)
    return name if code is None else f"{name} {hashlib.sha256(code.co_code).hexdigest()[:8]}"


def find_device(model: Callable[..., Any]) -> torch.device:
    """Where the model is; a function without parameters counts as on the CPU."""
    if isinstance(model, nn.Module):
        return next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.device("cpu")


def hash_weights(model: Callable[..., Any]) -> str:
    """A hash of a module's structure, parameters and buffers; of a function its name and code."""
    whole = hashlib.sha256()
    if not isinstance(model, nn.Module):
        code = getattr(model, "__code__", None)
        whole.update(getattr(model, "__qualname__", type(model).__qualname__).encode())
        whole.update(b"" if code is None else code.co_code)
        return whole.hexdigest()
    whole.update(str(model).encode())
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            continue
        plain = tensor.detach().cpu().contiguous()
        whole.update(f"{name} {plain.dtype} {list(plain.shape)}".encode())
        whole.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


def describe_source(source: Source) -> dict[str, Any]:
    """The source as the manifest states it."""
    return {"kind": source.kind, "name": source.name, "fingerprint": source.fingerprint()}
