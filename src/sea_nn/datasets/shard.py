"""One shard: load its inputs, explain them in fixed batches, make its rows and tensors.

It is a pure function of the run's job and the shard's number, so that any process on any machine
gives the same bytes. Inputs that fail become rows with an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.datasets.items import Item, Source
from sea_nn.datasets.plan import SHARES, Manifest, find_device
from sea_nn.datasets.storage import Array, Rows
from sea_nn.ensembling.heatmaps import is_flat
from sea_nn.errors import InputError, SEAError
from sea_nn.explanation.assemble import show_input
from sea_nn.explanation.explanation import Explanation
from sea_nn.metrics.sets import query_sets
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.outputs import predict, resolve_target
from sea_nn.sea import SEA

THUMBNAIL = 96  # pixels that the longer side of a stored picture has at most
DEAD = "no member's map differs from place to place: the model does not react to this input"


@dataclass(frozen=True)
class Job:
    """What every worker of a run needs.

    Attributes:
        manifest: settings and plan.
        source: where inputs come from.
        sea: the ensemble over its model.
        out: the run's folder.
    """

    manifest: Manifest
    source: Source
    sea: SEA
    out: Path


@dataclass
class Loaded:
    """The inputs of a shard, loaded and checked: by number an item, or what is wrong with it."""

    shard: int
    numbers: Sequence[int]
    items: dict[int, Item]
    errors: dict[int, tuple[str, str]]
    seconds: float


@dataclass
class Work:
    """What came of a shard.

    Attributes:
        rows: to be committed.
        shard: its number.
        evaluations: of the model, in all.
        failed: how many inputs have an error.
        seconds: of loading and of explaining.
    """

    shard: int
    rows: Rows
    evaluations: int
    failed: int
    seconds: dict[str, float] = field(default_factory=dict)


def load_shard(job: Job, shard: int, only: Iterable[int] | None = None) -> Loaded:
    """Load a shard's inputs, or only some of them, by as many threads as the source allows."""
    started = time.perf_counter()
    numbers = list(job.manifest.numbers(shard) if only is None else only)
    items: dict[int, Item] = {}
    errors: dict[int, tuple[str, str]] = {}

    def load(number: int) -> Item | tuple[str, str]:
        try:
            item = job.source.load(number)
            check_item(item, job.manifest.shape)
        except _ItemError as error:
            return error.kind, str(error)
        except Exception as error:  # decoders and users' data sets raise nearly anything
            kind = "class" if "no class named" in str(error) else "load"
            return kind, _describe(error)
        return item

    threads = min(job.source.threads, len(numbers))
    if threads > 1:
        with ThreadPoolExecutor(threads) as team:
            found = list(team.map(load, numbers))
    else:
        found = [load(number) for number in numbers]
    for number, one in zip(numbers, found, strict=True):
        if isinstance(one, Item):
            items[number] = one
        else:
            errors[number] = one
    return Loaded(shard, numbers, items, errors, time.perf_counter() - started)


class _ItemError(InputError):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def check_item(item: Item, shape: tuple[int, ...]) -> None:
    """Refuse an input of another shape than the run's, or one with NaN in it."""
    if tuple(item.x.shape) != tuple(shape):
        raise _ItemError(
            "shape", f"the input is {list(item.x.shape)}, the others are {list(shape)}"
        )
    if not bool(item.x.isfinite().all()):
        raise _ItemError("not_finite", "the input holds NaN or infinite values")


def explain_shard(
    job: Job, loaded: Loaded, tick: Callable[[int], None] = lambda count: None
) -> Work:
    """Explain what was loaded; ``tick`` is told how many inputs are done."""
    started = time.perf_counter()
    explainer = _Explainer(job)
    size = job.manifest.settings.batch_size
    # Batches are aligned to the data set: an input meets the same others whatever the shard.
    batches: dict[int, list[int]] = {}
    for number in loaded.items:
        batches.setdefault(number // size, []).append(number)
    for numbers in batches.values():
        explainer.explain({number: loaded.items[number] for number in numbers})
        tick(len(numbers))
    tick(len(loaded.errors))
    errors = {**loaded.errors, **explainer.errors}
    rows, place = [], 0
    for number in loaded.numbers:
        row: dict[str, Any] = {
            "index": number,
            "id": job.source.ids[number],
            "path": None if job.source.paths is None else job.source.paths[number],
            "evaluations": 0,
        }
        if number in loaded.items:
            row["label"] = loaded.items[number].label
        row |= explainer.facts.get(number, {})
        if number in errors:
            row["error_kind"], row["error"] = errors[number]
        else:
            row["place"], place = place, place + 1
        rows.append(row)
    good = [n for n in loaded.numbers if n not in errors]
    tensors = {
        name: np.stack([explainer.tensors[n][name] for n in good])
        for name in (explainer.tensors[good[0]] if good else ())
    }
    return Work(
        loaded.shard,
        Rows(rows, tensors, explainer.methods),
        sum(row["evaluations"] for row in rows),
        len(errors),
        {"load": loaded.seconds, "explain": time.perf_counter() - started},
    )


class _Explainer:
    """Explains batches, and gathers rows, tensors and errors by number."""

    def __init__(self, job: Job) -> None:
        self.job, self.settings = job, job.manifest.settings
        self.device = find_device(job.sea.forward_func)
        self.facts: dict[int, dict[str, Any]] = {}
        self.tensors: dict[int, dict[str, Array]] = {}
        self.errors: dict[int, tuple[str, str]] = {}
        self.methods: tuple[str, ...] = ()

    def explain(self, items: dict[int, Item]) -> None:
        """Explain a batch; if that fails, its halves, down to the input that is to blame."""
        try:
            self._explain(items)
        except Exception as error:  # users' models and members raise nearly anything
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            numbers = list(items)
            if len(numbers) == 1:
                self.errors[numbers[0]] = _classify(error), _describe(error)
                return
            del error  # it holds the batch's tensors
            half = len(numbers) // 2
            for part in (numbers[:half], numbers[half:]):
                self.explain({number: items[number] for number in part})

    def _explain(self, items: dict[int, Item]) -> None:
        sea, settings = self.job.sea, self.settings
        target = self._find_target(items)
        x = torch.stack([item.x for item in items.values()]).to(self.device)
        limit = settings.internal_batch_size
        e = sea.explain(x, target, internal_batch_size=limit, quiet=True)
        evaluations = sum(e.provenance.evaluations.values()) // len(x)
        predicted = e.target
        if settings.target != "predicted":
            with borrow(sea.forward_func):
                predicted = resolve_target(predict(sea.forward_func, x), None, sea.output)
            evaluations += 1
        curve = None
        if settings.curve:
            sets = torch.stack([e.top_mask(share) for share in SHARES], 1)
            answers = query_sets(
                sea.forward_func,
                x,
                e.target,
                sets,
                internal_batch_size=limit,
                seed=sea.seed,
                output=None if sea.output is None else sea.output.kind,
            )
            curve = answers.kept.score.cpu(), answers.removed.score.cpu()
            evaluations += 2 * len(SHARES) + 1
        self.methods = e.methods
        flat = is_flat(e.maps.flatten(0, 1)).reshape(e.maps.shape[:2]).cpu()
        agreement = _mean_agreement(e)
        thumbnails = _shrink(show_input(x), 1 if x.shape[1] == 1 else 3)
        for i, number in enumerate(items):
            label = items[number].label
            row: dict[str, Any] = {
                "target": int(e.target[i]),
                "target_name": self._name(int(e.target[i])),
                "probability": float(e.score[i]),
                "predicted": int(predicted[i]),
                "correct": None if label is None else int(predicted[i]) == label,
                "agreement": agreement[i],
                "checks": [f"{n}: flat" for n, f in zip(e.methods, flat[i], strict=True) if f],
                "evaluations": evaluations,
            }
            if curve is not None:
                row["keep"], row["remove"] = (answer[i].tolist() for answer in curve)
            self.facts[number] = row
            if bool(flat[i].all()):
                self.errors[number] = "dead", DEAD
                continue
            self.tensors[number] = self._store(e, i)
            if thumbnails is not None:
                self.tensors[number]["thumbnail"] = thumbnails[i]

    def _find_target(self, items: dict[int, Item]) -> Tensor | int | None:
        target = self.settings.target
        if target == "predicted":
            return None
        if target != "label":
            return int(target)
        labels = [item.label for item in items.values()]
        if any(label is None for label in labels):
            raise _ItemError("class", "the label is to be explained, and this input has none")
        return torch.tensor(labels, device=self.device)

    def _name(self, target: int) -> str | None:
        names = self.job.manifest.labels
        return names[target] if 0 <= target < len(names) else None

    def _store(self, e: Explanation, i: int) -> dict[str, Array]:
        n = e.order.shape[1]
        values = e.attribution[i].reshape(e.shape).float().cpu().numpy()
        largest = float(values.max()) if self.settings.precision != "float32" else 1.0
        stored: dict[str, Array] = {
            "map": narrow(values / largest if largest > 0 else values, self.settings.precision),
            "map_max": np.array(largest, np.float32),
            "top": e.order[i, : min(self.settings.top, n)]
            .cpu()
            .numpy()
            .astype(np.uint16 if n <= 1 << 16 else np.uint32),
        }
        if self.settings.members:
            stored["members"] = narrow(e.maps[i].cpu().numpy(), self.settings.precision)
        return stored


def narrow(values: Array, precision: str) -> Array:
    """Values in [0, 1] in the type that they are stored in."""
    if precision == "uint8":
        return np.round(values * 255).astype(np.uint8)
    return values.astype(np.dtype(precision))


def widen(values: Array) -> Tensor:
    """What ``narrow`` stored, as float32 in [0, 1]."""
    wide = torch.from_numpy(values.astype(np.float32))
    return wide / 255 if values.dtype == np.uint8 else wide


def _mean_agreement(e: Explanation) -> list[float | None]:
    m = len(e.methods)
    if m < 2:
        return [None] * len(e)
    pairs = torch.triu_indices(m, m, 1)
    means = e.agreement[:, pairs[0], pairs[1]].nanmean(1)
    return [None if mean != mean else mean for mean in means.tolist()]


def _shrink(pictures: Tensor | None, channels: int) -> Array | None:
    """Pictures, uint8 [N, H, W, 3], at most 96 pixels a side, [N, h, w, 1 or 3]."""
    if pictures is None:
        return None
    pictures = pictures[..., :channels]
    height, width = pictures.shape[1:3]
    factor = THUMBNAIL / max(height, width)
    if factor < 1:
        size = (max(1, round(height * factor)), max(1, round(width * factor)))
        small = interpolate(pictures.permute(0, 3, 1, 2).float(), size, mode="area")
        pictures = small.round().to(torch.uint8).permute(0, 2, 3, 1)
    return pictures.contiguous().numpy()


def _classify(error: Exception) -> str:
    text = str(error).lower()
    if isinstance(error, _ItemError):
        return error.kind
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "memory" in text:
        return "memory"
    if isinstance(error, SEAError) and "out of range" in text:
        return "class"
    return "not_finite" if "nan" in text else "model"


def _describe(error: Exception) -> str:
    text = str(error).strip() or "no message"
    return text if isinstance(error, SEAError) else f"{type(error).__name__}: {text}"
