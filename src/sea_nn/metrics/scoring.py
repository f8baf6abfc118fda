"""Score maps: every metric, input and method, with the model asked in full chunks.

>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> x, mine = torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8)
>>> scores = score_maps(model, x, None, {"mine": mine}, metrics=("deletion:mean", "gini"))
>>> scores.methods, scores.values["deletion:mean"].shape
(('mine', 'random'), torch.Size([2, 2]))
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sea_nn.errors import InputError, KindError
from sea_nn.features import Features, Kind, check_input
from sea_nn.metrics.catalogue import UNBOUNDED, get_metric
from sea_nn.metrics.map_batch import MapBatch, Metric, PerturbationKind, PointOutputs, ask_sets
from sea_nn.metrics.scores import Scores
from sea_nn.model.noise import random_map
from sea_nn.model.opening import open_model
from sea_nn.model.outputs import Meter, Target
from sea_nn.questions.absent import Bounds

# Ranking takes some 50 bytes a position and method; these keep a block of inputs under 0.5 GB on a
# CPU and 4 GB on a GPU.
CPU_BLOCK = 1 << 23
CUDA_BLOCK = 1 << 26
IMAGE_METRICS = ("aupc_windows:black", "aupc_windows:noise", "deletion:blur", "insertion:blur")
OTHER_METRICS = ("deletion:mean", "insertion:mean")
RANDOM = "random"


def score_maps(
    model: Callable[..., Any] | None,
    x: Tensor,
    target: Target,
    maps: Mapping[str, Tensor],
    metrics: Sequence[str | Metric] | None = None,
    *,
    masks: Tensor | None = None,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    random: bool = True,
    allow_zero: bool = False,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    output: str | None = None,
) -> Scores:
    """Score the maps of several methods on the same inputs, on the device that x is on.

    Args:
        model: a module or callable in the sense of ``TensorModel``; None if no metric asks it.
        x: inputs [N, F], [N, C, T], [N, C, H, W] or [N, C, D, H, W].
        target: the class explained: one, one an input, or None for the predicted one.
        maps: by method, [N, *positions] or [N, 1, *positions]; larger is more relevant. The
            positions are those of ``SEA``'s maps: columns, steps of each channel, pixels, voxels.
        metrics: names (see ``get_metric``, ``describe_metrics``) or ``Metric`` objects; left out,
            AUPC by windows, deletion and insertion.
        masks: where the object is, bool [N, *positions]; for "jaccard" also graded annotations.
        bounds: the lowest and highest value of each channel, for "black" and "noise"; left out,
            each input's own. See ``pixel_bounds`` for normalised images.
        seed: starts every draw: noise, the order of ties, the random map. They are the same for all
            methods and do not depend on how inputs are batched.
        first: the number of the first input, if x is part of a larger set.
        random: also score a random map, under "random".
        allow_zero: rank maps of zeros at random instead of refusing them.
        additional_forward_args: further arguments of the model; tensors with N entries follow x.
        internal_batch_size: the most inputs in one pass of the model; left out, by memory.
        output: what the model's outputs are: "logits", "probabilities", "sigmoid" or "value"; None
            to find out, with an ``AssumptionWarning`` where something is assumed.

    Raises:
        InputError, KindError: the call is wrong; the message says what was expected.
    """
    check_input(x)
    if not isinstance(maps, Mapping):
        raise KindError(
            f"maps must be a dict from method to maps [N, *positions]; got {type(maps).__name__}"
        )
    features = Features.of(x)
    chosen = _choose_metrics(metrics, x, features.kind, model, masks)
    methods = {name: _check_map(name, one, x, features, allow_zero) for name, one in maps.items()}
    if random:
        methods.setdefault(RANDOM, random_map((len(x), *features.shape), seed, first, x.device))
    if not methods:
        raise InputError("maps must hold at least one method's maps")
    masks = None if masks is None else _match(masks, x, features, "masks")
    meter = Meter()
    opened: Any = nullcontext()
    if model is not None and any("model" in metric.needs for metric in chosen):
        asked = {"args": additional_forward_args, "limit": internal_batch_size, "output": output}
        opened = open_model(model, x, target, features=features, meter=meter, **asked)
    found: dict[str, list[Any]] = {metric.name: [] for metric in chosen}
    spent = dict.fromkeys(found, 0)
    with opened as probe:
        if probe is not None and probe.output.kind == "value":
            chosen = [replace(m, range=UNBOUNDED) if "model" in m.needs else m for m in chosen]
        room = CUDA_BLOCK if x.is_cuda else CPU_BLOCK
        size = max(1, room // (math.prod(features.shape) * len(methods)))
        for start in range(0, len(x), size):
            part = slice(start, min(start + size, len(x)))
            batch = MapBatch(
                x=x[part].detach(),
                maps=torch.stack([one[part].to(x.device) for one in methods.values()], 1),
                methods=tuple(methods),
                probe=None if probe is None else probe.part(part),
                masks=None if masks is None else masks[part].to(x.device),
                bounds=bounds,
                seed=seed,
                first=first + start,
                part=part,
            )
            for metric in chosen:
                before = meter.seen
                found[metric.name].append(metric.compute(batch))
                spent[metric.name] += meter.seen - before
    scores = Scores(tuple(methods), {one.name: one for one in chosen}, {}, {}, spent)
    for name, parts in found.items():
        values = torch.cat([one.values.detach() for one in parts]).to("cpu", torch.float64)
        if curves := [one.curve.detach() for one in parts if one.curve is not None]:
            scores.curves[name] = torch.cat(curves).cpu()
        notes = list(dict.fromkeys(note for one in parts for note in one.notes))
        if undefined := int(values.isnan().any(1).sum()):
            reason = "" if notes else " (an empty mask, or a map of zeros)"
            notes.append(f"undefined, nan, on {undefined} of {len(x)} inputs{reason}")
        scores.values[name], scores.notes[name] = values, tuple(notes)
    return scores


def _choose_metrics(
    metrics: Sequence[str | Metric] | None, x: Tensor, kind: Kind, model: Any, masks: Tensor | None
) -> list[Metric]:
    """The metrics asked for, each once, or those that suit the input; none lacks anything."""
    picture = kind.view == "picture"
    if metrics is None:
        metrics = IMAGE_METRICS if picture else OTHER_METRICS
    given = (metrics,) if isinstance(metrics, str | Metric) else metrics
    chosen = [get_metric(one) for one in dict.fromkeys(given)]
    if not chosen or len({metric.name for metric in chosen}) < len(chosen):
        raise InputError(
            "metrics must hold at least one metric, and no two metrics are called the same: give "
            "one another name, with dataclasses.replace(metric, name=...)"
        )
    lacking = {
        "model": "" if model is not None else "a model: pass it as the first argument",
        "masks": "" if masks is not None else "masks: pass masks=, bool [N, *positions]",
        "image": "" if picture else f"images [N, C, H, W], and x is {list(x.shape)}",
    }
    for metric in chosen:
        for need in metric.needs:
            if lacking[need]:
                raise InputError(f"{metric.name} cannot be scored without {lacking[need]}")
    return chosen


def _check_map(name: str, given: Any, x: Tensor, features: Features, allow_zero: bool) -> Tensor:
    """Return one method's maps as floats [N, *positions], or say what is wrong with them."""
    if not isinstance(given, Tensor) or given.is_complex() or given.is_meta:
        raise KindError(f"the maps of {name!r} must be a real tensor that holds numbers")
    one = _match(given.detach(), x, features, f"the maps of {name!r}")
    one = one.to(torch.promote_types(one.dtype, torch.float32))
    if not bool(one.isfinite().all()):
        raise InputError(f"the maps of {name!r} hold nan or infinite values")
    rows = (one == 0).flatten(1).all(1).nonzero()
    if len(rows) and not allow_zero:
        raise InputError(
            f"the map of {name!r} is zero everywhere on {len(rows)} of {len(x)} inputs (first: "
            f"input {int(rows[0])}), so it ranks nothing. Leave these inputs or this method "
            "out, or pass allow_zero=True to rank such maps at random"
        )
    return one


def _match(values: Tensor, x: Tensor, features: Features, what: str) -> Tensor:
    """Return values [N, *positions], or [N, 1, *positions], without the channel."""
    expected = (len(x), *features.shape)
    one = values.squeeze(1) if values.ndim == len(expected) + 1 else values
    if one.shape != expected:
        raise InputError(
            f"{what} must be {list(expected)}; they are {list(values.shape)}, and x is "
            f"{list(x.shape)}. See sea_nn.paper.heatmaps: reduce_channels, upsample"
        )
    return one


def query_sets(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    sets: Tensor,
    perturbation: PerturbationKind = "blur",
    *,
    seed: int = 0,
    internal_batch_size: int | None = None,
    output: str | None = None,
) -> tuple[PointOutputs, PointOutputs]:
    """Return what the model says with only sets of positions left, and with only these hidden.

    ``sets`` are bool [N, k, *positions], and what is said of each is [N, k]. ``perturbation`` is
    how positions are hidden; the other arguments are those of ``score_maps``.
    """
    shape = Features.of(x).shape
    if sets.dtype != torch.bool:
        raise KindError(f"sets must be bool [N, k, *positions]; got {sets.dtype}")
    if sets.ndim < 2 or (len(sets), *sets.shape[2:]) != (len(x), *shape):
        raise InputError(
            f"sets must be [N, k, *positions] with N = {len(x)} and positions {list(shape)}; got "
            f"{list(sets.shape)}"
        )
    with open_model(model, x, target, limit=internal_batch_size, output=output) as probe:
        probe.output.check_class()
        none = x.new_empty(len(x), 0, *shape)
        batch = MapBatch(x.detach(), none, (), probe.part(slice(None)), seed=seed)
        own = sets.to(x.device)
        return ask_sets(batch, perturbation, own, True), ask_sets(batch, perturbation, own, False)
