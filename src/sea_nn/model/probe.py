"""The opened model: asked which sets of features suffice, with every row it sees counted.

>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
>>> x = torch.rand(2, 1, 8, 8)
>>> with open_model(model, x) as probe:
...     probe.whole.shape, probe.output.kind, probe.rows["questions"]
(torch.Size([2, 3]), 'logits', 2)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sea_nn.errors import AssumptionWarning, InputError, SEAError
from sea_nn.features import SERIES, Features, find_kind
from sea_nn.model.borrowing import EscapeError, Pairs, borrow, fold, lend, watch, watch_norms
from sea_nn.model.evaluator import Evaluator, Kept, is_same, watch_memory
from sea_nn.model.outputs import (
    Meter,
    Output,
    Target,
    TensorModel,
    ToldError,
    find_output,
    name_operation,
    refuse_nan,
    resolve_target,
)

SAME = 0.02
"""Two answers about an input are the same within this share; half precision needs some."""
LARGEST_BLOCK = (32 << 20) - 4096
"""The largest block, in bytes, for which glibc still adapts its threshold.

glibc returns freed blocks to the system above a threshold that follows the largest block freed so
far. Below it, the pages of every layer's output are fetched and zeroed again in every pass: a third
of the time of the Fashion-MNIST CNN (0.20 ms an input, 0.13 without). One such block that is never
touched raises the threshold; where there is no glibc, it does nothing.
"""


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

    Attributes:
        evaluator: the model as it is, and the inputs.
        fast: the same by folded norms, once they are proved; see ``begin``.
        hiding: how what is left out of an input becomes absent.
        meter: counts the rows that the model sees.
        notices: what was assumed about the model's outputs.
        operation: what made them, by ``name_operation``.
        pairs: which norms may be folded into which convolutions.
        said: the model's own outputs about the sets it was asked about, [N, R, draws, K] by call.
        unsteady: whether the model answered otherwise about an input the second time, bool [N].
    """

    evaluator: Evaluator
    fast: Evaluator
    hiding: Perturbation | None
    meter: Meter
    notices: tuple[str, ...] = ()
    operation: str = ""
    pairs: Pairs = field(default_factory=list)
    said: list[Tensor] = field(default_factory=list)
    unsteady: Tensor | None = None

    @property
    def whole(self) -> Tensor:
        """The model's outputs for the intact inputs, [N, K]."""
        return self.evaluator.outputs

    @property
    def output(self) -> Output:
        """What these outputs are."""
        return self.evaluator.output

    @property
    def target(self) -> Tensor:
        """The classes explained, [N], or pairs, [N, 2]."""
        return self.evaluator.target

    @property
    def rows(self) -> dict[str, int]:
        """The rows that the model has seen, by purpose."""
        return self.meter.rows

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
        own, hiding = self.evaluator.features, self._need_hiding()
        shape = own.shape if features is None else (features.n,)
        count, per_input = sets.shape[:2]
        if count != len(self.evaluator.x) or tuple(sets.shape[2:]) != tuple(shape):
            raise InputError(
                f"sets must be [N, R, *shape] with N = {len(self.evaluator.x)} inputs and features "
                f"{list(shape)}; got {list(sets.shape)}"
            )
        k, kept = hiding.n_draws, sets.flatten(0, 1)
        points = torch.arange(count * per_input * k, device=sets.device)
        rows = points // (per_input * k)

        def build(part: slice) -> Tensor:
            left = kept[points[part] // k]
            left = left if features is None else features.expand(left)
            return hiding.hide(~own.over_input(left), rows[part], points[part] % k)

        self.meter.purpose = purpose
        said = ask_points(self.fast, rows, build)
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
        evaluator, k = self.evaluator, self._need_hiding().n_draws if ask_empty else 1
        again = evaluator.module is not None
        if not again and not ask_empty:
            return None
        count, first = len(evaluator.x), int(again)
        points = torch.arange(count * (first + k), device=evaluator.x.device)
        rows, place = points // (first + k), points % (first + k) - first
        wide = (-1, *(1,) * (evaluator.x.ndim - 1))

        def build(part: slice) -> Tensor:
            own, which = rows[part], place[part]
            if ask_empty:
                hidden = (which >= 0).view(wide).expand(-1, *evaluator.x.shape[1:])
                return self._need_hiding().hide(hidden, own, which.clamp(min=0))
            return evaluator.x[own] * torch.where(which < 0, 1.0, 0.5).to(evaluator.x).view(wide)

        # Folding is left alone on a GPU with TF32: rounded operands of other weights would make
        # other activations.
        rounds = evaluator.x.is_cuda and torch.backends.cudnn.allow_tf32
        if self.pairs and evaluator.module and not rounds and evaluator.autocast is None:
            folded = TensorModel(fold(evaluator.module, self.pairs), False, self.meter)
            self.fast = replace(evaluator, model=folded, cache={})
        said = ask_points(self.fast, rows, build, 2 if again else 1).view(count, first + k, -1)
        if self.fast is not evaluator and not is_same(said[:, 0], self.whole):
            self.fast = evaluator
            said = ask_points(evaluator, rows, build, 2).view(count, first + k, -1)
        if again:
            apart = (said[:, 0] - self.whole.to(said)).abs().amax(1)
            self.unsteady = apart > SAME * self.whole.abs().amax(1).clamp_min(1).to(said)
        if not ask_empty:
            return None
        self.meter.rows["checks"] -= count * k
        self.meter.rows["questions"] += count * k
        self.said.append(said[:, first:].unsqueeze(1))
        score = self.output.score(said.flatten(0, 1), self.target[rows])
        return score.view(count, first + k)[:, first:].mean(1, keepdim=True)

    def part(self, which: slice) -> Evaluator:
        """The evaluator of some of the inputs, by folded norms where they are the model."""
        if self.unsteady is None:
            self.begin(ask_empty=False)
        return self.fast.select(torch.arange(len(self.evaluator.x))[which].to(self.whole.device))

    def _need_hiding(self) -> Perturbation:
        if self.hiding is None:
            raise InputError("to ask about sets, say how features are absent: hiding=")
        return self.hiding


@contextmanager
def open_model(
    model: Callable[..., Any],
    x: Tensor,
    target: Target = None,
    *,
    features: Features | None = None,
    hiding: Perturbation | None = None,
    args: Any = None,
    baselines: float | Tensor | None = None,
    limit: int | None = None,
    autocast: bool | torch.dtype = False,
    output: str | Output | None = None,
    seed: int = 0,
    meter: Meter | None = None,
) -> Iterator[Probe]:
    """Borrow the model, ask it about the intact inputs, and give the probe of it.

    Args:
        model: a module or callable.
        x: inputs [N, ...].
        target: the class explained, one or one an input; None for the predicted one.
        features: of x; None: found from it.
        hiding: how what is left out becomes absent; needed to ``ask`` about sets.
        args: further arguments of the model; tensors with N entries follow x.
        baselines: what members take for absent.
        limit: the most inputs in one pass; left out, by memory, and on a CPU by its cache.
        autocast: on a GPU, True for bfloat16 or a floating type.
        output: what the model's outputs are; None to find out from the first answers.
        seed: starts every draw of the members.
        meter: counts the rows.
    """
    if limit is not None and limit < 1:
        raise InputError(f"internal_batch_size must be at least 1, got {limit}")
    precision = check_autocast(autocast, x)
    if x.device.type == "cpu":
        torch.empty(LARGEST_BLOCK, dtype=torch.uint8)
    meter = Meter() if meter is None else meter
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        x = x.detach().clone()
        twin = stack.enter_context(borrow(model))
        first = Evaluator(
            TensorModel(twin, check=False, meter=meter),
            x,
            torch.zeros(len(x), dtype=torch.long, device=x.device),
            x.new_zeros(len(x), 1),
            Output("value"),
            Features.of(x) if features is None else features,
            args=() if args is None else args if isinstance(args, tuple) else (args,),
            baselines=baselines,
            absent=None if hiding is None else lambda: _hide_all(hiding, x),
            limit=limit,
            autocast=precision,
            seed=seed,
        )
        try:
            meter.start("questions")
            try:
                found, operation, pairs = _look(first, model)
            except EscapeError:  # its copy calls the original's own layers
                own = stack.enter_context(lend(model))  # type: ignore[arg-type]
                first = replace(first, model=TensorModel(own, check=False, meter=meter))
                found, operation, pairs = _look(first, model)
            meter.start("checks")
            kind = find_output(found.outputs, output, operation)
            found = replace(found, target=resolve_target(found.outputs, target, kind), output=kind)
            notices = tuple(n for n in (kind.notice, found.model.notice) if n)
            for notice in notices:
                warnings.warn(notice, AssumptionWarning, stacklevel=4)
            yield Probe(found, found, hiding, meter, notices, operation, pairs)
        except ToldError as told:
            raise told.error from None


def _look(evaluator: Evaluator, model: Callable[..., Any]) -> tuple[Evaluator, str, Pairs]:
    """Ask about the inputs: the first one watched, the others in chunks that fit.

    The first pass tells the memory that an input takes, what operation makes the outputs, which
    norms may be folded, and whether the twin is closed.
    """
    x, pairs, wrapped = evaluator.x, Pairs(), evaluator.model
    rows = torch.arange(len(x), device=x.device)
    try:
        one = evaluator.arrange(x[:1])
        try:
            with (
                watch(model, wrapped.model),
                watch_norms(wrapped.model) as pairs,
                watch_memory((*wrapped.parameters(), *wrapped.buffers())) as kept,
            ):
                # A copy, as the model may work in place.
                first = evaluator.forward(one.requires_grad_(True).clone(), rows[:1])
        except (SEAError, EscapeError, torch.cuda.OutOfMemoryError):
            raise
        except Exception:  # a model that only runs without gradients, such as one of arrays
            kept = Kept()
            with torch.no_grad():
                first = evaluator.forward(evaluator.arrange(x[:1]), rows[:1])
        found = replace(evaluator, footprint=kept.measure(one), has_gradient=first.requires_grad)
        outputs = [first.detach()]
        others = rows[1:].split(found.chunk(len(x) - 1, gradient=False)) if len(x) > 1 else ()
        for some in others:
            with torch.no_grad():
                outputs.append(found.forward(found.arrange(x[some]), some).to(first))
        found.outputs = torch.cat(outputs)
        refuse_nan(found.outputs)
    except (SEAError, EscapeError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}"
            f"{_find_mismatch(model, x)}: {error}"
        ) from error
    return found, name_operation(first), pairs


def _find_mismatch(model: Any, x: Tensor) -> str:
    """Say how a model and its inputs do not fit together, where that can be seen."""
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if first is None or (first.device == x.device and first.dtype == x.dtype):
        single = find_kind(x) is SERIES and len(x) in (1, 3)
        return " (is the batch axis missing? a single image is x[None])" if single else ""
    return f" (the model is {first.dtype} on {first.device}: move one to the other)"


def _hide_all(hiding: Perturbation, x: Tensor) -> Tensor:
    """What the inputs look like where nothing is left, by every draw: [N, draws, ...]."""
    count, k = len(x), hiding.n_draws
    rows = torch.arange(count, device=x.device).repeat_interleave(k)
    draws = torch.arange(k, device=x.device).repeat(count)
    hidden = torch.ones((), dtype=torch.bool, device=x.device).expand(count * k, *x.shape[1:])
    return hiding.hide(hidden, rows, draws).view(count, k, *x.shape[1:])


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


def ask_points(
    evaluator: Evaluator,
    rows: Tensor,
    build: Callable[[slice], Tensor],
    together: int = 1,
    read: Callable[[Tensor, Tensor], Tensor] = lambda outputs, rows: outputs,
) -> Tensor:
    """Return the model's outputs about P points, [P, K], in chunks that fit into memory.

    Args:
        evaluator: the model and the inputs.
        rows: the input that each point is a variant of, [P].
        build: returns the points [p, ...] of a slice of 0 to P.
        together: so many points at least go into one pass, unless the caller's limit is lower.
        read: what to keep of outputs [p, K] about variants of the inputs [p].
    """
    size = evaluator.chunk(len(rows), gradient=False)
    size, start = max(size, min(together, evaluator.limit or together)), 0
    answers = []
    while start < len(rows):
        part = slice(start, start + size)
        try:
            with torch.no_grad():
                outputs = evaluator.forward(evaluator.arrange(build(part)), rows[part])
        except torch.cuda.OutOfMemoryError:
            evaluator = evaluator.shrink()
            size = min(size, evaluator.limit or 1)
            continue
        wrong, said = outputs.isnan(), "NaN"
        if evaluator.output.kind in ("probabilities", "labels"):
            wrong |= (outputs < -0.01) | (outputs > 1.01)
            said = "NaN, or numbers outside 0 to 1 where probabilities are expected,"
        if bool(wrong.any()):
            raise InputError(
                f"the model returned {said} for {int(wrong.any(1).sum())} of {len(outputs)} inputs "
                "with features hidden, though not for the whole inputs; hide them in another way, "
                "or say what the model's outputs are (output=)"
            )
        answers.append(read(outputs, rows[part]))
        start += size
    return torch.cat(answers) if answers else evaluator.outputs[:0]
