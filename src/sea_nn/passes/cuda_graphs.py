"""On a GPU, keep what was prepared for a model, and replay passes of one shape as CUDA graphs.

A pass is hundreds of kernels. For a few inputs they run faster than Python can launch them; a graph
launches all of them at once. A shape that comes a second time is recorded and replayed from then
on. What is kept is trusted while the model's modules, their plain attributes (others by identity)
and the addresses and versions of its tensors stay the same, and while a replay still says what the
model says, which shows what a description does not. A model that carries hooks, waits for the GPU
inside its forward pass or cannot be recorded runs as it is.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from sea_nn.passes.first_layer import Stem, find_stem
from sea_nn.passes.norm_folding import Fold, agrees, is_sealed

if TYPE_CHECKING:
    from sea_nn.passes.evaluator import Evaluator

# Bytes that all recorded passes may hold, at most this share of a GPU, and a single one half of it:
# a larger pass keeps the GPU busy for longer than its launches take.
ROOM = 32 << 30
SHARE = 1 / 4
# Up to this many inputs the GPU answers faster than Python can launch the kernels of a forward
# pass, so that the first look at them is recorded too.
FEW = 16
LOOKS = 4  # shapes of inputs for which it is kept
# A sweep of at most this many passes is cut so that they can be recorded; longer ones keep the GPU
# busy by themselves.
FEW_PASSES = 2

_PLAIN = (int, float, bool, str, type(None))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# What every module has: looked into where it matters, or seen by modules() itself.
_CONTAINERS = frozenset(nn.Module().__dict__) - {"training"}


class Recording:
    """A function of fixed tensors, captured as a CUDA graph, and the tensors it writes."""

    def __init__(self, run: Callable[[], Tensor], device: torch.device) -> None:
        generator = torch.cuda.default_generators[device.index or 0]
        with torch.cuda.device(device):
            current, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside), _forbid_waiting():
                expected = run()
            current.wait_stream(aside)
            state = generator.clone_state()
            self.graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
            try:
                with torch.cuda.graph(
                    self.graph, pool=pool, stream=aside, capture_error_mode="thread_local"
                ):
                    self.output = run()
            except BaseException:
                # A capture that failed leaves its stream and its memory pool in place and the
                # generator locked.
                torch.cuda.set_stream(current)
                with suppress(AttributeError, RuntimeError):
                    torch._C._cuda_endAllocateToPool(device.index or 0, pool)
                generator.graphsafe_set_state(state)
                raise
            self.graph.replay()
        if not agrees(self.output, expected):
            raise RuntimeError("a replay differs from the pass that was recorded")

    def replay(self) -> Tensor:
        """Run it again on what the fixed tensors hold now; the output is overwritten each time."""
        self.graph.replay()
        return self.output


class Pass:
    """A forward and backward pass of a fixed number of points: run at first, then recorded."""

    def __init__(self, points: Tensor, classes: Tensor, cost: int) -> None:
        self.points, self.classes, self.cost = points, classes, cost
        self.recording: Recording | None = None
        self.turns, self.used = 0, 0.0

    def run(self, task: "Evaluator", points: Tensor, classes: Tensor) -> Tensor:
        """Return d score / d input at `points`; the next run overwrites a replay's answer.

        Fewer points than the pass has room for leave the rest as it was, for no one to read.
        """
        count = len(points)
        self.points[:count].copy_(points)
        self.classes[:count].copy_(classes)
        self.turns, self.used = self.turns + 1, time.monotonic()
        if self.turns == 2:
            self.recording = _try(
                lambda: Recording(lambda: task.slope(self.points, self.classes), task.x.device),
                task,
            )
        if self.recording is not None:
            return self.recording.replay()[:count]
        return task.slope(self.points, self.classes)[:count]


class Kept:
    """What is kept with a model: its folded norms, its first layer, recorded looks and passes."""

    def __init__(self, state: Any, fold: Fold, n_classes: int) -> None:
        self.state, self.fold, self.n_classes = state, fold, n_classes
        self.stems: dict[Any, Stem | None] = {}
        self.looks: dict[Any, tuple[Tensor, Recording | None]] = {}
        self.passes: dict[Any, Pass] = {}

    def find_stem(self, task: "Evaluator") -> Stem | None:
        """Return the first layer to run apart for inputs of this shape, sought once."""
        shape = task.x.shape[1:]
        if shape not in self.stems:
            self.stems[shape] = find_stem(task)
        return self.stems[shape]

    def look(self, task: "Evaluator") -> tuple[Tensor, Tensor]:
        """Fold the weights as they are now, and answer as the model is and as it is folded.

        This is recorded: one replay folds, asks and answers.

        Returns:
            The logits of the task's inputs [N, classes], and those of the first by folded weights,
            [1, classes]; both are only true if the model itself says the same.
        """
        x = task.x
        kind = (x.shape, x.dtype)
        known = kind in self.looks
        fixed, recording = self.looks.pop(kind) if known else (x.clone(), None)
        fixed.copy_(x)

        def ask() -> Tensor:
            self.fold.refresh()
            rows = torch.arange(len(fixed), device=fixed.device)
            with torch.no_grad():
                plain = task.model(task.arrange(fixed))
                with self.fold.applied():
                    one = replace(task, folded=self.fold)
                    folded = one.forward(one.arrange(fixed[:1]), rows[:1])
            return torch.cat([plain.to(folded.dtype), folded])

        # The first time as it is: what is wrong with the input must not look like a recording's.
        answers = ask() if recording is None else recording.replay().clone()
        if not known:
            recording = _try(lambda: Recording(ask, fixed.device), task)
            if len(self.looks) == LOOKS:
                del self.looks[next(iter(self.looks))]
        self.looks[kind] = (fixed, recording)  # the one used last comes last
        return answers[:-1], answers[-1:]

    def confirm(self, task: "Evaluator") -> bool:
        """Whether folded weights say of the first input what the model has said; forget if not."""
        same = confirm(task, *self.look(replace(task, x=task.x[:1])))
        if not same:
            forget(task)
        return same

    def find_pass(self, task: "Evaluator", size: int) -> Pass | None:
        """Return the pass for `size` points like the inputs, or None if it would be too large."""
        form = (bool(task.folded), task.stem is not None, task.compiled is not None)
        kind = (size, task.x.shape[1:], task.x.dtype, *form)
        if kind not in self.passes:
            if size > count_room(task):
                return None
            cost = size * task.footprint().gradient
            _make_room(find_room(task.x.device) - cost)
            points = task.arrange(task.x[:1].expand(size, *task.x.shape[1:]))
            self.passes[kind] = Pass(points, task.target[:1].repeat(size), cost)
        return self.passes[kind]


class Runner:
    """The gradient passes of one sweep, replayed where the model allows it."""

    def __init__(self, task: "Evaluator") -> None:
        self.task, self.size = task, 0
        # Asked anew for every sweep: a member may have put hooks on the model.
        kept, module = task.kept, task.module
        free = kept is not None and module not in _REFUSED and not is_heard(task)
        self.kept = kept if free else None

    def divide(self, total: int, at_most: int) -> int | None:
        """Return the size of passes to record for `total` points, if memory needs few of them.

        Args:
            total: the points.
            at_most: how many passes of the size that memory allows; a caller's limit may ask for
                more and smaller ones.
        """
        most = 0 if self.kept is None else count_room(self.task)
        if not most or total > at_most * most:
            return None
        most = min(most, self.task.limit or most)
        return math.ceil(total / math.ceil(total / most))

    def __call__(self, points: Tensor, rows: Tensor, last: bool) -> Tensor:
        """Return d score / d input at `points` [P, ...], variants of the inputs `rows` [P].

        The last pass of a sweep may be smaller; it then runs in the shape of the others, for which
        a GPU has its kernels ready.
        """
        if self.kept is None:
            return self.task.gradient(points, rows)
        count = len(points)
        self.size = max(count, self.size) if last else count
        found = self.kept.find_pass(self.task, self.size)
        if found is not None:
            return found.run(self.task, points, self.task.target[rows])
        if count < self.size:
            full = torch.arange(self.size, device=points.device).clamp(max=count - 1)
            points, rows = points[full], rows[full]
        return self.task.gradient(points, rows)[:count]


_KEPT: "WeakKeyDictionary[nn.Module, Kept]" = WeakKeyDictionary()
_REFUSED: "WeakSet[nn.Module]" = WeakSet()


def recall(task: "Evaluator") -> Kept | None:
    """Return what was kept for the task's model if that looks the same; yet to be confirmed."""
    kept = _KEPT.get(task.module) if task.module is not None else None
    if kept is None or not is_eligible(task):
        return None
    if kept.state != describe(task):
        forget(task)
        return None
    return kept


def confirm(task: "Evaluator", plain: Tensor, folded: Tensor) -> bool:
    """Whether what a recording said, of all inputs or the first, is what the model has said."""
    own = task.logits
    return agrees(plain, own[: len(plain)]) and agrees(folded, own[:1], tolerance(task))


def forget(task: "Evaluator") -> None:
    """Drop what was kept for the task's model."""
    if task.module is not None:
        _KEPT.pop(task.module, None)


def keep(task: "Evaluator", fold: Fold) -> Kept | None:
    """Keep folded norms with the model for the next call; None where that is not possible."""
    if task.module is None or not is_eligible(task):
        return None
    state = describe(task)
    if state is None:
        return None
    kept = _KEPT[task.module] = Kept(state, fold, task.logits.shape[1])
    return kept


def release() -> None:
    """Give back the memory of everything recorded."""
    for kept in list(_KEPT.values()):
        kept.looks.clear()
        kept.passes.clear()


def is_eligible(task: "Evaluator") -> bool:
    """Whether this model's passes may be recorded: a module on a GPU that nobody listens to."""
    module = task.module
    if not is_capable(task.x.device) or module is None or task.args or module in _REFUSED:
        return False
    if is_heard(task):
        return False
    # cuDNN's recurrent layers have no backward pass in eval mode, see Evaluator.differentiable.
    return not any(is_sealed(m) or isinstance(m, nn.RNNBase) for m in task.modules)


def is_heard(task: "Evaluator") -> bool:
    """Whether someone listens to the model's passes with hooks: a replay would not call them."""
    everywhere = vars(torch_module)
    if any(everywhere.get(f"_global{name}") for name in _HOOKS):
        return True
    return any(m.__dict__.get(name) for m in task.modules for name in _HOOKS)


def is_capable(device: torch.device) -> bool:
    """Whether the device and this PyTorch can record passes."""
    new = hasattr(torch.Generator, "graphsafe_set_state") and hasattr(torch, "get_autocast_dtype")
    return device.type == "cuda" and new


def describe(task: "Evaluator") -> Any:
    """Return what must stay the same for a recorded pass to stay true, or None if it is unknown."""
    modules = task.modules
    try:
        tensors = [
            (t.data_ptr(), t._version, t.dtype, t.shape)
            for m in modules
            for t in (*m._parameters.values(), *m._buffers.values())
            if t is not None
        ]
    except (RuntimeError, NotImplementedError):  # inference tensors, tensors without memory
        return None
    attributes = [
        (name, value if isinstance(value, _PLAIN) else id(value))
        for m in modules
        for name, value in m.__dict__.items()
        if name not in _CONTAINERS
    ]
    arithmetic = _describe_arithmetic(task.x.device.type)
    return [id(m) for m in modules], tensors, attributes, task.autocast, arithmetic


def tolerance(task: "Evaluator") -> float | None:
    """Return how far logits may be apart, relative to the largest; None for the usual."""
    return 0.05 if task.autocast == torch.bfloat16 else None


def find_room(device: torch.device) -> int:
    """Return the bytes that recorded passes may hold on this device."""
    return min(ROOM, int(torch.cuda.get_device_properties(device).total_memory * SHARE))


def count_room(task: "Evaluator") -> int:
    """Return how many points a recorded pass may have."""
    return find_room(task.x.device) // (2 * task.footprint().gradient)


def _describe_arithmetic(device: str) -> tuple[Any, ...]:
    cudnn = torch.backends.cudnn
    # The caller's, around the whole call.
    autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
    precise: tuple[Any, ...]
    if hasattr(cudnn, "conv"):  # newer: a precision for each kind of operation
        precise = (cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision)
    else:
        precise = (cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    chosen = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic)
    return (*precise, *chosen, autocast, torch.are_deterministic_algorithms_enabled())


def _make_room(allowed: int) -> None:
    """Drop the passes that rested longest until the others hold no more than `allowed` bytes."""
    every = [(p.used, kept, kind) for kept in _KEPT.values() for kind, p in kept.passes.items()]
    total = sum(kept.passes[kind].cost for _, kept, kind in every)
    for _, kept, kind in sorted(every, key=lambda entry: entry[0]):
        if total <= allowed:
            return
        total -= kept.passes.pop(kind).cost


def _try(record: Callable[[], Recording], task: "Evaluator") -> Recording | None:
    """Return the recording, or None if it cannot be made; that model is not tried again."""
    try:
        return record()
    except Exception as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            release()
        elif task.module is not None:
            _REFUSED.add(task.module)
        return None


@contextmanager
def _forbid_waiting() -> Iterator[None]:
    """Make operations that wait for the GPU fail: they would break a capture half way."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that it does not see all of them
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
