"""The opened model: asked which sets of features suffice, and differentiated, in full chunks.

Every member of the ensemble is written against ``Probe``: it says which points to evaluate and how
to combine the answers; chunks, memory, mixed precision and layout live here. How many inputs fit
into one pass is measured with one and then divided: 50 backward passes of a path integral over a
224 x 224 image take gigabytes in one batch; in chunks that fit they take less and, on a CPU, run
faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, MemberError, UnfitError
from sea_nn.features import Features
from sea_nn.model.outputs import Meter, Output, TensorModel, take

MIB = 1 << 20
CPU_BUDGET = 384 * MIB
CUDA_BUDGET = 32768 * MIB
CUDA_SHARE = 0.5
MAX_CHUNK = {"cuda": 4096, "cpu": 128}
# Of one tensor: cuDNN and several CUDA kernels index with 32 bits, in half precision as well.
MAX_BYTES = 2**32 - 2
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
SAME = 0.02
"""Two answers about an input are the same within this share; half precision needs some."""


class Perturbation(Protocol):
    """Inputs [N, ...] of which any positions can be hidden."""

    @property
    def n_draws(self) -> int:
        """How many versions of the hidden values there are; an answer is the mean over them."""

    def hide(self, hidden: Tensor, rows: Tensor, draw: Tensor | None = None) -> Tensor:
        """Return the inputs ``rows`` [P] with the values ``hidden``, bool [P, ...], replaced.

        ``hidden`` has the axes of the inputs, of size 1 where it is the same along an axis.
        ``draw`` [P] says by which version, 0 … n_draws - 1; None for the first.
        """


@dataclass
class Probe:
    """A model that was opened for some inputs, and has answered about them.

    One evaluation is one forward pass, or one forward and backward pass, of one input.

    Attributes:
        model: what runs, behind `TensorModel`, which counts: the caller's model or a copy of it.
        meter: counts the rows that the model sees.
        x: the inputs [N, ...], a private copy.
        target: the class to explain for each, [N], or a pair, [N, 2]; see `outputs.take`.
        whole: the model's outputs for the intact inputs, [N, K].
        output: what these outputs are.
        features: of the inputs: cells that are present or absent together.
        args: further arguments of the model, for the caller's inputs.
        origin: which of the caller's inputs each of `x` is a variant of, [N], and how many there
            are. A tensor among `args` follows them by that number.
        baselines: None for zero, a number, or a tensor that broadcasts to `x`.
        hiding: how what is left out of an input becomes absent.
        limit: the most evaluations in one pass, or None to choose by memory.
        autocast: the precision on a GPU, or None for the model's own.
        layout: in which inputs lie in memory.
        private: whether the model is a copy, which may be changed.
        seed: starts every random draw; an input's map never depends on its batch.
        saved: bytes that a forward pass of one input keeps for the backward pass; 0: not measured.
        largest: bytes of the largest single tensor among them.
        has_gradient: whether the model's outputs carry gradients.
        operation: what made the outputs, as autograd calls it; "" if unknown.
        notices: what was assumed about the outputs.
        folded: the model with folded norms, not proved.
        fast: the same probe by folded norms once they are proved; see ``begin``.
        said: the model's own outputs about the sets it was asked about, [N, R, draws, K] by call.
        unsteady: whether the model answered otherwise about an input the second time, bool [N].
        cache: results shared between members, by name.
    """

    model: TensorModel
    meter: Meter
    x: Tensor
    target: Tensor
    whole: Tensor
    output: Output
    features: Features
    origin: tuple[Tensor, int]
    args: tuple[Any, ...] = ()
    baselines: float | Tensor | None = None
    hiding: Perturbation | None = None
    limit: int | None = None
    autocast: torch.dtype | None = None
    layout: torch.memory_format = torch.contiguous_format
    private: bool = False
    seed: int = 0
    saved: int = 0
    largest: int = 0
    has_gradient: bool = True
    operation: str = ""
    notices: list[str] = field(default_factory=list)
    folded: TensorModel | None = None
    fast: Probe | None = None
    said: list[Tensor] = field(default_factory=list)
    unsteady: Tensor | None = None
    cache: dict[Any, Any] = field(default_factory=dict)

    def ask(
        self, sets: Tensor, features: Features | None = None, purpose: str = "questions"
    ) -> Tensor:
        """What the model says with only the sets left, [N, R]: a probability, or a value.

        Args:
            sets: bool [N, R, *shape] over the positions of a map or, with ``features`` of the same
                map, [N, R, n] over these.
            features: what the sets are of.
            purpose: what the rows are counted for.
        """
        own, hiding = self.features, self.hiding
        if hiding is None:
            raise InputError("to ask about sets, say how features are absent: hiding=")
        shape = own.shape if features is None else (features.n,)
        count, per_input = sets.shape[:2]
        if count != len(self.x) or tuple(sets.shape[2:]) != tuple(shape):
            raise InputError(
                f"sets must be [N, R, *shape] with N = {len(self.x)} inputs and features "
                f"{list(shape)}; got {list(sets.shape)}"
            )
        k, kept = hiding.n_draws, sets.flatten(0, 1)
        points = torch.arange(count * per_input * k, device=sets.device)
        rows = points // (per_input * k)

        def build(part: slice) -> Tensor:
            left = kept[points[part] // k]
            left = left if features is None else features.expand(left)
            return hiding.hide(~own.kind.over_input(left), rows[part], points[part] % k)

        self.meter.purpose = purpose
        said = (self.fast or self).ask_points(rows, build)
        self.said.append(said.view(count, per_input, k, said.shape[1]))
        return self.output.score(said, self.target[rows]).view(count, per_input, k).mean(2)

    def begin(self, ask_empty: bool) -> Tensor | None:
        """Ask about each intact input a second time, beside itself with nothing left.

        The second answer proves that folded norms are the model, and shows a model whose answers
        depend on the rest of the batch, or on chance. A plain function is not asked twice.

        Args:
            ask_empty: whether the answers about the empty inputs are questions; if not, half the
                input stands beside it.

        Returns:
            What the model says of the empty inputs, [N, 1]; None if that was no question.
        """
        first, x = int(self.model.module is not None), self.x.unsqueeze(1)
        if not (first or ask_empty):
            return None
        variants = torch.cat([x[:, :first], self.absent() if ask_empty else x / 2], 1)
        count, each = variants.shape[:2]
        rows = torch.arange(count, device=x.device).repeat_interleave(each)
        points = variants.flatten(0, 1)
        self.fast = None if self.folded is None else replace(self, model=self.folded, cache={})
        said = (self.fast or self).ask_points(rows, points.__getitem__, 1 + first)
        if self.fast is not None and not is_same(said[::each], self.whole):
            self.fast = None
            said = self.ask_points(rows, points.__getitem__, 1 + first)
        said = said.view(count, each, -1)
        if first:
            apart = (said[:, 0] - self.whole.to(said)).abs().amax(1)
            self.unsteady = apart > SAME * self.whole.abs().amax(1).clamp_min(1).to(said)
        if not ask_empty:
            return None
        self.meter.rows["checks"] -= count * (each - first)
        self.meter.rows["questions"] += count * (each - first)
        self.said.append(said[:, first:].unsqueeze(1))
        score = self.output.score(said.flatten(0, 1), self.target[rows])
        return score.view(count, each)[:, first:].mean(1, keepdim=True)

    def ask_points(
        self,
        rows: Tensor,
        build: Callable[[slice], Tensor],
        together: int = 1,
        read: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the model's outputs about P points, [P, K], in chunks that fit into memory.

        Args:
            rows: the input that each point is a variant of, [P].
            build: returns the points [p, ...] of a slice of 0 to P.
            together: so many points at least go into one pass, unless the caller's limit is lower.
            read: what to keep of outputs [p, K] about variants of the inputs [p].
        """
        probe, start, answers = self, 0, []
        size = max(self.chunk(len(rows), gradient=False), min(together, self.limit or together))
        while start < len(rows):
            part = slice(start, start + size)
            try:
                with torch.no_grad():
                    outputs = probe.forward(build(part), rows[part])
            except torch.cuda.OutOfMemoryError:
                probe = probe.shrink()
                size = min(size, probe.limit or 1)
                continue
            wrong, said = outputs.isnan(), "NaN"
            if self.output.kind in ("probabilities", "labels"):
                wrong |= (outputs < -0.01) | (outputs > 1.01)
                said = "NaN, or numbers outside 0 to 1 where probabilities are expected,"
            if bool(wrong.any()):
                raise InputError(
                    f"the model returned {said} for {int(wrong.any(1).sum())} of {len(outputs)} "
                    "inputs with features hidden, though not for the whole inputs; hide them in "
                    "another way, or say what the model's outputs are (output=)"
                )
            answers.append(outputs if read is None else read(outputs, rows[part]))
            start += size
        return torch.cat(answers) if answers else self.whole[:0]

    def forward(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the outputs of `points` [P, ...], variants of the inputs `rows` [P]."""
        args, (origin, count) = list(self.args), self.origin
        for k, arg in enumerate(args):
            if isinstance(arg, Tensor) and arg.ndim > 0 and len(arg) == count:
                args[k] = arg[origin[rows].to(arg.device)]
        lower = self.autocast is not None
        with torch.autocast(points.device.type, self.autocast) if lower else nullcontext():
            # The copy, in the layout that runs fastest, lets a model start with work in place.
            outputs: Tensor = self.model(points.clone(memory_format=self.layout), *args)
        return outputs.to(self.x.dtype)

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
            outputs = self.forward(leaf, rows)
            read = self.output.score if probability else take
            score = read(outputs, self.target[rows]).sum() * scale
            if not score.requires_grad:
                raise UnfitError(NO_GRADIENT)
            (grad,) = torch.autograd.grad(score, leaf, allow_unused=True)
        if grad is None:
            raise UnfitError(NO_GRADIENT)
        return grad / scale if scale != 1 else grad

    def input_gradients(self) -> Tensor:
        """Return d score / d input at the inputs, computed once for all members."""
        if "gradient" not in self.cache:
            total = torch.zeros_like(self.x)
            for rows, _ in self.parts():
                total[rows] = self.gradient(self.x[rows], rows)
            self.cache["gradient"] = total
        found: Tensor = self.cache["gradient"]
        return found

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Turn gradients on, whatever the caller's mode, for any kind of layer."""
        # cuDNN's recurrent layers have no backward pass in eval mode; PyTorch's own have.
        recurrent = self.x.is_cuda and any(isinstance(m, nn.RNNBase) for m in self.model.modules())
        with (
            torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext(),
            torch.enable_grad(),
        ):
            yield

    def parts(self, count: int = 1, weight: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all points, ``count`` an input, in parts of which gradients fit into memory.

        A part is the inputs of its points, [P], and the numbers that they have there, [P]. Parts
        cross the borders between inputs.

        Args:
            count: points an input.
            weight: evaluations a point.
        """
        points = torch.arange(len(self.x) * count, device=self.x.device)
        for part in points.split(max(1, self.chunk(len(points) * weight) // weight)):
            yield part // count, part % count

    def chunk(self, total: int, gradient: bool = True) -> int:
        """Return how many of `total` evaluations to run together, in chunks of nearly equal size.

        Args:
            total: the evaluations to run.
            gradient: whether passes go back as well; if not, only neighbouring layers are alive.
        """
        device, largest = self.x.device, max(1, self.largest)
        most = min(MAX_CHUNK.get(device.type, 128), total)
        if self.saved:
            each = self.saved + 4 * largest if gradient else 8 * largest
            budget = CPU_BUDGET  # larger chunks leave the caches and run slower
            if device.type == "cuda":
                free, _ = torch.cuda.mem_get_info(device)
                unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
                budget = min(CUDA_BUDGET, int((free + unused) * CUDA_SHARE))
            most = min(most, budget // each, MAX_BYTES // largest)
            if device.type == "cpu" and not gradient:
                most = min(most, torch.get_num_threads() * CPU_CACHE // largest)
        if self.limit is not None:
            most = min(most, self.limit)
        # 51 evaluations with room for 50 are better run as 26 + 25 than as 50 + 1.
        return math.ceil(total / math.ceil(total / max(1, most))) if total > 0 else 1

    def shrink(self) -> Probe:
        """The same probe with smaller parts, for a GPU whose memory has run out."""
        if self.limit == 1:
            raise MemberError(
                "the GPU has no room for a single input; free memory, use a smaller input or set "
                "autocast=torch.bfloat16"
            )
        torch.cuda.empty_cache()
        most = MAX_CHUNK.get(self.x.device.type, 128)
        return replace(self, limit=max(1, (self.limit or most) // 2))

    def select(self, rows: Tensor) -> Probe:
        """Return the same probe of the inputs `rows` [P]."""
        base, (origin, count) = self.baselines, self.origin
        return replace(
            self,
            x=self.x[rows],
            target=self.target[rows],
            whole=self.whole[rows],
            origin=(origin[rows], count),
            baselines=self.baseline()[rows] if isinstance(base, Tensor) else base,
            cache={},
        )

    def part(self, which: slice) -> Probe:
        """The probe of some of the inputs, by folded norms where they are the model."""
        if self.unsteady is None:
            self.begin(ask_empty=False)
        rows = torch.arange(len(self.x), device=self.x.device)[which]
        return (self.fast or self).select(rows)

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
                f"{list(base.shape)}"
            ) from error

    def absent(self) -> Tensor:
        """What the inputs look like where nothing is left, by every draw: [N, draws, ...]."""
        if self.hiding is None:
            return self.baseline().unsqueeze(1)
        k, (count, *shape) = self.hiding.n_draws, self.x.shape
        rows = self.origin[0].repeat_interleave(k)
        draws = torch.arange(k, device=rows.device).repeat(count)
        hidden = torch.ones((), dtype=torch.bool, device=rows.device).expand(count * k, *shape)
        return self.hiding.hide(hidden, rows, draws).view(count, k, *shape)


def add_up(totals: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values at points [P, ...] to the totals [N, ...] of their inputs [P], which are in order.

    One sum an input rather than a scattered add: the same order, so the same bits.
    """
    inputs, counts = rows.unique_consecutive(return_counts=True)
    for row, own in zip(inputs.tolist(), values.split(counts.tolist()), strict=True):
        totals[row] += own.sum(0)


def is_same(found: Tensor, expected: Tensor) -> bool:
    """Whether outputs [N, classes] differ by rounding alone, as a share of their spread."""
    a, b = found.detach().double(), expected.detach().double()
    least = 1e-3 if b.shape[1] > 1 else 1.0  # one output has no spread
    spread = torch.maximum((b - b.mean(1, keepdim=True)).abs().amax(1), b.abs().amax(1) * least)
    spread = torch.where(spread > 0, spread, 1.0)[:, None]
    return bool(((a - b).abs() <= ROUNDING.get(a.device.type, 1e-3) * spread).all())
