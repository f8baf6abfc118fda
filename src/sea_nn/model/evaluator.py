"""Ask an opened model about many variants of a few inputs, packed into full chunks.

Every member of the ensemble is written against ``Evaluator``: it says which points to evaluate and
how to combine the answers; chunks, memory, mixed precision and layout live here. How many inputs
fit into one pass is measured with one and then divided: 50 backward passes of a path integral over
a 224 x 224 image take gigabytes in one batch; in chunks that fit they take less and, on a CPU, run
faster.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, MemberError, UnfitError
from sea_nn.features import Features, Kind
from sea_nn.model import noise
from sea_nn.model.outputs import Output, TensorModel, select_args, take

MIB = 1 << 20
CPU_BUDGET = 384 * MIB
CUDA_BUDGET = 32768 * MIB
CUDA_SHARE = 0.5
MAX_CHUNK = {"cuda": 4096, "cpu": 128}
# cuDNN and several CUDA kernels index with 32 bits.
MAX_ELEMENTS = 2**31 - 1
# Forward passes on a CPU are fastest while a layer's output stays in the cache of its core: the
# Fashion-MNIST CNN takes 0.14 ms an input in chunks of 64, 0.16 in chunks of 128 and 0.22 in chunks
# of 256; EfficientNet-Lite0 19 ms in chunks of 1 or 2 and 25 to 30 in chunks of 4 to 16.
CPU_CACHE = 6 << 20
NO_GRADIENT = (
    "the model's output carries no gradient (a detach, no_grad or non-tensor step inside it?); use "
    "members that only ask the model: occlusion, rise, lime, kernel_shap"
)
ROUNDING = {"cpu": 1e-3, "cuda": 0.02}
"""How far rounding may bring another form of a model from it, as a share of its outputs' spread."""


@dataclass(frozen=True)
class Footprint:
    """The memory that one input needs, in bytes.

    Attributes:
        saved: what the forward pass keeps for the backward pass.
        largest: the largest single tensor among them.
        elements: the number of elements of that tensor.
    """

    saved: int
    largest: int
    elements: int

    @property
    def gradient(self) -> int:
        """Bytes for a forward and backward pass: kept activations and passing gradients."""
        return self.saved + 4 * self.largest

    @property
    def forward(self) -> int:
        """Bytes for a forward pass alone, where only neighbouring layers are alive at once."""
        return 8 * self.largest


class Kept:
    """What autograd kept of a pass, by place in memory; see ``watch_memory``."""

    def __init__(self, weights: Iterable[Tensor] = ()) -> None:
        # Weights are left out: they are there once, whatever the batch.
        self.fixed = {t.untyped_storage().data_ptr() for t in weights}
        self.sizes: dict[int, tuple[int, int]] = {}
        self.alive: list[Tensor] = []  # or an address could stand for two tensors
        self.watching = True

    def note(self, tensor: Tensor) -> Tensor | None:
        """Add a tensor that autograd keeps."""
        if not self.watching:  # an interrupt may leave the hook in place: then it does nothing
            return tensor
        # Nothing is handed to autograd: an operation that saves its own output, and gets it back
        # here, would keep itself alive for ever.
        if not tensor.is_sparse:
            self.alive.append(tensor.detach())
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.fixed:
                self.sizes[storage.data_ptr()] = (storage.nbytes(), tensor.numel())
        return None

    def measure(self, x: Tensor) -> Footprint:
        """The memory that one input, x [1, ...], takes; what was kept is let go."""
        self.alive.clear()
        own = x.numel() * x.element_size()
        sizes, elements = zip((own, x.numel()), *self.sizes.values(), strict=True)
        return Footprint(4 * own + sum(sizes[1:]), max(sizes), max(elements))


@contextmanager
def watch_memory(weights: Iterable[Tensor] = ()) -> Iterator[Kept]:
    """Run with gradients, and note what autograd keeps; nothing can be differentiated after."""
    kept = Kept(weights)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(kept.note, lambda t: t):
        try:
            yield kept
        finally:
            kept.watching = False


def chunk_size(
    total: int,
    need: Footprint | None,
    gradient: bool,
    device: torch.device,
    limit: int | None = None,
) -> int:
    """Return how many of `total` evaluations to run together, in chunks of nearly equal size.

    Args:
        total: the evaluations to run.
        need: the memory that one of them needs; None if it is not known.
        gradient: whether passes go back as well.
        device: where they run.
        limit: the caller's own limit, if any.
    """
    most = min(MAX_CHUNK.get(device.type, 128), total)
    if need is not None:
        room = free_budget(device) // max(1, need.gradient if gradient else need.forward)
        most = min(most, room, MAX_ELEMENTS // max(1, need.elements))
        if device.type == "cpu" and not gradient:
            most = min(most, torch.get_num_threads() * CPU_CACHE // need.largest)
    if limit is not None:
        most = min(most, limit)
    # 51 evaluations with room for 50 are better run as 26 + 25 than as 50 + 1.
    return math.ceil(total / math.ceil(total / max(1, most))) if total > 0 else 1


def free_budget(device: torch.device) -> int:
    """Return the bytes that one pass may take on `device`.

    On a CPU the smaller of 384 MiB and a quarter of the free memory: larger chunks leave the
    caches and run slower. On a GPU the smaller of 32 GiB, which keep it busy, and half of what is
    free or held unused by PyTorch.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return min(CUDA_BUDGET, int((free + unused) * CUDA_SHARE))
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return min(CPU_BUDGET, int(line.split()[1]) * 1024 // 4)
    except (OSError, ValueError):
        pass
    return CPU_BUDGET  # not Linux


@dataclass(frozen=True)
class Part:
    """Evaluations `start` to `stop` of a pass over `count` points an input.

    Attributes:
        start: the first evaluation's number, row * count + step.
        stop: one more than the last one's.
        count: points an input.
        rows: the input of each, [P].
        steps: the point of each, [P].
    """

    start: int
    stop: int
    count: int
    rows: Tensor
    steps: Tensor

    def cut(self) -> Iterator[tuple[int, slice, slice]]:
        """Yield the inputs of a part: the row, its place in the part, and its points' numbers."""
        count = self.count
        for row in range(self.start // count, (self.stop - 1) // count + 1):
            low, high = max(self.start, row * count), min(self.stop, (row + 1) * count)
            place = slice(low - self.start, high - self.start)
            yield row, place, slice(low - row * count, high - row * count)

    def add(self, total: Tensor, values: Tensor, weights: Tensor | None = None) -> None:
        """Add values at the points, [P, ...], to the inputs' totals, by weights [count] if given.

        One sum an input rather than a scattered add: the same order, so the same bits.
        """
        if self.count == 1 and weights is None:
            total[self.start : self.stop] = values
            return
        for row, place, numbers in self.cut():
            some = values[place]
            total[row] += some.sum(0) if weights is None else _add_up(some, weights[numbers])


@dataclass
class Evaluator:
    """A model, the inputs to explain, and the means to evaluate variants of them.

    One evaluation is one forward pass, or one forward and backward pass, of one input.

    Attributes:
        model: what runs, behind `TensorModel`, which counts: the caller's model or a copy of it.
        x: the inputs [N, ...], a private copy.
        target: the class to explain for each, [N], or a pair, [N, 2]; see `outputs.take`.
        outputs: the model's answer for `x`, [N, classes].
        output: what these outputs are.
        features: of the inputs: cells that are present or absent together.
        args: further arguments of the model, for the caller's inputs.
        origin: which of the caller's inputs each of `x` is a variant of, and how many there are;
            None where they are the caller's. A tensor among `args` follows them by that number.
        baselines: None for zero, a number, or a tensor that broadcasts to `x`.
        absent: what the inputs look like where nothing is left, one version or several,
            [N, V, ...]; None: the baseline.
        limit: the most evaluations in one pass, or None to choose by memory.
        autocast: the precision on a GPU, or None for the model's own.
        seed: starts every random draw; an input's map never depends on its batch.
        footprint: the memory that one input needs; None if it was not measured.
        has_gradient: whether the model's outputs carry gradients.
        cache: results shared between members, by name.
    """

    model: TensorModel
    x: Tensor
    target: Tensor
    outputs: Tensor
    output: Output
    features: Features
    args: tuple[Any, ...] = ()
    origin: tuple[Tensor, int] | None = None
    baselines: float | Tensor | None = None
    absent: Callable[[], Tensor] | None = None
    limit: int | None = None
    autocast: torch.dtype | None = None
    seed: int = 0
    footprint: Footprint | None = None
    has_gradient: bool = True
    cache: dict[Any, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What the inputs are."""
        return self.features.kind

    @property
    def module(self) -> nn.Module | None:
        """The model if it is a module, None for a plain callable."""
        inner = self.model.model
        return inner if isinstance(inner, nn.Module) else None

    def has(self, *kinds: type[nn.Module]) -> bool:
        """Whether the model has layers of these types."""
        return any(isinstance(m, kinds) for m in self.model.modules())

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
        return noise.find_keys(self.x, self.seed)

    def select(self, rows: Tensor, points: Tensor | None = None) -> "Evaluator":
        """Return the same evaluator for the inputs `rows` [P], or for variants of them [P, ...]."""
        base, (origin, count) = self.baselines, self.origin or (None, len(self.x))
        return replace(
            self,
            x=self.x[rows] if points is None else points,
            target=self.target[rows],
            outputs=self.outputs[rows],
            origin=(rows if origin is None else origin[rows], count),
            baselines=self.baseline()[rows] if isinstance(base, Tensor) else base,
            cache={},
        )

    def forward(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the outputs of `points` [P, ...], variants of the inputs `rows` [P]."""
        args = self.args
        if args:
            origin, count = self.origin or (None, len(self.x))
            args = select_args(args, rows if origin is None else origin[rows], count)
        with self.precision():
            outputs: Tensor = self.model(points, *args)
        return outputs.to(self.x.dtype)

    def score(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the output of each row's target class, [P]."""
        return take(outputs, self.target[rows])

    def input_gradients(self) -> Tensor:
        """Return d score / d input at the inputs, computed once for all members."""
        if "gradient" not in self.cache:
            total = torch.zeros_like(self.x)
            for part in self.parts():
                part.add(total, self.gradient(self.x[part.rows], part.rows))
            self.cache["gradient"] = total
        found: Tensor = self.cache["gradient"]
        return found

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
            outputs = self.forward(leaf.clone(memory_format=self.layout(leaf)), rows)
            if probability:
                score = self.output.score(outputs, self.target[rows]).sum() * scale
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

    def parts(self, count: int = 1, *, gradient: bool = True, weight: int = 1) -> "Iterator[Part]":
        """Yield all points, ``count`` an input, in parts that fit into memory.

        Args:
            count: points an input. Parts cross the borders between inputs.
            gradient: whether an evaluation needs a backward pass.
            weight: evaluations a point.
        """
        total = len(self.x) * count
        size = max(1, self.chunk(total * weight, gradient) // weight)
        for start in range(0, total, size):
            flat = torch.arange(start, min(start + size, total), device=self.x.device)
            yield Part(start, start + len(flat), count, flat // count, flat % count)

    def blocks(self, count: int) -> Iterator[slice]:
        """Yield ``count`` masks in blocks, of each of which every input may take a pass."""
        size = max(1, self.chunk(len(self.x) * count, gradient=False) // len(self.x))
        for start in range(0, count, size):
            yield slice(start, min(start + size, count))

    def shrink(self) -> "Evaluator":
        """The same evaluator with smaller parts, for a GPU whose memory has run out."""
        if self.limit == 1:
            raise MemberError(
                "the GPU has no room for a single input; free memory, use a smaller input or set "
                "autocast=torch.bfloat16"
            )
        torch.cuda.empty_cache()
        most = MAX_CHUNK.get(self.x.device.type, 128)
        return replace(self, limit=max(1, (self.limit or most) // 2))

    def mask(self, masks: Tensor, probability: bool = False) -> Tensor:
        """What the model says of every input behind every mask, [N, K].

        Args:
            masks: [K, ...] that broadcast to an input, 1 keeps and 0 hides: what is hidden takes
                the baseline's value.
            probability: return the probability of the target class (of a model of values, the
                value), not its logit.
        """
        scores = self.x.new_empty(len(self.x) * len(masks))
        base = None if self.baselines is None else self.baseline()
        for part in self.parts(len(masks), gradient=False):
            mask = masks[part.steps]
            points = self.x[part.rows] * mask
            if base is not None:
                points = points + base[part.rows] * (1 - mask)
            with torch.no_grad():
                outputs = self.forward(self.arrange(points), part.rows)
                outputs = self.output.scores(outputs) if probability else outputs
                scores[part.start : part.stop] = self.score(outputs, part.rows)
        return scores.view(len(self.x), len(masks))

    def arrange(self, points: Tensor) -> Tensor:
        """Return a copy of `points` in the memory layout that convolutions run fastest in."""
        return points.detach().clone(memory_format=self.layout(points))

    def layout(self, points: Tensor) -> torch.memory_format:
        """Return that layout: channels last for images."""
        last = points.ndim == 4 and self.has(nn.Conv2d)
        return torch.channels_last if last else torch.contiguous_format

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Turn gradients on, whatever the caller's mode, for any kind of layer."""
        # cuDNN's recurrent layers have no backward pass in eval mode; PyTorch's own have.
        recurrent = self.x.is_cuda and self.has(nn.RNNBase)
        with (
            torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext(),
            torch.enable_grad(),
        ):
            yield

    def chunk(self, total: int, gradient: bool = True) -> int:
        """Return how many of `total` evaluations to run together, by memory."""
        return chunk_size(total, self.footprint, gradient, self.x.device, self.limit)

    def precision(self) -> AbstractContextManager[Any]:
        """The context that passes run in."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.x.device.type, dtype=self.autocast)


def is_same(found: Tensor, expected: Tensor) -> bool:
    """Whether outputs [N, classes] differ by rounding alone, as a share of their spread."""
    a, b = found.detach().double(), expected.detach().double()
    spread = torch.maximum((b - b.mean(1, keepdim=True)).abs().amax(1), b.abs().amax(1) * 1e-3)
    spread = torch.where(spread > 0, spread, 1.0)[:, None]
    return bool(((a - b).abs() <= ROUNDING.get(a.device.type, 1e-3) * spread).all())


def _add_up(grads: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of gradients [p, ...] by weights [p].

    As a product of a row and a matrix, in the order that the gradients lie in memory, each is read
    once: on a GPU eight times as fast as a product by element and a sum over the first axis.
    """
    last = grads.ndim == 4 and grads.is_contiguous(memory_format=torch.channels_last)
    flat = grads.permute(0, 2, 3, 1) if last else grads
    with torch.autocast(grads.device.type, enabled=False):  # a caller's would round the product
        total = (weights @ flat.reshape(len(grads), -1)).view(flat.shape[1:])
    return total.permute(2, 0, 1) if last else total
