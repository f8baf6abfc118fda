"""The members of the ensemble by name, and one call that computes all their maps.

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
>>> result = compute_maps(model, torch.ones(2, 1, 4, 4), methods=("saliency", "occlusion"))
>>> {name: tuple(map.shape) for name, map in result.maps.items()}
{'saliency': (2, 1, 4, 4), 'occlusion': (2, 1, 4, 4)}

Any function `(model, x, target) -> maps` can join by `register`, or unnamed in `methods`.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sea_nn import memory, replay
from sea_nn.borrow import borrow
from sea_nn.compiled import Compiled
from sea_nn.errors import InputError, KindError, MemberError, SEAError
from sea_nn.evaluator import Evaluator
from sea_nn.fold import Fold, fold_safely
from sea_nn.logits import Logits, Target, as_args, predict, resolve_target
from sea_nn.registry import (
    ENSEMBLES,
    Entry,
    Member,
    Methods,
    expand_methods,
    get,
    names,
    register,
)

__all__ = [
    "ENSEMBLES",
    "Entry",
    "Logits",
    "Member",
    "MemberMaps",
    "borrow",
    "compute_maps",
    "expand_methods",
    "from_captum",
    "get",
    "names",
    "predict",
    "register",
    "resolve_target",
]

Progress = Callable[[str, int, int], None]

# Folding norms costs two forward passes and pays from this many evaluations on.
FOLD_FROM = 32


@dataclass(frozen=True)
class MemberMaps:
    """What the members said about N inputs.

    Attributes:
        maps: raw attributions by member, each of the input's shape or, for members without
            channels, [N, 1, ...]. Signed where the member is.
        seconds: the time each member took.
        evaluations: the model evaluations each member made for all N inputs; one evaluation is one
            forward, or forward and backward, pass of one input. Shared work counts once.
        failed: why a member has no map and what to do, with `on_error="skip"`.
        target: the class explained, [N].
        logits: the model's answers, [N, classes].
    """

    maps: dict[str, Tensor]
    seconds: dict[str, float]
    evaluations: dict[str, int]
    failed: dict[str, str]
    target: Tensor
    logits: Tensor

    def duplicates(self, threshold: float = 0.9999) -> list[tuple[str, str]]:
        """Return pairs of members whose maps point the same way for every input.

        Such a pair has one vote too many: a method may fall back to another on some models.
        """
        flat = {
            name: torch.nn.functional.normalize(m.abs().flatten(1), dim=1)
            for name, m in self.maps.items()
        }
        return [
            (a, b)
            for a, b in combinations(flat, 2)
            if flat[a].shape == flat[b].shape
            and bool(((flat[a] * flat[b]).sum(1) >= threshold).all())
        ]


def compute_maps(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    methods: Methods = "paper",
    *,
    baselines: float | Tensor | None = None,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
    feature_mask: Tensor | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    autocast: bool | torch.dtype = False,
    compile: bool = False,
    progress: Progress | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> MemberMaps:
    """Explain every input of `x` with every method; the model and `x` come back as they were.

    Args:
        model: a module or any callable; see `Logits` for the outputs understood.
        x: inputs [N, ...]: columns [N, F], series [N, C, T] or images [N, C, H, W].
        target: the class to explain, one or one an input; None for the predicted class.
        methods: an ensemble's name, or names, (name, options) pairs and callables.
        baselines: what "absent" means: None for 0, a number, or a tensor that broadcasts to `x`.
        additional_forward_args: further arguments of the model; tensors with N entries follow the
            inputs.
        internal_batch_size: the most evaluations in one pass; left out, it is chosen so that a
            pass fits into memory.
        feature_mask: segments for lime and kernel_shap, whole numbers that broadcast to `x`.
        options: options by method, for example `{"rise": {"n_masks": 500}}`.
        seed: starts every random draw. Draws are each input's own, decided by the seed and its
            content, so its maps do not depend on the rest of the batch.
        autocast: on a GPU, True for bfloat16 or a floating type. float16 keeps as many digits as
            the TF32 that PyTorch's convolutions use by default, and moves half the memory.
        compile: compile gradient passes with `torch.compile`: some seconds for the first inputs of
            a model, about 1.4 times as fast on a GPU from then on.
        progress: called with (member, evaluations done, evaluations in all).
        on_error: "raise", or "skip" to go on without a member that fails.

    Raises:
        InputError, KindError: the call is wrong.
        MemberError: a member cannot explain this model or input (all of them, with "skip").
    """
    if on_error not in ("raise", "skip"):
        raise InputError(f'on_error must be "raise" or "skip", got {on_error!r}')
    entries = expand_methods(methods, options)
    _check_input(x, internal_batch_size)
    precision = _check_autocast(autocast, x)
    if compile and not isinstance(model, nn.Module):
        raise KindError(f"compile=True is for a torch.nn.Module, got {type(model).__name__}")
    with torch.inference_mode(False), borrow(model), _own_randomness(x, seed):
        task = _prepare(model, x.detach().clone(), additional_forward_args, internal_batch_size)
        task = replace(
            task,
            target=resolve_target(task.logits, target),
            baselines=baselines,
            feature_mask=feature_mask,
            autocast=precision,
            seed=seed,
        )
        return _run(entries, task, compile, progress, on_error)


def from_captum(attribution: type[Any], **options: Any) -> Callable[..., Tensor]:
    """Return a member from a Captum class, with options for its `attribute`.

    For example `methods=["saliency", from_captum(captum.attr.FeatureAblation)]`.
    """

    def member(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Captum warns of hooks it removes by itself
            maps: Tensor = attribution(model).attribute(x, target=target, **options)
        return maps

    member.__name__ = attribution.__name__
    return member


def _run(
    entries: Sequence[Entry],
    task: Evaluator,
    compiles: bool,
    progress: Progress | None,
    on_error: str,
) -> MemberMaps:
    n_inputs, shape = len(task.x), tuple(task.x.shape[1:])
    costs = {e.label: n_inputs * e.member.cost(e.options, shape) for e in entries}
    total, done = sum(costs.values()), 0
    # Members that make many passes and do not read the layers themselves. A single gradient is
    # left alone: it would show the rounding of folded weights, which means over many even out.
    many = {
        e.label
        for e in entries
        if e.member.native and "convolution" not in e.member.needs and costs[e.label] > n_inputs * 4
    }
    passes = sum(costs[label] for label in many)
    fold = Fold()
    if passes >= FOLD_FROM:
        kept = replay.recall(task)
        fold = kept.fold if kept is not None else _find_fold(task)
        task = replace(task, kept=kept or replay.keep(task, fold))
    quick = None
    if compiles and task.module is not None and many:
        quick = Compiled(task.model, task.module)
    result = MemberMaps({}, {}, {}, {}, task.target, task.logits)
    for entry in entries:
        label, spent = entry.label, 0

        def tick(count: int, label: str = label, done: int = done) -> None:
            nonlocal spent
            spent += count
            if progress is not None:
                progress(label, done + min(spent, costs[label]), total)

        started = time.perf_counter()
        try:
            folds, code = (fold, quick) if label in many else (Fold(), None)
            mine = replace(task, tick=tick, folded=bool(folds), compiled=code)
            maps = _explain(entry, mine, folds)
        except Exception as error:
            if on_error == "raise":
                raise
            result.failed[label] = str(error)
        else:
            result.maps[label] = maps
            result.seconds[label] = time.perf_counter() - started
            result.evaluations[label] = spent
        done += costs[label]
        if progress is not None:
            progress(label, done, total)
    if not result.maps:
        reasons = "; ".join(f"{label}: {why}" for label, why in result.failed.items())
        raise MemberError(f"no member could explain this model. {reasons}")
    return result


def _explain(entry: Entry, task: Evaluator, folds: Fold) -> Tensor:
    """Run one member and check what it returns."""
    member, settings = entry.member, dict(entry.options)
    _check_needs(member, task)
    if "baselines" in settings:
        # Shared results never depend on the baselines, so the cache stays.
        task = replace(task, baselines=settings.pop("baselines"))
    try:
        if member.native:
            with folds.applied():
                maps = member.function(task, **settings)
        else:
            with borrow(task.model.model):  # what it leaves behind must not reach the next member
                maps = member.function(task.model, task.x.clone(), task.target.clone(), **settings)
            task.tick(len(task.x) * member.cost(entry.options, tuple(task.x.shape[1:])))
    except SEAError:
        raise
    except Exception as error:
        raise MemberError(
            f"{entry.label} failed on this model with {type(error).__name__}: {error}. Leave it "
            f'out of methods, or pass on_error="skip" to go on without it'
        ) from error
    if task.x.is_cuda:
        torch.cuda.synchronize(task.x.device)
    return _check_maps(entry.label, maps, task.x)


def _find_fold(task: Evaluator) -> Fold:
    """Fold the model's norms if the answer for the first input stays the same."""
    rows = torch.zeros(1, dtype=torch.long, device=task.x.device)
    precision = task.autocast
    task = replace(task, autocast=None)

    def run() -> Tensor:
        with torch.no_grad():
            return task.forward(task.arrange(task.x[:1]), rows)

    found = fold_safely(task.module, run, task.logits[:1])
    return found if precision is None else Fold(found.what, precision)


def _check_needs(member: Member, task: Evaluator) -> None:
    kinds = {2: "columns [N, F]", 3: "series [N, C, T]"}
    if "image" in member.needs and task.x.ndim != 4:
        others = [n for n in names() if "image" not in get(n).needs]
        raise MemberError(
            f"{member.name} explains images [N, C, H, W], and the input is "
            f"{kinds.get(task.x.ndim, 'a tensor')} of shape {list(task.x.shape)}; members for it: "
            f"{', '.join(others)}"
        )
    if "module" in member.needs and task.module is None:
        others = [n for n in names() if "module" not in get(n).needs]
        raise MemberError(
            f"{member.name} looks inside the model, so it needs a torch.nn.Module and not a plain "
            f"function; members that take one: {', '.join(others)}"
        )


def _check_maps(label: str, maps: Any, x: Tensor) -> Tensor:
    if not isinstance(maps, Tensor):
        raise MemberError(f"{label} must return a tensor of maps, got {type(maps).__name__}")
    maps = maps.detach()
    if maps.ndim == x.ndim - 1 and x.ndim > 2:
        maps = maps.unsqueeze(1)
    if maps.shape != x.shape and maps.shape != (len(x), 1, *x.shape[2:]):
        raise MemberError(
            f"{label} must return maps of the input's shape {list(x.shape)}, or with one channel; "
            f"got {list(maps.shape)}"
        )
    if not bool(maps.isfinite().all()):
        raise MemberError(
            f"{label} returned NaN or infinite values; check the scale of the input and the "
            "baselines, and turn autocast off"
        )
    # A copy where the member gave what others still use.
    own: Tensor = maps.to(x.device, x.dtype).clone(memory_format=torch.contiguous_format)
    return own


def _prepare(model: Callable[..., Any], x: Tensor, args: Any, limit: int | None) -> Evaluator:
    """Ask the model about the inputs once, with the errors a first call meets explained."""
    nobody = torch.zeros(len(x), dtype=torch.long, device=x.device)
    # Checked for NaN in this first look only: every further one would make a GPU wait.
    wrapped = Logits(model, check=False)
    task = Evaluator(wrapped, x, nobody, x.new_zeros(len(x), 1), as_args(args), limit=limit)
    try:
        size = 1
        if len(x) > 1:
            need = task.footprint()
            size = memory.chunk_size(len(x), need.forward, need.elements, x.device, limit)
        logits = predict(task.model, task.arrange(x), args, batch_size=size)
    except (SEAError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}"
            f"{_find_mismatch(model, x)}: {error}"
        ) from error
    return replace(task, logits=logits)


def _find_mismatch(model: Any, x: Tensor) -> str:
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if first is None or (first.device == x.device and first.dtype == x.dtype):
        return ""
    return f" (the model is {first.dtype} on {first.device}: move one to the other)"


def _check_input(x: Any, limit: int | None) -> None:
    if not isinstance(x, Tensor):
        raise KindError(f"x must be a torch.Tensor [N, ...], got {type(x).__name__}")
    if not x.is_floating_point():
        raise KindError(
            f"x must hold floating-point numbers, got {x.dtype}; for token ids explain the "
            "embeddings instead"
        )
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(
            f"x must hold at least one input: [N, F], [N, C, T] or [N, C, H, W] with N >= 1; got "
            f"shape {list(x.shape)}. For a single input use x.unsqueeze(0)"
        )
    if not bool(x.isfinite().all()):
        raise InputError("x holds NaN or infinite values; clean the input first")
    if limit is not None and limit < 1:
        raise InputError(f"internal_batch_size must be at least 1, got {limit}")


def _check_autocast(autocast: bool | torch.dtype, x: Tensor) -> torch.dtype | None:
    if autocast is False:
        return None
    if not x.is_cuda:
        raise InputError("autocast is for GPUs: on a CPU leave it off, it gains nothing there")
    dtype = torch.bfloat16 if autocast is True else autocast
    if dtype not in (torch.bfloat16, torch.float16):
        raise InputError(f"autocast must be True, torch.bfloat16 or torch.float16, got {autocast}")
    return dtype


@contextmanager
def _own_randomness(x: Tensor, seed: int) -> Iterator[None]:
    """Seed the global generators for models and callables that draw, and put them back."""
    state = np.random.get_state()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        try:
            # Not torch.manual_seed, which would seed the GPUs that are not in use as well.
            torch.default_generator.manual_seed(seed)
            if x.is_cuda:
                with torch.cuda.device(x.device):
                    torch.cuda.manual_seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            np.random.set_state(state)
