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
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from sea_nn.errors import AssumptionWarning, InputError, SEAError
from sea_nn.features import Features, find_kind
from sea_nn.features.kinds import SERIES
from sea_nn.model import batching
from sea_nn.model.borrowing import (
    EscapeError,
    Pairs,
    borrow,
    fold,
    lend,
    watch,
    watch_norms,
)
from sea_nn.model.evaluator import Evaluator, is_same
from sea_nn.model.outputs import Output, Target, find_output, name_operation, resolve_target, take
from sea_nn.model.wrapped import (
    Meter,
    TensorModel,
    ToldError,
    as_args,
    predict,
    refuse_nan,
    select_args,
)

ScoreKind = Literal["probability", "logit"]
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

    def changed(self) -> Tensor:
        """Return the values that look different when hidden, bool like the inputs."""


@dataclass
class Probe:
    """A model that was opened for some inputs, and has answered about them.

    Attributes:
        evaluator: the model as it is, and the inputs.
        fast: the same by folded norms, once they are proved; see ``begin``.
        features: of the inputs: what sets are about where nothing else is said.
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
    features: Features
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
        return self.evaluator.meaning()

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
        shape = self.features.shape if features is None else (features.n,)
        count, per_input = sets.shape[:2]
        if count != len(self.evaluator.x) or tuple(sets.shape[2:]) != tuple(shape):
            raise InputError(
                f"sets must be [N, R, *shape] with N = {len(self.evaluator.x)} inputs and features "
                f"{list(shape)}; got {list(sets.shape)}"
            )
        hiding = self._need_hiding()
        k, kept = hiding.n_draws, sets.flatten(0, 1)
        points = torch.arange(count * per_input * k, device=sets.device)
        rows = points // (per_input * k)

        def build(part: slice) -> Tensor:
            left = kept[points[part] // k]
            left = left if features is None else features.expand(left)
            return hiding.hide(~self.features.over_input(left), rows[part], points[part] % k)

        said: list[Tensor] = []
        self.meter.purpose = purpose
        answers = ask_points(self.fast, rows, build, said.append)
        if said:
            self.said.append(torch.cat(said).view(count, per_input, k, -1))
        return answers.score.view(count, per_input, k).mean(2)

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

        def build(part: slice) -> Tensor:
            own, which = rows[part], place[part]
            if ask_empty:
                hidden = (which >= 0).view(-1, *(1,) * (evaluator.x.ndim - 1))
                hidden = hidden.expand(-1, *evaluator.x.shape[1:])
                return self._need_hiding().hide(hidden, own, which.clamp(min=0))
            share = torch.where(which < 0, 1.0, 0.5).to(evaluator.x)
            return evaluator.x[own] * share.view(-1, *(1,) * (evaluator.x.ndim - 1))

        def run(by: Evaluator) -> tuple[PointOutputs, Tensor]:
            said: list[Tensor] = []
            answers = ask_points(by, rows, build, said.append, 2 if again else 1)
            return answers, torch.cat(said).view(count, first + k, -1)

        folded = self._fold()
        answers, said = run(evaluator if folded is None else folded)
        if folded is not None:
            if is_same(said[:, 0], self.whole):
                self.fast = folded
            else:
                answers, said = run(evaluator)
        if again:
            apart = (said[:, 0] - self.whole.to(said)).abs().amax(1)
            self.unsteady = apart > SAME * self.whole.abs().amax(1).clamp_min(1).to(said)
        if not ask_empty:
            return None
        self.meter.rows["checks"] -= count * k
        self.meter.rows["questions"] += count * k
        self.said.append(said[:, first:].unsqueeze(1))
        return answers.score.view(count, first + k)[:, first:].mean(1, keepdim=True)

    def part(self, which: slice) -> Evaluator:
        """The evaluator of some of the inputs, by folded norms where they are the model."""
        if self.unsteady is None:
            self.begin(ask_empty=False)
        return self.fast.select(torch.arange(len(self.evaluator.x))[which].to(self.whole.device))

    def _need_hiding(self) -> Perturbation:
        if self.hiding is None:
            raise InputError("to ask about sets, say how features are absent: hiding=")
        return self.hiding

    def _fold(self) -> Evaluator | None:
        """The model with its norms folded, not proved yet; None if it has none, or on a GPU TF32.

        Rounded operands of other weights would make other activations.
        """
        plain, module = self.evaluator, self.evaluator.module
        rounds = plain.x.is_cuda and torch.backends.cudnn.allow_tf32
        if not self.pairs or module is None or rounds or plain.autocast is not None:
            return None
        model = TensorModel(fold(module, self.pairs), check=False, meter=self.meter)
        return replace(plain, model=model, cache={})


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
        batching.keep_freed_memory()
    meter = Meter() if meter is None else meter
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        x = x.detach().clone()
        features = Features.of(x) if features is None else features
        nobody = torch.zeros(len(x), dtype=torch.long, device=x.device)
        twin = stack.enter_context(borrow(model))
        first = Evaluator(
            TensorModel(twin, check=False, meter=meter),
            x,
            nobody,
            x.new_zeros(len(x), 1),
            args=as_args(args),
            baselines=baselines,
            features=features,
            feature_mask=features.mask_input(),
            limit=limit,
            autocast=precision,
            seed=seed,
            kind=features.kind,
        )
        try:
            meter.start("questions")
            try:
                look = _look(first, model)
            except EscapeError:  # its copy calls the original's own layers
                own = stack.enter_context(lend(model))  # type: ignore[arg-type]
                first = replace(first, model=TensorModel(own, check=False, meter=meter))
                look = _look(first, model)
            meter.start("checks")
            kind = find_output(look.outputs, output, look.operation)
            notices = tuple(n for n in (kind.notice, first.model.notice) if n)
            for notice in notices:
                warnings.warn(notice, AssumptionWarning, stacklevel=4)
            found = replace(
                first,
                target=resolve_target(look.outputs, target, kind),
                outputs=look.outputs,
                output=kind,
                footprint=look.footprint,
                has_gradient=look.has_gradient,
                absent=None if hiding is None else lambda: _hide_all(hiding, x),
            )
            yield Probe(
                *(found, found, features, hiding, meter, notices, look.operation, look.pairs)
            )
        except ToldError as told:
            raise told.error from None


@dataclass(frozen=True)
class _Look:
    """What the first pass over the intact inputs told."""

    outputs: Tensor
    footprint: batching.Footprint
    has_gradient: bool
    operation: str
    pairs: Pairs


def _look(evaluator: Evaluator, model: Callable[..., Any]) -> _Look:
    """Ask about the inputs: the first one watched, the others in chunks that fit.

    The first pass tells the memory that an input takes, what operation makes the outputs, which
    norms may be folded, and whether the twin is closed.
    """
    x, pairs = evaluator.x, Pairs()
    wrapped, none = evaluator.model, torch.zeros(1, dtype=torch.long, device=x.device)
    try:
        one = evaluator.arrange(x[:1])
        try:
            with (
                watch(model, wrapped.model),
                watch_norms(wrapped.model) as pairs,
                batching.watch_memory((*wrapped.parameters(), *wrapped.buffers())) as kept,
            ):
                # A copy, as the model may work in place.
                first = evaluator.forward(one.requires_grad_(True).clone(), none)
            need = kept.measure(one)
        except (SEAError, EscapeError, torch.cuda.OutOfMemoryError):
            raise
        except Exception:  # a model that only runs without gradients, such as one of arrays
            need = batching.Kept().measure(one)
            with torch.no_grad():
                first = evaluator.forward(evaluator.arrange(x[:1]), none)
        rest = []
        if len(x) > 1:
            size = batching.chunk_size(len(x) - 1, need, False, x.device, evaluator.limit)
            args = select_args(evaluator.args, torch.arange(1, len(x)), len(x))
            with evaluator.precision():
                rest = [predict(wrapped, evaluator.arrange(x[1:]), args, batch_size=size)]
        outputs = torch.cat([first.detach(), *(part.to(first) for part in rest)])
        refuse_nan(outputs)
    except (SEAError, EscapeError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"the model could not run on x, {x.dtype} {list(x.shape)} on {x.device}"
            f"{_find_mismatch(model, x)}: {error}"
        ) from error
    return _Look(outputs, need, first.requires_grad, name_operation(first), pairs)


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
    hidden = torch.ones((count * k, *(1,) * (x.ndim - 1)), dtype=torch.bool, device=x.device)
    empty = hiding.hide(hidden.expand(-1, *x.shape[1:]), rows, draws)
    return empty.view(count, k, *x.shape[1:])


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


@dataclass(frozen=True)
class PointOutputs:
    """What the model says about the explained class, in tensors of one shape.

    Attributes:
        score: its probability; of a model of values, the value.
        logit: the model's output itself.
        predicted: whether the model predicts the class; False of a model of values.
    """

    score: Tensor
    logit: Tensor
    predicted: Tensor

    @classmethod
    def empty(cls, shape: tuple[int, ...], like: Tensor) -> PointOutputs:
        """Return room for answers of this shape, at least in single precision."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return cls(
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=dtype, device=like.device),
            torch.empty(shape, dtype=torch.bool, device=like.device),
        )

    @classmethod
    def read(cls, outputs: Tensor, target: Tensor, output: Output) -> PointOutputs:
        """Read outputs [P, K], ``output`` says what they are, for the columns ``target``."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        logit = take(outputs, target)
        if output.kind == "value":
            return cls(logit, logit, torch.zeros_like(logit, dtype=torch.bool))
        return cls(output.score(outputs, target), logit, output.predicts(outputs, target))

    def map(self, change: Callable[[Tensor], Tensor]) -> PointOutputs:
        """Return the answers with every tensor changed alike."""
        return PointOutputs(change(self.score), change(self.logit), change(self.predicted))

    def put(self, place: slice | Tensor, other: PointOutputs) -> None:
        """Write other answers into these."""
        self.score[place] = other.score
        self.logit[place] = other.logit
        self.predicted[place] = other.predicted

    def read_as(self, kind: ScoreKind) -> Tensor:
        """Return the answers as the score of a curve."""
        if kind not in ("probability", "logit"):
            raise InputError(f"score must be 'probability' or 'logit'; got {kind!r}")
        return self.score if kind == "probability" else self.logit


def ask_points(
    evaluator: Evaluator,
    rows: Tensor,
    build: Callable[[slice], Tensor],
    keep: Callable[[Tensor], None] = lambda outputs: None,
    together: int = 1,
) -> PointOutputs:
    """Return the model's answers about P points, in chunks that fit into memory.

    Args:
        evaluator: the model and the inputs.
        rows: the input that each point is a variant of, [P].
        build: returns the points [p, ...] of a slice of 0 to P.
        keep: is given the model's own outputs [p, K], part by part.
        together: so many points at least go into one pass, unless the caller's limit is lower.
    """
    answers = PointOutputs.empty((len(rows),), evaluator.x)
    size = evaluator.chunk(len(rows), gradient=False)
    size, start = max(size, min(together, evaluator.limit or together)), 0
    while start < len(rows):
        part = slice(start, start + size)
        try:
            with torch.no_grad():
                outputs = evaluator.forward(evaluator.arrange(build(part)), rows[part])
        except torch.cuda.OutOfMemoryError:
            evaluator = evaluator.shrink()
            size = min(size, evaluator.limit or 1)
            continue
        answers.put(
            part, PointOutputs.read(outputs, evaluator.target[rows[part]], evaluator.meaning())
        )
        keep(outputs)
        start += size
    _check_answers(answers, evaluator.meaning())
    return answers


def ask_hidden(evaluator: Evaluator, perturbation: Perturbation) -> PointOutputs:
    """Return the answers about the inputs hidden altogether, [N]."""
    rows = torch.arange(len(evaluator.x), device=evaluator.x.device)

    def build(part: slice) -> Tensor:
        hidden = torch.ones_like(evaluator.x[rows[part]], dtype=torch.bool)
        return perturbation.hide(hidden, rows[part])

    return ask_points(evaluator, rows, build)


def _check_answers(answers: PointOutputs, output: Output) -> None:
    """Refuse answers that are no numbers, or no probabilities where these are expected."""
    wrong, said = answers.score.isnan() | answers.logit.isnan(), "NaN"
    if output.kind in ("probabilities", "labels"):
        wrong |= (answers.score < -0.01) | (answers.score > 1.01)
        said = "NaN, or numbers outside 0 to 1 where probabilities are expected,"
    if bool(wrong.any()):
        raise InputError(
            f"the model returned {said} for {int(wrong.sum())} of {wrong.numel()} inputs with "
            "features hidden, though not for the whole inputs; hide them in another way, or say "
            "what the model's outputs are (output=)"
        )
