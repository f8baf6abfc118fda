"""Score maps: every metric, input and method, with the model asked in full chunks.

>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> x, mine = torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8)
>>> scores = score_maps(model, x, None, {"mine": mine}, metrics=("deletion:mean", "gini"))
>>> scores.methods, scores.values["deletion:mean"].shape
(('mine', 'random'), torch.Size([2, 2]))
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sea_nn.borrow import borrow
from sea_nn.errors import InputError, KindError, SEAError
from sea_nn.evaluator import Evaluator
from sea_nn.logits import Logits, Target, as_args, predict, resolve_target, select_args
from sea_nn.metrics.curve import Answers
from sea_nn.metrics.draws import random_map
from sea_nn.metrics.metric import Metric
from sea_nn.metrics.perturbation import Bounds, positions
from sea_nn.metrics.scores import Curve, Scores
from sea_nn.metrics.sensitivity import RANDOM, Recompute
from sea_nn.metrics.trial import Kind, Outcome, Trial, ask_sets
from sea_nn.metrics.validation import (
    check_maps,
    check_needs,
    check_segments,
    choose_metrics,
    match_masks,
)

# Ranking takes some 50 bytes a position and method; these keep a block of inputs under 0.5 GB on a
# CPU and 4 GB on a GPU.
CPU_BLOCK = 1 << 23
CUDA_BLOCK = 1 << 26
# Forward passes on a CPU are fastest while a layer's output stays in the cache of its core: the
# Fashion-MNIST CNN takes 0.14 ms an input in chunks of 64, 0.16 in chunks of 128 and 0.22 in chunks
# of 256; EfficientNet-Lite0 19 ms in chunks of 1 or 2 and 25 to 30 in chunks of 4 to 16.
CPU_CACHE = 6 << 20
Progress = Callable[[str, int, int], None]


def score_maps(
    model: Callable[..., Any] | None,
    x: Tensor,
    target: Target,
    maps: Mapping[str, Tensor],
    metrics: Sequence[str | Metric] | None = None,
    *,
    masks: Tensor | None = None,
    segments: Tensor | None = None,
    recompute: Recompute | None = None,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    random: bool = True,
    allow_zero: bool = False,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    autocast: torch.dtype | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Score the maps of several methods on the same inputs, on the device that x is on.

    Args:
        model: a module or callable in the sense of ``Logits``; None if no metric asks it.
        x: inputs [N, F], [N, C, T] or [N, C, H, W].
        target: the class explained: one, one an input, or None for the predicted one.
        maps: by method, [N, *positions] or [N, 1, *positions]; larger is more relevant.
        metrics: names (see ``get_metric``, ``describe_metrics``) or ``Metric`` objects; left out,
            AUPC by windows, deletion and insertion.
        masks: where the object is, bool [N, *positions]; for "jaccard" also graded annotations.
        segments: superpixels, whole numbers [N, *positions] or [*positions].
        recompute: from inputs to maps by method, for "robustness".
        bounds: the lowest and highest value of each channel, for "black" and "noise"; left out,
            each input's own. See ``pixel_bounds`` for normalised images.
        seed: starts every draw: noise, the order of ties, the random map. They are the same for all
            methods and do not depend on how inputs are batched.
        first: the number of the first input, if x is part of a larger set.
        random: also score a random map, under "random".
        allow_zero: rank maps of zeros at random instead of refusing them.
        additional_forward_args: further arguments of the model; tensors with N entries follow x.
        internal_batch_size: the most inputs in one pass of the model; left out, by memory.
        autocast: the precision on a GPU, or None for the model's own.
        progress: called with (metric, inputs done, inputs in all) after each block of inputs.

    Raises:
        InputError, KindError: the call is wrong; the message says what was expected.
    """
    chosen = choose_metrics(metrics, x)
    methods = check_maps(x, maps, random, allow_zero)
    check_needs(chosen, x, model, masks, segments, recompute)
    masks = match_masks(masks, x)
    check_segments(segments, x)
    record = _Record(tuple(methods) + ((RANDOM,) if random and RANDOM not in methods else ()))
    asks = model is not None and any("model" in metric.needs for metric in chosen)
    size = _block_size(x, len(record.methods))
    with torch.inference_mode(False), _borrowed(model):
        tasks = _open(
            model if asks else None, x, target, additional_forward_args, internal_batch_size,
            autocast, record,
        )  # fmt: skip
        for start in range(0, len(x), size):
            part = slice(start, min(start + size, len(x)))
            stacked = [values[part].to(x.device) for values in methods.values()]
            if len(record.methods) > len(stacked):
                shape = (part.stop - part.start, *positions(x))
                stacked.append(random_map(shape, seed, first + start, x.device))
            own = segments is not None and segments.ndim > len(positions(x))
            trial = Trial(
                x=x[part].detach(),
                maps=torch.stack(stacked, 1),
                methods=record.methods,
                task=tasks(part),
                masks=None if masks is None else masks[part].to(x.device),
                segments=segments[part] if own and segments is not None else segments,
                recompute=recompute,
                bounds=bounds,
                seed=seed,
                first=first + start,
            )
            for metric in chosen:
                record.measure(metric, trial)
                if progress is not None:
                    progress(metric.name, part.stop, len(x))
    return record.finish(chosen)


@dataclass(frozen=True)
class SetAnswers:
    """What the model says about sets of positions, [N, k] each.

    Attributes:
        kept: its answers when only the set is left.
        removed: its answers when only the set is hidden.
        survives: whether the class is still predicted when only the set is left.
        breaks: whether it is no longer predicted when the set is hidden.
    """

    kept: Answers
    removed: Answers
    survives: Tensor
    breaks: Tensor


def query_sets(
    model: Callable[..., Any],
    x: Tensor,
    target: Target,
    sets: Tensor,
    perturbation: Kind = "blur",
    *,
    bounds: Bounds | None = None,
    seed: int = 0,
    first: int = 0,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    autocast: torch.dtype | None = None,
) -> SetAnswers:
    """Keep and remove sets of positions, given as masks, and return what the model says.

    Args:
        model: a module or callable.
        x: inputs [N, ...].
        target: the class explained; None for the predicted one.
        sets: bool [N, k, *positions].
        perturbation: how the other positions, or the set, are hidden.
        bounds: as for ``score_maps``, like the remaining arguments.
        seed: of the noise.
        first: the number of the first input.
        additional_forward_args: further arguments of the model.
        internal_batch_size: the most inputs in one pass.
        autocast: the precision on a GPU.
    """
    if sets.dtype != torch.bool:
        raise KindError(f"sets must be bool [N, k, *positions]; got {sets.dtype}")
    if sets.ndim < 2 or (len(sets), *sets.shape[2:]) != (len(x), *positions(x)):
        raise InputError(
            f"sets must be [N, k, *positions] with N = {len(x)} and positions "
            f"{list(positions(x))}; got {list(sets.shape)}"
        )
    with torch.inference_mode(False), _borrowed(model):
        tasks = _open(
            model, x, target, additional_forward_args, internal_batch_size, autocast, _Record(())
        )
        every = slice(0, len(x))
        nothing = x.new_empty(len(x), 0, *positions(x))
        trial = Trial(x.detach(), nothing, (), tasks(every), bounds=bounds, seed=seed, first=first)
        sets = sets.to(x.device)
        kept = ask_sets(trial, perturbation, sets, keep=True)
        removed = ask_sets(trial, perturbation, sets, keep=False)
        explained = trial.ask().target.unsqueeze(1)
    return SetAnswers(kept, removed, kept.predicted == explained, removed.predicted != explained)


class _Record:
    """Outcomes, times and counts, block by block."""

    def __init__(self, methods: tuple[str, ...]) -> None:
        self.methods = methods
        self.outcomes: dict[str, list[Outcome]] = {}
        self.seconds: dict[str, float] = {}
        self.evaluations: dict[str, int] = {}
        self.count = 0

    def tick(self, count: int) -> None:
        self.count += count

    def measure(self, metric: Metric, trial: Trial) -> None:
        started, before = time.perf_counter(), self.count
        found = metric.compute(trial)
        values = found.values.detach().to("cpu", torch.float64)  # waits for the GPU
        curve = None if found.curve is None else found.curve.detach().cpu()
        self.outcomes.setdefault(metric.name, []).append(
            Outcome(values, curve, found.axis, found.notes)
        )
        name = metric.name
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        self.evaluations[name] = self.evaluations.get(name, 0) + self.count - before

    def finish(self, metrics: Sequence[Metric]) -> Scores:
        values, curves, notes = {}, {}, {}
        for metric in metrics:
            parts = self.outcomes[metric.name]
            table = torch.cat([part.values for part in parts])
            values[metric.name] = table
            found = [part.curve for part in parts if part.curve is not None]
            if found:
                curves[metric.name] = Curve(torch.tensor(parts[0].axis), torch.cat(found))
            said = dict.fromkeys(note for part in parts for note in part.notes)
            undefined = int(table.isnan().any(1).sum())
            if undefined:
                reason = "" if said else " (an empty mask, or a map of zeros)"
                said[f"undefined, nan, on {undefined} of {len(table)} inputs{reason}"] = None
            notes[metric.name] = tuple(said)
        named = {metric.name: metric for metric in metrics}
        return Scores(self.methods, named, values, curves, self.seconds, self.evaluations, notes)


def _open(
    model: Callable[..., Any] | None,
    x: Tensor,
    target: Target,
    args: Any,
    limit: int | None,
    autocast: torch.dtype | None,
    record: _Record,
) -> Callable[[slice], Evaluator | None]:
    """Ask about the intact inputs, and return a function that makes the task of a block."""
    if model is None:
        return lambda part: None
    if limit is not None and limit < 1:
        raise InputError(f"internal_batch_size must be at least 1, got {limit}")
    everything = as_args(args)
    wrapped = Logits(model, check=False)
    nobody = torch.zeros(len(x), dtype=torch.long, device=x.device)
    task = Evaluator(
        wrapped, x.detach(), nobody, x.new_zeros(len(x), 1), everything, limit=limit,
        autocast=autocast, tick=record.tick,
    )  # fmt: skip
    try:
        footprint = task.footprint()
        with _autocast(autocast, x):
            logits = predict(wrapped, x.detach(), args, batch_size=limit or 64)
    except (SEAError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}: {error}"
        ) from error
    record.tick(len(x))
    if limit is None and x.device.type == "cpu":
        limit = max(1, torch.get_num_threads() * CPU_CACHE // footprint.largest)
    classes = resolve_target(logits, target)

    def make(part: slice) -> Evaluator:
        rows = torch.arange(part.start, part.stop, device=x.device)
        return Evaluator(
            wrapped,
            x[part].detach(),
            classes[part],
            logits[part].to(x.dtype),
            select_args(everything, rows, len(x)),
            limit=limit,
            autocast=autocast,
            tick=record.tick,
            cache={"footprint": footprint},
        )

    return make


@contextmanager
def _borrowed(model: Callable[..., Any] | None) -> Iterator[None]:
    if model is None:
        yield
    else:
        with borrow(model):
            yield


@contextmanager
def _autocast(dtype: torch.dtype | None, x: Tensor) -> Iterator[None]:
    if dtype is None:
        yield
    else:
        with torch.autocast(x.device.type, dtype=dtype):
            yield


def _block_size(x: Tensor, n_methods: int) -> int:
    n = x[0].numel() if x.ndim == 2 else x[0, 0].numel()
    room = CUDA_BLOCK if x.is_cuda else CPU_BLOCK
    return max(1, room // (n * n_methods))
