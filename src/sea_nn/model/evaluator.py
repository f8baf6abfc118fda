"""Ask a borrowed model about many variants of a few inputs, packed into full chunks.

Every member of the ensemble is written against this class: it says which points to evaluate and
how to combine the answers; chunks, memory, mixed precision, layout and progress live here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, MemberError
from sea_nn.features import Kind, find_kind
from sea_nn.model import batching, noise
from sea_nn.model.compiled import Compiled, fix_shape
from sea_nn.model.description import list_modules
from sea_nn.model.first_layer import FirstLayer
from sea_nn.model.norm_folding import Fold
from sea_nn.model.outputs import (
    Output,
    TensorModel,
    find_last_operation,
    find_output,
    select_args,
    take,
)
from sea_nn.model.tracing import is_frozen_norm

T = TypeVar("T")
FACTS = ("norms", "convolutional", "recurrent", "output")
"""Keys of what is shared about the model, whatever its inputs."""
UNSET = Kind("", 2)
FOOTPRINT = "footprint"
"""Begins the keys of what one input takes."""


class Sweep(Protocol):
    """Runs the gradient passes of one sweep."""

    def divide(self, total: int, alone: bool) -> int | None:
        """Return the size of a pass for `total` points, or None to choose by memory."""

    def __call__(self, points: Tensor, rows: Tensor, last: bool) -> Tensor:
        """Return d score / d input at `points` [P, ...], variants of the inputs `rows` [P]."""


class Recorder(Protocol):
    """Keeps what was prepared for a model between calls, see `sea_nn.model.cuda_graphs`."""

    def start(self, evaluator: Any) -> Sweep:
        """Return what runs the gradient passes of one sweep."""

    def find_first(self, evaluator: Any) -> FirstLayer | None:
        """Return the first layer to run apart for inputs of this shape."""

    def is_proved(self, evaluator: Any) -> bool:
        """Return whether gradients of fast forms were the model's before, for such inputs."""

    def prove(self, evaluator: Any) -> None:
        """Remember that they were."""

    def release(self) -> None:
        """Give back memory."""


@dataclass
class Evaluator:
    """A model, the inputs to explain, and the means to evaluate variants of them.

    One evaluation is one forward pass, or one forward and backward pass, of one input.

    Attributes:
        model: what runs, behind `TensorModel`: the caller's model or a copy of it.
        x: the inputs [N, ...], a private copy.
        target: the class to explain for each, [N], or a pair, [N, 2]; see `outputs.take`.
        outputs: the model's answer for `x`, [N, classes].
        output: what these outputs are; None to find out from them.
        args: further arguments of the model, for the caller's inputs.
        origin: which of the caller's inputs each of `x` is a variant of, and how many there are;
            None where they are the caller's. A tensor among `args` follows them by that number.
        baselines: None for zero, a number, or a tensor that broadcasts to `x`.
        feature_mask: segment numbers for the members that perturb segments, or None.
        limit: the most evaluations in one pass, or None to choose by memory.
        autocast: the precision on a GPU, or None for the model's own.
        seed: starts every random draw; an input's map never depends on its batch.
        tick: told the number of evaluations just made.
        cache: results shared between members, by name.
        folded: the fold that `model` is of, or None if its norms run as they are.
        first: the first layer if it runs apart: gradients are those of what it gives, then.
        kept: what is kept with the model between calls, on a GPU.
        compiled: runs gradient passes as compiled code, or None.
        kind: of the inputs; left out, found from x.
    """

    model: TensorModel
    x: Tensor
    target: Tensor
    outputs: Tensor
    args: tuple[Any, ...] = ()
    origin: tuple[Tensor, int] | None = None
    baselines: float | Tensor | None = None
    feature_mask: Tensor | None = None
    limit: int | None = None
    autocast: torch.dtype | None = None
    output: Output | None = None
    seed: int = 0
    tick: Callable[[int], None] = lambda count: None
    cache: dict[Any, Any] = field(default_factory=dict)
    folded: Fold | None = None
    first: FirstLayer | None = None
    kept: Recorder | None = None
    compiled: Compiled | None = None
    kind: Kind = UNSET

    def __post_init__(self) -> None:
        self.kind = find_kind(self.x) if self.kind is UNSET else self.kind

    @property
    def module(self) -> nn.Module | None:
        """The model if it is a module, None for a plain callable."""
        inner = self.model.model
        return inner if isinstance(inner, nn.Module) else None

    @property
    def modules(self) -> list[nn.Module]:
        """The model and all of its parts; none for a plain callable."""
        module = self.module
        return [] if module is None else list_modules(module)

    def baseline(self) -> Tensor:
        """Return the baselines as a tensor of the shape of `x`."""
        if self.baselines is None:
            return torch.zeros_like(self.x)
        base = torch.as_tensor(self.baselines, dtype=self.x.dtype, device=self.x.device).detach()
        try:
            return base.expand_as(self.x)
        except RuntimeError as error:
            raise InputError(
                f"baselines must be a number or broadcast to the input, {list(self.x.shape)}; got "
                f"{list(base.shape)}. A set of baselines to draw from is for gradient_shap: "
                'options={"gradient_shap": {"baselines": ...}}'
            ) from error

    def generator(self) -> torch.Generator:
        """Return a fresh CPU generator: the same draws for all inputs, on every device."""
        return torch.Generator().manual_seed(self.seed)

    def keys(self) -> Tensor:
        """Return the number that decides each input's own draws, [N]; see `sea_nn.model.noise`."""
        return self.share("keys", lambda: noise.find_keys(self.x, self.seed))

    def row(self, index: int) -> "Evaluator":
        """Return the same evaluator for one input only."""
        return self.select(torch.tensor([index], device=self.x.device))

    def select(self, rows: Tensor, points: Tensor | None = None) -> "Evaluator":
        """Return the same evaluator for the inputs `rows` [P], or for variants of them [P, ...]."""
        base = self.baselines
        return replace(
            self,
            x=self.x[rows] if points is None else points,
            target=self.target[rows],
            outputs=self.outputs[rows],
            origin=self._trace(rows),
            baselines=self.baseline()[rows] if isinstance(base, Tensor) else base,
            cache={k: v for k, v in self.cache.items() if k in FACTS or k[0] == FOOTPRINT},
        )

    def _trace(self, rows: Tensor) -> tuple[Tensor, int]:
        """Return which of the caller's inputs `rows` are variants of, and their number."""
        if self.origin is None:
            return rows, len(self.x)
        origin, count = self.origin
        return origin[rows], count

    def share(self, key: Any, compute: Callable[[], T]) -> T:
        """Return `compute()`, computed once for all members that ask with the same key."""
        if key not in self.cache:
            self.cache[key] = compute()
        return self.cache[key]  # type: ignore[no-any-return]

    def forward(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the outputs of `points` [P, ...], variants of the inputs `rows` [P]."""
        with self._precision():
            outputs: Tensor = self.model(points, *select_args(self.args, *self._trace(rows)))
        return outputs.to(self.x.dtype)

    def score(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the output of each row's target class, [P]."""
        return take(outputs, self.target[rows])

    def meaning(self) -> Output:
        """Return what the model's outputs are, found once where nobody said."""
        return self.output or self.share("output", lambda: self.find_output(self.outputs))

    def find_output(self, outputs: Tensor, output: str | Output | None = None) -> Output:
        """Return what the answers `outputs` about the inputs are; see `outputs.find_output`."""

        def last_operation() -> str:
            args = select_args(self.args, *self._trace(torch.tensor([0], device=self.x.device)))
            return find_last_operation(self.model, self.x[:1], args)

        return find_output(outputs, output or self.output, last_operation)

    def gradient(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return d score / d input at `points` [P, ...], variants of the inputs `rows` [P]."""
        args = select_args(self.args, *self._trace(rows))
        return self.slope(points, self.target[rows], args)

    def slope(self, points: Tensor, classes: Tensor, args: tuple[Any, ...] = ()) -> Tensor:
        """Return d output / d input at `points` [P, ...], of the outputs `classes` [P]."""
        if self.compiled is None:
            return self._differentiate(self.model, points, classes, args)
        return self.compiled.run(lambda model: self._differentiate(model, points, classes, args))

    def _differentiate(
        self, model: TensorModel, points: Tensor, classes: Tensor, args: tuple[Any, ...]
    ) -> Tensor:
        # A smaller float loses gradients of outputs to underflow unless they are scaled up.
        scale = 1024.0 if self.autocast == torch.float16 else 1.0
        with self.differentiable():
            leaf = self._start(points).requires_grad_(True)
            # The copy, in the layout to run in, lets a model start with an in-place operation.
            written = self.first is None or self.first.overwrites
            copy = leaf.clone(memory_format=self._layout(leaf)) if written else leaf
            if model is not self.model:
                fix_shape(copy)
            with self._precision():
                outputs: Tensor = model(copy, *args)
            score = take(outputs.to(self.x.dtype), classes).sum() * scale
            if not score.requires_grad:
                raise MemberError(
                    "the model's output carries no gradient (a detach, no_grad or non-tensor step "
                    "inside it?); use members that only ask the model: occlusion, rise, lime, "
                    "kernel_shap"
                )
            (grad,) = torch.autograd.grad(score, leaf, allow_unused=True)
        if grad is None:
            raise MemberError(
                "the model's output does not depend on the input through operations that can be "
                "differentiated; use occlusion, rise, lime or kernel_shap"
            )
        return grad / scale if scale != 1 else grad

    def _start(self, points: Tensor) -> Tensor:
        """Return what passes start from: the points, or what the first layer makes of them."""
        if self.first is None:
            return points.detach()
        made = self.first.push(points)
        return made.contiguous(memory_format=self._layout(made))

    def sweep(
        self,
        total: int,
        visit: Callable[[int, int], None],
        *,
        size: int | None = None,
        weight: int = 1,
        gradient: bool = True,
    ) -> None:
        """Call `visit(start, stop)` over range(total), in smaller pieces if memory runs out.

        Args:
            total: how much there is to do.
            visit: does items start to stop.
            size: items in a piece; chosen by memory if left out.
            weight: evaluations an item.
            gradient: whether an evaluation needs a backward pass.
        """
        if size is None:
            size = max(1, self.chunk(total * weight, gradient) // weight)
        start = 0
        while start < total:
            stop = min(start + size, total)
            try:
                visit(start, stop)
            except torch.cuda.OutOfMemoryError as error:
                if size == 1:
                    raise MemberError(
                        "the GPU has no room for a single input; free memory, use a smaller input "
                        "or set autocast=torch.bfloat16"
                    ) from error
                size = max(1, size // 2)
                if self.kept is not None:
                    self.kept.release()
                torch.cuda.empty_cache()
                continue
            self.tick((stop - start) * weight)
            start = stop

    def answer(self) -> Tensor:
        """Return the outputs of all inputs, [N, classes]."""
        parts: list[Tensor] = []

        def visit(start: int, stop: int) -> None:
            rows = torch.arange(start, stop, device=self.x.device)
            with torch.no_grad():
                parts.append(self.forward(self.arrange(self.x[start:stop]), rows))

        self.sweep(len(self.x), visit, gradient=False)
        return torch.cat(parts)

    def footprint(self) -> batching.Footprint:
        """Return the memory one input needs, measured with one forward pass and remembered."""

        def find() -> batching.Footprint:
            rows = torch.zeros(1, dtype=torch.long, device=self.x.device)
            one = self._start(self.arrange(self.x[:1]))
            folded = () if self.folded is None else self.folded.tensors()
            weights = (*self.model.parameters(), *self.model.buffers(), *folded)
            return batching.measure(lambda leaf: self.forward(leaf, rows), one, weights)

        form = (self.autocast, self.folded is not None, self.first is not None)
        kind = (FOOTPRINT, self.x.shape[1:], self.x.dtype, self.x.device, *form)
        return self.share(kind, lambda: batching.recall(self.module, kind, find))

    def arrange(self, points: Tensor) -> Tensor:
        """Return a copy of `points` in the memory layout that convolutions run fastest in."""
        return points.detach().clone(memory_format=self._layout(points))

    def empty(self, count: int) -> Tensor:
        """Return room for `count` points like the inputs, in that layout."""
        shape, layout = (count, *self.x.shape[1:]), self._layout(self.x)
        return torch.empty(shape, dtype=self.x.dtype, device=self.x.device, memory_format=layout)

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Turn gradients on, whatever the caller's mode, for any kind of layer."""
        # cuDNN's recurrent layers have no backward pass in eval mode; PyTorch's own have.
        with ExitStack() as stack:
            if self.x.is_cuda and self.share("recurrent", self._is_recurrent):
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(torch.enable_grad())
            yield

    def chunk(self, total: int, gradient: bool = True) -> int:
        """Return how many of `total` evaluations to run together, by memory."""
        if total <= 1:
            return 1
        need = self.footprint()
        per_input = need.gradient if gradient else need.forward
        return batching.chunk_size(total, per_input, need.elements, self.x.device, self.limit)

    def _layout(self, points: Tensor) -> torch.memory_format:
        last = points.ndim == 4 and self._prefers_channels_last()
        return torch.channels_last if last else torch.contiguous_format

    def _prefers_channels_last(self) -> bool:
        # On a GPU the backward pass of a batch norm in eval mode returns the other layout, and
        # the copies that follow cost more than the layout gains.
        norms = self.x.is_cuda and self.folded is None and self.share("norms", self._has_norms)
        return not norms and self.share("convolutional", self._is_convolutional)

    def _has_norms(self) -> bool:
        return any(is_frozen_norm(m) for m in self.modules)

    def _is_convolutional(self) -> bool:
        return any(isinstance(m, nn.Conv2d) for m in self.modules)

    def _is_recurrent(self) -> bool:
        return any(isinstance(m, nn.RNNBase) for m in self.modules)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.x.device.type, dtype=self.autocast)


def check_autocast(autocast: bool | torch.dtype, x: Tensor) -> torch.dtype | None:
    """Return the precision that `autocast` asks for; None for the model's own."""
    if autocast is False:
        return None
    if not x.is_cuda:
        raise InputError("autocast is for GPUs: on a CPU leave it off, it gains nothing there")
    dtype = torch.bfloat16 if autocast is True else autocast
    if dtype not in (torch.bfloat16, torch.float16):
        raise InputError(f"autocast must be True, torch.bfloat16 or torch.float16, got {autocast}")
    return dtype
