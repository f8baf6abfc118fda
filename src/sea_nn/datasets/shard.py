"""One shard: read its inputs, explain them in fixed batches, make its rows and tensors, write it.

It is a pure function of the run's job and the shard's number, so that any process on any machine
gives the same bytes. Inputs that fail become rows with an error.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from sea_nn.datasets import storage
from sea_nn.datasets.items import MOST_CLASSES, Item, ItemError
from sea_nn.datasets.manifest import LostError, Manifest
from sea_nn.datasets.sources import Source
from sea_nn.datasets.storage import Array, Result, commit, list_committed, log
from sea_nn.errors import MemberError, SEAError
from sea_nn.explanation.assemble import COUNT, MUCH
from sea_nn.explanation.fields import show_input
from sea_nn.metrics.scoring import query_sets
from sea_nn.sea import SEA

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of the top features that are kept and removed for the measured curve."""
TOP = 256  # first features that are stored in their order
THUMBNAIL = 96  # pixels that the longer side of a stored picture has at most
DEAD = "no member's map differs from place to place: the model does not react to this input"


@dataclass(frozen=True)
class Job:
    """What every worker of a run needs; ``out`` is the run's folder."""

    manifest: Manifest
    source: Source
    sea: SEA
    out: Path


@dataclass(frozen=True)
class Task:
    """Inputs of a shard to do: all, or of one that is there already those that failed."""

    shard: int
    numbers: Sequence[int]


def do_shard(
    job: Job, task: Task, tick: Callable[[int], None] = lambda count: None
) -> Counter[str]:
    """Explain a shard and write it; return how many inputs, failures, evaluations and bytes.

    ``tick`` is told how many more inputs are explained.
    """
    manifest, started, threads = job.manifest, time.perf_counter(), torch.get_num_threads()
    log(job.out, "begin", shard=task.shard)
    with ThreadPoolExecutor(job.source.threads) as readers:
        inputs = readers.map(partial(load_input, job), task.numbers)
        loaded = dict(zip(task.numbers, inputs, strict=True))
    torch.set_num_threads(manifest.threads)  # over others, last bits of sums differ
    try:
        results = list(explain_inputs(job, loaded, tick))
    finally:
        torch.set_num_threads(threads)
    errors = [row for row, _ in results if row["error"] is not None]
    broken = [row["error"] for row in errors if row["error_kind"] == "model"]
    if broken and len(errors) == len(loaded) and not list_committed(job.out):
        # Stop before the run fills with errors.
        raise MemberError(f"no input of shard {task.shard} could be explained: {broken[0]}")
    done = Counter(n_inputs=len(loaded), failed=len(errors))
    done["evaluations"] = sum(row["evaluations"] for row, _ in results)
    if len(loaded) < len(manifest.numbers(task.shard)):
        table, facts = storage.read_rows(job.out, task.shard)
        tensors = storage.read_tensors(job.out, task.shard, facts)
        others = (row for row in table.to_pylist() if row["index"] not in loaded)
        results += [(row, tensors.get(row["index"])) for row in others]
    manifest.check_there(job.out)
    try:
        done["bytes"] = commit(job.out, task.shard, results, manifest.key)
    except FileNotFoundError as error:  # what was being written is gone
        raise LostError(job.out, str(error)) from error
    seconds = time.perf_counter() - started
    log(job.out, "commit", shard=task.shard, seconds=seconds, **done)
    return done


def load_input(job: Job, number: int) -> Item | ItemError:
    """Read an input and check it; what is wrong with it is returned, not raised."""
    try:
        item = job.source.read(number)
    except Exception as error:  # decoders and users' data sets raise nearly anything
        return error if isinstance(error, ItemError) else ItemError("load", _describe(error))
    if tuple(item.x.shape) != tuple(job.manifest.shape):
        wanted = list(job.manifest.shape)
        return ItemError("shape", f"the input is {list(item.x.shape)}, the others are {wanted}")
    if not bool(item.x.isfinite().all()):
        return ItemError("not_finite", "the input holds NaN or infinite values")
    return item


def explain_inputs(
    job: Job, loaded: Mapping[int, Item | ItemError], tick: Callable[[int], None]
) -> Iterator[Result]:
    """Explain what was loaded, batch by batch; of a batch that fails, what can be of it.

    Batches are aligned to the data set: an input meets the same others whatever the shard.
    """
    batches: dict[int, dict[int, Item]] = {}
    for number, item in loaded.items():
        if isinstance(item, ItemError):
            yield _fail(job, number, None, item)
            tick(1)
        else:
            batches.setdefault(number // job.manifest.batch_size, {})[number] = item
    queue = list(batches.values())
    for batch in queue:  # of one that fails, the halves, down to the input that is to blame
        results, failure = list[Result](), None
        try:
            results = _explain(job, batch)
        except Exception as error:  # users' models and members raise nearly anything
            failure = ItemError(_classify(error), _describe(error))
        if failure is not None:
            torch.cuda.empty_cache()  # now that the error holds nothing
            numbers, half = list(batch), len(batch) // 2
            if half:
                queue += [{n: batch[n] for n in some} for some in (numbers[:half], numbers[half:])]
            else:
                results = [_fail(job, numbers[0], batch[numbers[0]].label, failure)]
        yield from results
        tick(len(results))


def _start_row(job: Job, number: int, label: int | None = None) -> dict[str, Any]:
    """What is known of an input before it is explained."""
    source = job.source
    found = {"index": number, "id": source.ids[number], "digest": source.digests[number]}
    path = None if source.paths is None else source.paths[number]
    return found | {"path": path, "label": label, "evaluations": 0, "error": None}


def _fail(job: Job, number: int, label: int | None, error: ItemError) -> Result:
    row = _start_row(job, number, label)
    return row | {"error_kind": error.kind, "error": str(error)}, None


def _explain(job: Job, items: Mapping[int, Item]) -> list[Result]:
    """The row and the tensors of each input; no tensors if no member's map says anything."""
    model, manifest, own = job.sea.forward_func, job.manifest, job.sea.settings
    plain = torch.stack([item.x for item in items.values()])
    x, labels = plain.to(find_device(model)), [item.label for item in items.values()]
    target: Any = None if manifest.target == "predicted" else manifest.target
    if target == "label":
        if None in labels:
            raise ItemError("class", "the label is to be explained, and this input has none")
        target = torch.tensor(labels, device=x.device)
    limit = manifest.internal_batch_size
    e = job.sea.explain(x, target, internal_batch_size=limit)
    evaluations = sum(e.provenance.evaluations.values()) // len(x)
    kept = removed = none = [None] * len(x)
    if manifest.curve or (e.function is not None and e.view == "picture"):
        sets = torch.stack([e.top_mask(share) for share in SHARES], 1)
        if manifest.curve:
            kind = None if own.output is None else own.output.kind
            asked: Any = {"internal_batch_size": limit, "seed": own.seed, "output": kind}
            said = query_sets(model, x, e.target, sets, **asked)
            kept, removed = (answers.score.tolist() for answers in said)
            evaluations += 2 * len(SHARES) + 1
        else:
            kept, removed = e.predict(sets).tolist(), e.predict(~sets).tolist()
    # Maps are ranked and made small where they are: on a GPU that costs next to nothing.
    flat = torch.zeros(len(x), 0, dtype=torch.bool)  # where no member could say anything
    if e.methods:
        flat = ~e.maps.flatten(2).any(2).cpu()
    nothing = ~e.attribution.flatten(1).any(1, keepdim=True)  # no feature is worth anything
    little = torch.zeros(len(x)) if e.function is None else e.function.find_doubt()
    empty = torch.cat([flat, nothing.cpu(), little.cpu()[:, None] > MUCH], 1).tolist()
    told = [*(f"{name}: flat" for name in (*e.methods, "SEA")), "SEA: says little"]
    values = e.attribution.reshape(len(e), *e.shape).float()
    largest = values.flatten(1).amax(1)
    if manifest.precision == "float32":
        largest = torch.ones_like(largest)
    divisor = largest.where(largest > 0, 1.0).reshape(-1, *(1 for _ in e.shape))
    tensors = {
        "map": narrow(values / divisor, manifest.precision),
        "top": e.order[:, :TOP].cpu().numpy().astype(np.min_scalar_type(e.order.shape[1])),
    }
    if manifest.stored_members:
        tensors["members"] = narrow(e.maps, manifest.precision)
    pictures = show_input(plain)
    if pictures is not None:
        tensors["thumbnail"] = _shrink(pictures[..., : x.shape[1]])  # one channel if it has one
    columns = {
        "label": labels,
        "target": e.target.tolist(),
        "score": e.score.tolist(),
        "predicted": (e.target if e.ranking is None else e.ranking.classes[:, 0]).tolist(),
        "agreement": [None if math.isnan(a) else a for a in e.mean_agreement().tolist()],
        "predict_error": none if e.predict_error is None else e.predict_error.tolist(),
        "checks": [[name for name, is_so in zip(told, one, strict=True) if is_so] for one in empty],
        "keep": kept,
        "remove": removed,
        "map_max": largest.tolist(),
    }
    names = dict(enumerate(manifest.labels))
    n_ranked = COUNT if e.ranking is None else e.ranking.classes.shape[1]
    n_classes = n_ranked if n_ranked < COUNT else MOST_CLASSES  # all, or who knows how many
    same = {"unit": e.output.unit, "methods": list(e.methods), "evaluations": evaluations}
    found: list[Result] = []
    for i, number in enumerate(items):
        row = _start_row(job, number) | {name: values[i] for name, values in columns.items()}
        row |= same | {"target_name": names.get(row["target"])}
        if row["label"] is not None and row["label"] >= n_classes:
            row["label"] = None
        if row["label"] is not None:
            row["correct"] = row["predicted"] == row["label"]
        if e.methods and bool(flat[i].all()):
            found.append((row | {"error_kind": "dead", "error": DEAD}, None))
        else:
            found.append((row, {name: t[i] for name, t in tensors.items()}))
    return found


def narrow(values: Tensor, precision: str) -> Array:
    """Values in [0, 1] in the type that they are stored in."""
    values = (values * 255).round() if precision == "uint8" else values
    return values.to(getattr(torch, precision)).cpu().numpy()


def widen(values: Array) -> Tensor:
    """What ``narrow`` stored, as float32 in [0, 1]."""
    wide = torch.from_numpy(values.astype(np.float32))
    return wide / 255 if values.dtype == np.uint8 else wide


def _shrink(pictures: Tensor) -> Array:
    """Pictures, uint8 [N, H, W, C], at most 96 pixels a side; of volumes the middle slice."""
    if pictures.ndim == 5:
        pictures = pictures[:, pictures.shape[1] // 2]
    sides = pictures.shape[1:3]
    factor = min(1.0, THUMBNAIL / max(sides))
    size = [max(1, round(side * factor)) for side in sides]
    small = interpolate(pictures.permute(0, 3, 1, 2).float(), size, mode="area")
    return small.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def _classify(error: Exception) -> str:
    text = str(error).lower()
    if isinstance(error, ItemError):
        return error.kind
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "memory" in text:
        return "memory"
    if isinstance(error, SEAError) and "out of range" in text:
        return "class"
    return "not_finite" if "nan" in text else "model"


def _describe(error: Exception) -> str:
    text = str(error).strip() or "no message"
    return text if isinstance(error, SEAError) else f"{type(error).__name__}: {text}"


def find_device(model: Callable[..., Any]) -> torch.device:
    """Where the model is; a function without parameters counts as on the CPU."""
    if isinstance(model, nn.Module):
        return next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.device("cpu")
