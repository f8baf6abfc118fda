"""On a GPU, keep what was prepared for a model, and replay passes of one shape as CUDA graphs.

A pass is hundreds of kernels. For a few inputs they run faster than Python can launch them; a graph
launches all of them at once. A shape that comes a second time is recorded and replayed from then
on. What is kept belongs to a twin (`sea_nn.model.borrowing`), which lives while the model has the
same structure and attributes. It is trusted while the weights lie where they lay and the arithmetic
is the same, and while a replay still says what the twin says by itself, which shows what no
description does (a number in a global variable, say). A model that carries hooks, waits for the GPU
inside its forward pass or cannot be recorded runs as it is. Recording changes nothing that other
threads see.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor, nn

from sea_nn.model.borrowing import copy_twin, is_private
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.first_layer import ANSWERS, POINTS, FirstLayer, choose_layout
from sea_nn.model.forms import run_by
from sea_nn.model.norm_folding import Fold, pass_on
from sea_nn.model.outputs import TensorModel
from sea_nn.model.recording import Recording, is_alone, is_capable
from sea_nn.model.sameness import same_outputs
from sea_nn.model.tracing import is_heard, recall_layers

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


class Pass:
    """A forward and backward pass of a fixed number of points: run at first, then recorded."""

    def __init__(self, points: Tensor, classes: Tensor, cost: int) -> None:
        self.points, self.classes, self.cost = points, classes, cost
        self.recording: Recording | None = None
        self.turns, self.used, self.tried = 0, 0.0, False

    def run(self, evaluator: Evaluator, points: Tensor, classes: Tensor) -> Tensor:
        """Return d score / d input at `points`; the next run overwrites a replay's answer.

        Fewer points than the pass has room for leave the rest as it was, for no one to read.
        """
        count = len(points)
        self.points[:count].copy_(points)
        self.classes[:count].copy_(classes)
        self.turns, self.used = self.turns + 1, time.monotonic()
        if self.turns >= 2 and not self.tried and is_alone():
            self.tried = True
            self.recording = _try(
                lambda: Recording(
                    lambda: evaluator.slope(self.points, self.classes), evaluator.x.device
                ),
                evaluator,
            )
        if self.recording is not None:
            return self.recording.replay()[:count]
        return evaluator.slope(self.points, self.classes)[:count]


class Kept:
    """What is kept with a twin: its folded norms, its first layer, recorded looks and passes."""

    def __init__(self, root: nn.Module, state: Any, fold: Fold | None, n_classes: int) -> None:
        self._root = ref(root)  # what is kept must not keep the twin
        self.state, self.fold, self.n_classes = state, fold, n_classes
        self.layers: dict[Any, FirstLayer | None] = {}
        self.proved: set[Any] = set()
        self.looks: dict[Any, tuple[Tensor, Recording | None]] = {}
        self.passes: dict[Any, Pass] = {}

    @property
    def root(self) -> nn.Module | None:
        """The twin."""
        return self._root()

    def find_first(self, evaluator: Evaluator) -> FirstLayer | None:
        """Return the first layer to run apart for inputs of this shape, sought once.

        Args:
            evaluator: the inputs, and the folded model if there is one.
        """
        kind = self._kind(evaluator)
        if kind not in self.layers:
            name = None
            if self.root is not None and not any(kind[2:]) and not evaluator.args:
                name = recall_layers(self.root).first
            self.layers[kind] = None if name is None else split_first(evaluator, name)
        return self.layers[kind]

    def look(self, evaluator: Evaluator) -> tuple[Tensor, Tensor]:
        """Fold the weights as they are now, and answer as the model is and as it is folded.

        This is recorded: one replay folds, asks and answers.

        Returns:
            The inputs' outputs and those by folded weights, both [N, classes]; only true if the
            model itself says the same.
        """
        x = evaluator.x
        kind = (x.shape, x.dtype)
        known = kind in self.looks
        fixed, recording = self.looks.pop(kind) if known else (x.clone(), None)
        fixed.copy_(x)

        def ask() -> Tensor:
            rows = torch.arange(len(fixed), device=fixed.device)
            with torch.no_grad():
                plain = evaluator.model(evaluator.arrange(fixed)).to(fixed.dtype)
                if self.fold is None:
                    return torch.cat([plain, plain])
                self.fold.refresh()
                fast = run_by(evaluator, self.fold)
                return torch.cat([plain, fast.forward(fast.arrange(fixed), rows)])

        # The first time as it is: what is wrong with the input must not look like a recording's.
        answers = ask() if recording is None else recording.replay().clone()
        if recording is None and is_alone():
            recording = _try(lambda: Recording(ask, fixed.device), evaluator)
        if not known and len(self.looks) == LOOKS:
            del self.looks[next(iter(self.looks))]
        self.looks[kind] = (fixed, recording)  # the one used last comes last
        return answers[: len(x)], answers[len(x) :]

    def is_proved(self, evaluator: Evaluator) -> bool:
        """Whether the gradients of its fast forms were the model's before, for such inputs.

        Which layers are merged does not depend on values, so that they are compared once for a
        twin; outputs are compared in every call.
        """
        return self._kind(evaluator) in self.proved

    def prove(self, evaluator: Evaluator) -> None:
        """Remember that they were."""
        self.proved.add(self._kind(evaluator))

    def _kind(self, evaluator: Evaluator) -> Any:
        # What the layer gives must be what the rest reads: with a type of their own, it is not.
        caller = torch.is_autocast_enabled(evaluator.x.device.type)
        return evaluator.x.shape[1:], evaluator.x.dtype, evaluator.autocast, caller

    def start(self, evaluator: Evaluator) -> "Runner":
        """Return what runs the gradient passes of one sweep."""
        return Runner(self, evaluator)

    def release(self) -> None:
        """Give back the memory of everything recorded, for any model."""
        release()

    def confirm(self, evaluator: Evaluator) -> bool:
        """Whether the recorded look says of the first input what the model has said."""
        plain, folded = self.look(replace(evaluator, x=evaluator.x[:1], kept=self))
        own = evaluator.outputs[:1]
        same = same_outputs(plain, own, evaluator.autocast) & same_outputs(
            folded, own, evaluator.autocast
        )
        return bool(same)

    def find_pass(self, evaluator: Evaluator, size: int) -> Pass | None:
        """Return the pass for `size` points like the inputs, or None if it would be too large."""
        form = (
            evaluator.folded is not None,
            evaluator.first is not None,
            evaluator.compiled is not None,
        )
        kind = (size, evaluator.x.shape[1:], evaluator.x.dtype, evaluator.target.ndim, *form)
        if kind not in self.passes:
            if size > count_room(evaluator):
                return None
            cost = size * evaluator.footprint().gradient
            _make_room(find_room(evaluator.x.device) - cost)
            points = evaluator.arrange(evaluator.x[:1].expand(size, *evaluator.x.shape[1:]))
            self.passes[kind] = Pass(points, evaluator.target[[0] * size], cost)
        return self.passes[kind]


def split_first(evaluator: Evaluator, name: str) -> FirstLayer | None:
    """Return the layer of that name and the module without it, or None where that cannot run.

    Args:
        evaluator: the model, its norms folded or not, and the inputs that it is for.
        name: the layer's, found by `sea_nn.model.tracing`.
    """
    module = evaluator.module
    if module is None:
        return None
    shared = () if evaluator.folded is None else evaluator.folded.tensors()
    layer, rest = module.get_submodule(name), copy_twin(module, shared=shared)
    rest.get_submodule(name).__dict__["forward"] = pass_on
    x = evaluator.arrange(evaluator.x[:1])
    try:
        output = evaluator.arrange(FirstLayer(layer, rest).push(x))
        count = max(1, min(POINTS, ANSWERS // (output.numel() * output.element_size())))
        layout = choose_layout(layer, x.expand(count, *x.shape[1:]))
        shape, version = tuple(output.shape[1:]), output._version
        with torch.no_grad():
            rows = torch.zeros(1, dtype=torch.long, device=x.device)
            replace(evaluator, model=TensorModel(rest, check=False)).forward(output, rows)
    except Exception:  # room, or a shape, that was not expected: the layer stays where it is
        return None
    return FirstLayer(layer, rest, layout, shape, overwrites=output._version != version)


class Runner:
    """The gradient passes of one sweep, replayed where the model allows it."""

    def __init__(self, kept: Kept, evaluator: Evaluator) -> None:
        self.evaluator, self.size = evaluator, 0
        # Asked anew for every sweep: a member may have put hooks on the model.
        free = evaluator.module is not None and not is_heard(evaluator.module)
        self.kept = kept if free and kept.root not in _REFUSED else None

    def divide(self, total: int, alone: bool) -> int | None:
        """Return the size of passes to record for `total` points, if memory needs few of them.

        Args:
            total: the points.
            alone: whether they are to be one pass: a gradient that is not averaged shows which
                kernels a GPU chose for so many inputs. A caller's limit may ask for more.
        """
        at_most = 1 if alone else FEW_PASSES
        most = 0 if self.kept is None else count_room(self.evaluator)
        if not most or total > at_most * most:
            return None
        most = min(most, self.evaluator.limit or most)
        return math.ceil(total / math.ceil(total / most))

    def __call__(self, points: Tensor, rows: Tensor, last: bool) -> Tensor:
        """Return d score / d input at `points` [P, ...], variants of the inputs `rows` [P].

        The last pass of a sweep may be smaller; it then runs in the shape of the others, for which
        a GPU has its kernels ready.
        """
        if self.kept is None:
            return self.evaluator.gradient(points, rows)
        count = len(points)
        self.size = max(count, self.size) if last else count
        found = self.kept.find_pass(self.evaluator, self.size)
        if found is not None:
            return found.run(self.evaluator, points, self.evaluator.target[rows])
        if count < self.size:
            full = torch.arange(self.size, device=points.device).clamp(max=count - 1)
            points, rows = points[full], rows[full]
        return self.evaluator.gradient(points, rows)[:count]


_KEPT: "WeakKeyDictionary[nn.Module, Kept]" = WeakKeyDictionary()
_REFUSED: "WeakSet[nn.Module]" = WeakSet()


def recall(evaluator: Evaluator) -> Kept | None:
    """Return what was kept for the model if it looks the same; yet to be confirmed."""
    kept = _KEPT.get(evaluator.module) if evaluator.module is not None else None
    if kept is None or not is_eligible(evaluator):
        return None
    if kept.state != describe(evaluator):
        forget(evaluator)
        return None
    return kept


def forget(evaluator: Evaluator) -> None:
    """Drop what was kept for the evaluator's model."""
    if evaluator.module is not None:
        _KEPT.pop(evaluator.module, None)


def keep(evaluator: Evaluator, fold: Fold | None) -> Kept | None:
    """Keep folded norms with the twin for the next call; None where that is not possible."""
    if evaluator.module is None or not is_eligible(evaluator):
        return None
    kept = _KEPT[evaluator.module] = Kept(
        evaluator.module, describe(evaluator), fold, evaluator.outputs.shape[1]
    )
    return kept


def release() -> None:
    """Give back the memory of everything recorded."""
    for kept in list(_KEPT.values()):
        kept.looks.clear()
        kept.passes.clear()


def is_eligible(evaluator: Evaluator) -> bool:
    """Whether this model's passes may be recorded: a twin on a GPU that nobody listens to."""
    module = evaluator.module
    if not is_capable(evaluator.x.device) or module is None or evaluator.args or module in _REFUSED:
        return False
    if not is_private(module) or is_heard(module):
        return False
    # cuDNN's recurrent layers have no backward pass in eval mode, see Evaluator.differentiable.
    spread = (nn.RNNBase, nn.DataParallel, nn.parallel.DistributedDataParallel)
    return not any(isinstance(m, spread) for m in evaluator.modules)


def describe(evaluator: Evaluator) -> Any:
    """Return what must stay the same for a recorded pass to stay true; a twin is the rest of it."""
    weights = (p for m in evaluator.modules for p in m._parameters.values() if p is not None)
    places = [p.data_ptr() for p in weights]
    return places, evaluator.autocast, _describe_arithmetic(evaluator.x.device.type)


def find_room(device: torch.device) -> int:
    """Return the bytes that recorded passes may hold on this device."""
    return min(ROOM, int(torch.cuda.get_device_properties(device).total_memory * SHARE))


def count_room(evaluator: Evaluator) -> int:
    """Return how many points a recorded pass may have."""
    return find_room(evaluator.x.device) // (2 * evaluator.footprint().gradient)


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


def _try(record: Callable[[], Recording], evaluator: Evaluator) -> Recording | None:
    """Return the recording, or None if it cannot be made; that model is not tried again."""
    try:
        return record()
    except Exception as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            release()
        elif isinstance(evaluator.kept, Kept) and evaluator.kept.root is not None:
            _REFUSED.add(evaluator.kept.root)
        return None
