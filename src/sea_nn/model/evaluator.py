"""Ask an opened model about many variants of a few inputs, packed into full chunks.

Every member of the ensemble is written against this class: it says which points to evaluate and
how to combine the answers; chunks, memory, mixed precision and layout live here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, MemberError, UnfitError
from sea_nn.features import Features, Kind, find_kind
from sea_nn.model import batching, noise
from sea_nn.model.outputs import Output, find_output, take
from sea_nn.model.wrapped import TensorModel, select_args

T = TypeVar("T")
UNSET = Kind("", 2)
NO_GRADIENT = (
    "the model's output carries no gradient (a detach, no_grad or non-tensor step inside it?); use "
    "members that only ask the model: occlusion, rise, lime, kernel_shap"
)
ROUNDING = {"cpu": 1e-3, "cuda": 0.02}
"""How far rounding may bring another form of a model from it, as a share of its outputs' spread."""


@dataclass
class Evaluator:
    """A model, the inputs to explain, and the means to evaluate variants of them.

    One evaluation is one forward pass, or one forward and backward pass, of one input.

    Attributes:
        model: what runs, behind `TensorModel`, which counts: the caller's model or a copy of it.
        x: the inputs [N, ...], a private copy.
        target: the class to explain for each, [N], or a pair, [N, 2]; see `outputs.take`.
        outputs: the model's answer for `x`, [N, classes].
        output: what these outputs are; None to find out from them.
        args: further arguments of the model, for the caller's inputs.
        origin: which of the caller's inputs each of `x` is a variant of, and how many there are;
            None where they are the caller's. A tensor among `args` follows them by that number.
        baselines: None for zero, a number, or a tensor that broadcasts to `x`.
        features: of the inputs: cells that are present or absent together; None: by the kind.
        feature_mask: segment numbers for the members that perturb segments, or None.
        absent: what the inputs look like where nothing is left, one version or several,
            [N, V, ...]; None: the baseline.
        limit: the most evaluations in one pass, or None to choose by memory.
        autocast: the precision on a GPU, or None for the model's own.
        seed: starts every random draw; an input's map never depends on its batch.
        footprint: the memory that one input needs; None if it was not measured.
        has_gradient: whether the model's outputs carry gradients.
        cache: results shared between members, by name.
        kind: of the inputs; left out, found from x.
    """

    model: TensorModel
    x: Tensor
    target: Tensor
    outputs: Tensor
    args: tuple[Any, ...] = ()
    origin: tuple[Tensor, int] | None = None
    baselines: float | Tensor | None = None
    features: Features | None = None
    feature_mask: Tensor | None = None
    absent: Callable[[], Tensor] | None = None
    limit: int | None = None
    autocast: torch.dtype | None = None
    output: Output | None = None
    seed: int = 0
    footprint: batching.Footprint | None = None
    has_gradient: bool = True
    cache: dict[Any, Any] = field(default_factory=dict)
    kind: Kind = UNSET

    def __post_init__(self) -> None:
        self.kind = find_kind(self.x) if self.kind is UNSET else self.kind

    @property
    def module(self) -> nn.Module | None:
        """The model if it is a module, None for a plain callable."""
        inner = self.model.model
        return inner if isinstance(inner, nn.Module) else None

    def has(self, *kinds: type[nn.Module]) -> bool:
        """Whether the model has layers of these types."""
        module = self.module
        return module is not None and any(isinstance(m, kinds) for m in module.modules())

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
                'methods=[("gradient_shap", {"baselines": ...})]'
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
            output=self.meaning(),
            cache={},
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
        with self.precision():
            outputs: Tensor = self.model(points, *select_args(self.args, *self._trace(rows)))
        return outputs.to(self.x.dtype)

    def score(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the output of each row's target class, [P]."""
        return take(outputs, self.target[rows])

    def meaning(self) -> Output:
        """Return what the model's outputs are, found once where nobody said."""
        return self.output or self.share("output", lambda: find_output(self.outputs))

    def gradient(self, points: Tensor, rows: Tensor, probability: bool = False) -> Tensor:
        """Return d score / d input at `points` [P, ...], variants of the inputs `rows` [P].

        The score is the output of the target class or, with ``probability``, its probability.
        """
        # A smaller float loses gradients of outputs to underflow unless they are scaled up.
        scale = 1024.0 if self.autocast == torch.float16 else 1.0
        if not self.has_gradient:
            raise UnfitError(NO_GRADIENT)
        with self.differentiable():
            leaf = points.detach().requires_grad_(True)
            # The copy, in the layout to run in, lets a model start with an in-place operation.
            outputs = self.forward(leaf.clone(memory_format=self._layout(leaf)), rows)
            if probability:
                score = self.meaning().score(outputs, self.target[rows]).sum() * scale
            else:
                score = self.score(outputs, rows).sum() * scale
            if not score.requires_grad:
                raise UnfitError(NO_GRADIENT)
            (grad,) = torch.autograd.grad(score, leaf, allow_unused=True)
        if grad is None:
            raise UnfitError(
                "the model's output does not depend on the input through operations that can be "
                "differentiated; use occlusion, rise, lime or kernel_shap"
            )
        return grad / scale if scale != 1 else grad

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
                torch.cuda.empty_cache()
                continue
            start = stop

    def ask_masked(
        self, count: int, masks: Callable[[int, int], Tensor], probability: bool = False
    ) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Hide parts of every input behind `count` masks and yield what the model says.

        Args:
            count: the number of masks.
            masks: `masks(start, stop)` returns [stop - start, ...], 1 keeps and 0 hides, that
                broadcasts to an input; hidden parts take the baseline's value.
            probability: return the probability of the target class (of a model of values, the
                value), not its logit.

        Yields:
            (start, stop, masks, scores [N, stop - start]).
        """
        n_inputs = len(self.x)
        base = None if self.baselines is None else self.baseline()
        size = self.chunk(n_inputs * count, gradient=False)
        block = max(1, size // n_inputs)
        for start in range(0, count, block):
            stop = min(start + block, count)
            mask = masks(start, stop)
            width = stop - start
            scores = self.x.new_empty(n_inputs, width)

            def visit(low: int, high: int, mask: Tensor = mask, scores: Tensor = scores) -> None:
                points = self.x[low:high, None] * mask
                if base is not None:
                    points = points + base[low:high, None] * (1 - mask)
                rows = torch.arange(low, high, device=self.x.device).repeat_interleave(len(mask))
                with torch.no_grad():
                    outputs = self.forward(self.arrange(points.flatten(0, 1)), rows)
                    if probability:
                        outputs = self.meaning().scores(outputs)
                    answer = self.score(outputs, rows)
                scores[low:high] = answer.view(high - low, len(mask))

            self.sweep(n_inputs, visit, size=max(1, size // width), weight=width)
            yield start, stop, mask, scores

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
            if self.x.is_cuda and self.has(nn.RNNBase):
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(torch.enable_grad())
            yield

    def chunk(self, total: int, gradient: bool = True) -> int:
        """Return how many of `total` evaluations to run together, by memory."""
        return batching.chunk_size(total, self.footprint, gradient, self.x.device, self.limit)

    def precision(self) -> AbstractContextManager[Any]:
        """The context that passes run in."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.x.device.type, dtype=self.autocast)

    def _layout(self, points: Tensor) -> torch.memory_format:
        last = points.ndim == 4 and self.share("channels last", lambda: self.has(nn.Conv2d))
        return torch.channels_last if last else torch.contiguous_format


def is_same(found: Tensor, expected: Tensor) -> bool:
    """Whether outputs [N, classes] differ by rounding alone, as a share of their spread."""
    a, b = found.detach().double(), expected.detach().double()
    spread = torch.maximum((b - b.mean(1, keepdim=True)).abs().amax(1), b.abs().amax(1) * 1e-3)
    spread = torch.where(spread > 0, spread, 1.0)[:, None]
    return bool(((a - b).abs() <= ROUNDING.get(a.device.type, 1e-3) * spread).all())
