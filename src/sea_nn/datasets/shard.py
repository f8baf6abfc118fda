"""One shard: read its inputs, explain them in fixed batches, make its rows and tensors.

It is a pure function of the run's job and the shard's number, so that any process on any machine
gives the same bytes. Inputs that fail become rows with an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sea_nn.datasets.items import MOST_CLASSES, Item, ItemError, Source
from sea_nn.datasets.manifest import Manifest, find_device
from sea_nn.datasets.storage import Array, Rows, sum_tensors
from sea_nn.errors import SEAError
from sea_nn.explanation.assemble import COUNT
from sea_nn.explanation.checks import MUCH
from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.fields import show_input
from sea_nn.metrics.sets import query_sets
from sea_nn.paper.heatmaps import is_flat
from sea_nn.sea import SEA

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of the top features that are kept and removed for the measured curve."""
TOP = 256  # first features that are stored in their order
THUMBNAIL = 96  # pixels that the longer side of a stored picture has at most
DEAD = "no member's map differs from place to place: the model does not react to this input"

Loaded = Mapping[int, Item | ItemError]
"""By number an input, or what is wrong with it."""


@dataclass(frozen=True)
class Job:
    """What every worker of a run needs; ``out`` is the run's folder."""

    manifest: Manifest
    source: Source
    sea: SEA
    out: Path


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


@dataclass(frozen=True)
class Answer:
    """What is kept of a batch: columns and tensors with a value for each input, on the CPU.

    ``dead`` says of which inputs no member's map says anything, ``n_classes`` how many classes the
    model has, where the ranking has them all.
    """

    columns: dict[str, list[Any]]
    tensors: dict[str, Array]
    dead: list[bool]
    n_classes: int = MOST_CLASSES


Answered = tuple[Mapping[int, Item], Answer | ItemError]
"""Some inputs, and what came of them."""


def explain_inputs(job: Job, loaded: Loaded) -> Iterator[Answered]:
    """Explain what was loaded, batch by batch; of a batch that fails, what can be of it.

    Batches are aligned to the data set: an input meets the same others whatever the shard.
    """
    batches: dict[int, dict[int, Item]] = {}
    for number, item in loaded.items():
        if isinstance(item, Item):
            own = batches.setdefault(number // job.manifest.settings.batch_size, {})
            own[number] = item
    for batch in batches.values():
        yield from _explain_or_halve(job, batch)


def make_rows(job: Job, loaded: Loaded, answers: Sequence[Answered]) -> Rows:
    """The rows and tensors of a shard, from the answers about its batches."""
    found: dict[int, tuple[dict[str, Any], dict[str, Array] | None]] = {}
    for items, answer in answers:
        if isinstance(answer, ItemError):
            found |= {number: (_fail(answer), None) for number in items}
        else:
            found |= _divide(job, items, answer)
    rows: list[dict[str, Any]] = []
    kept: list[dict[str, Array]] = []
    for number, item in loaded.items():
        row: dict[str, Any] = {
            "index": number,
            "id": job.source.ids[number],
            "path": None if job.source.paths is None else job.source.paths[number],
            "label": item.label if isinstance(item, Item) else None,
            "evaluations": 0,
        }
        facts, own = found[number] if isinstance(item, Item) else (_fail(item), None)
        row |= facts
        if own is not None:
            row["place"] = len(kept)
            kept.append(own)
        rows.append(row)
    return Rows(rows, stack_tensors(rows, kept))


def stack_tensors(
    rows: Sequence[dict[str, Any]], kept: Sequence[Mapping[str, Array]]
) -> dict[str, Array]:
    """The tensors of a shard's inputs as one each, and their checksums as a column of ``rows``.

    Inputs that fell back on other members may have fewer maps of members; zeros fill the rest.
    """
    most = max((len(one["members"]) for one in kept if "members" in one), default=0)

    def fill(name: str, values: Array) -> Array:
        missing = most - len(values) if name == "members" else 0
        return np.pad(values, ((0, missing), *((0, 0),) * (values.ndim - 1))) if missing else values

    filled = [{name: fill(name, values) for name, values in one.items()} for one in kept]
    for row in rows:
        row["checksum"] = None if row.get("place") is None else sum_tensors(filled[row["place"]])
    return {name: np.stack([one[name] for one in filled]) for name in (filled[0] if filled else ())}


def _fail(error: ItemError) -> dict[str, Any]:
    """The columns of an input that could not be explained."""
    return {"error_kind": error.kind, "error": str(error)}


def _explain_or_halve(job: Job, items: Mapping[int, Item]) -> Iterator[Answered]:
    """Explain a batch; if that fails, its halves, down to the input that is to blame."""
    try:
        answer = _explain(job, items)
    except Exception as error:  # users' models and members raise nearly anything
        failure = ItemError(_classify(error), _describe(error))
    else:
        yield items, answer
        return
    if find_device(job.sea.forward_func).type == "cuda":
        torch.cuda.empty_cache()
    numbers, half = list(items), len(items) // 2
    if not half:
        yield items, failure
        return
    for part in (numbers[:half], numbers[half:]):
        yield from _explain_or_halve(job, {number: items[number] for number in part})


def _explain(job: Job, items: Mapping[int, Item]) -> Answer:
    sea, settings = job.sea, job.manifest.settings
    model, limit = sea.forward_func, settings.internal_batch_size
    x = torch.stack([item.x for item in items.values()]).to(find_device(model))
    target: Tensor | int | None = None
    if settings.target == "label":
        labels = [item.label for item in items.values() if item.label is not None]
        if len(labels) < len(items):
            raise ItemError("class", "the label is to be explained, and this input has none")
        target = torch.tensor(labels, device=x.device)
    elif settings.target != "predicted":
        target = int(settings.target)
    e = sea.explain(x, target, internal_batch_size=limit)
    evaluations = sum(e.provenance.evaluations.values()) // len(x)
    curve: dict[str, list[Any]] = {}
    learned = e.function is not None and e.view == "picture"
    if settings.curve or learned:
        sets = torch.stack([e.top_mask(share) for share in SHARES], 1)
    if settings.curve:
        own = sea.settings
        kind = None if own.output is None else own.output.kind
        answers = query_sets(
            model, x, e.target, sets, internal_batch_size=limit, seed=own.seed, output=kind
        )
        curve = {"keep": answers.kept.score.tolist(), "remove": answers.removed.score.tolist()}
        evaluations += 2 * len(SHARES) + 1
    elif learned:
        curve = {"keep": e.predict(sets).tolist(), "remove": e.predict(~sets).tolist()}
    # Maps are ranked and made small where they are: on a GPU that costs next to nothing.
    flat = torch.zeros(len(x), 0, dtype=torch.bool)  # where no member could say anything
    if e.methods:
        flat = is_flat(e.maps.flatten(0, 1)).reshape(e.maps.shape[:2])
    nothing = ~e.attribution.flatten(1).any(1, keepdim=True)  # no feature is worth anything
    names = (*e.methods, "SEA")
    empty = torch.cat([flat.cpu(), nothing.cpu()], 1).tolist()
    agreement = [None] * len(x)
    if len(e.methods) > 1:
        agreement = [None if a != a else a for a in e.mean_agreement().tolist()]
    little = [False] * len(x) if e.function is None else (e.function.find_doubt() > MUCH).tolist()
    columns = {
        "target": e.target.tolist(),
        "score": e.score.tolist(),
        "unit": [e.output.unit] * len(x),
        "predicted": (e.target if e.ranking is None else e.ranking.classes[:, 0]).tolist(),
        "agreement": agreement,
        "predict_error": [None] * len(x) if e.predict_error is None else e.predict_error.tolist(),
        "methods": [list(e.methods)] * len(x),
        "checks": [
            [
                *(f"{name}: flat" for name, is_dead in zip(names, row, strict=True) if is_dead),
                *(["SEA: says little"] if poor else ()),
            ]
            for row, poor in zip(empty, little, strict=True)
        ],
        "evaluations": [evaluations] * len(x),
        **curve,
    }
    tensors = _make_small(e, settings.precision, settings.members)
    ranked = COUNT if e.ranking is None else e.ranking.classes.shape[1]
    known = ranked if ranked < COUNT else MOST_CLASSES
    dead = flat.all(1) if e.methods else torch.zeros(len(x), dtype=torch.bool)
    return Answer(columns, tensors, dead.tolist(), known)


def _make_small(e: Explanation, precision: str, members: bool) -> dict[str, Array]:
    """What is stored of a batch's maps."""
    values = e.attribution.reshape(len(e), *e.shape).float()
    largest = values.flatten(1).amax(1)
    if precision == "float32":
        largest = torch.ones_like(largest)
    divisor = largest.where(largest > 0, torch.ones_like(largest))
    n_bits = 16 if e.order.shape[1] <= 1 << 16 else 32
    stored = {
        "map": narrow(values / divisor.reshape(-1, *(1 for _ in e.shape)), precision),
        "map_max": largest.cpu().numpy(),
        "top": e.order[:, :TOP].cpu().numpy().astype(f"uint{n_bits}"),
    }
    if members:
        stored["members"] = narrow(e.maps, precision)
    return stored


def _divide(
    job: Job, items: Mapping[int, Item], answer: Answer
) -> dict[int, tuple[dict[str, Any], dict[str, Array] | None]]:
    """By input its row and its tensors; no tensors if no member's map says anything."""
    names, tensors = job.manifest.labels, dict(answer.tensors)
    x = torch.stack([item.x for item in items.values()])
    thumbnails = _shrink(show_input(x), 1 if x.shape[1] == 1 else 3)
    if thumbnails is not None:
        tensors["thumbnail"] = thumbnails
    found = {}
    for i, (number, item) in enumerate(items.items()):
        row = {name: values[i] for name, values in answer.columns.items()}
        row["target_name"] = names[row["target"]] if 0 <= row["target"] < len(names) else None
        if item.label is not None:
            known = item.label < answer.n_classes
            row |= {"label": item.label if known else None}
            row["correct"] = row["predicted"] == item.label if known else None
        if answer.dead[i]:
            row |= _fail(ItemError("dead", DEAD))
        own = None if answer.dead[i] else {name: values[i] for name, values in tensors.items()}
        found[number] = row, own
    return found


def narrow(values: Tensor, precision: str) -> Array:
    """Values in [0, 1] in the type that they are stored in."""
    if precision == "uint8":
        return (values * 255).round().to(torch.uint8).cpu().numpy()
    return values.to(getattr(torch, precision)).cpu().numpy()


def widen(values: Array) -> Tensor:
    """What ``narrow`` stored, as float32 in [0, 1]."""
    wide = torch.from_numpy(values.astype(np.float32))
    return wide / 255 if values.dtype == np.uint8 else wide


def _shrink(pictures: Tensor | None, channels: int) -> Array | None:
    """Pictures, uint8 [N, H, W, 3], at most 96 pixels a side, [N, h, w, 1 or 3].

    Of volumes the middle slice.
    """
    if pictures is None:
        return None
    if pictures.ndim == 5:
        pictures = pictures[:, pictures.shape[1] // 2]
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
