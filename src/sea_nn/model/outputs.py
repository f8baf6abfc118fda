"""What a model's outputs [N, K] mean, and which column of them is explained.

>>> outputs = torch.tensor([[1.0, 3.0]])
>>> resolve_target(outputs, None)
tensor([1])
>>> find_output(outputs).score(outputs, torch.tensor([1]))
tensor([0.8808])
>>> TensorModel(lambda x: {"logits": x, "hidden": None})(outputs)
tensor([[1., 3.]])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, KindError, MemberError
from sea_nn.model.adapters import ARRAYS

Target = int | Sequence[int] | tuple[int, int] | Sequence[tuple[int, int]] | Tensor | None
"""A class, or a list of one an input; a tuple (a, b): a and not b, or a list of such pairs; None:
the predicted class. As a tensor, int64 [N] or, of pairs, [N, 2]."""
OUTPUTS = {
    "logits": "one column a class; their softmax is the classes' probabilities",
    "probabilities": "one column a class, already probabilities: rows sum to 1",
    "sigmoid": "each column the logit of a label of its own, or the only one",
    "labels": "each column already the probability of a label of its own",
    "value": "a number, as of a regression",
}
SUM_TOLERANCE = 1e-4
SAID = "said by the caller"
BOUNDED = ("Sigmoid", "Softmax", "Hardsigmoid", "Clamp", "Exp")
"""Operations, as autograd calls them, whose results are probabilities where they lie in [0, 1]."""
LINEAR = ("Addmm", "Mm")
"""Operations whose results are logits, even if these happen to sum to 1."""


@dataclass(frozen=True)
class Output:
    """What a model's outputs [N, K] are. Nothing else turns outputs into probabilities.

    Gradients and fits (LIME, Kernel SHAP, occlusion) explain the model's own output, `take`: the
    logit where there is one, as Captum does; of "probabilities" the probability, whose gradients
    fade where the model is sure.

    Attributes:
        kind: a name from `OUTPUTS`.
        notice: what was assumed and how to say otherwise, where nobody said what they are.
        found: how it was found out, a sentence.

    >>> Output("sigmoid").score(torch.tensor([[0.0]]), torch.tensor([0]))
    tensor([0.5000])
    """

    kind: str
    notice: str = ""
    found: str = field(default=SAID, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in OUTPUTS:
            raise InputError(
                f"output must be one of {', '.join(map(repr, OUTPUTS))}, or None to find out; got "
                f"{self.kind!r}"
            )

    @property
    def unit(self) -> str:
        """What a score is: "probability" or "value"."""
        return "value" if self.kind == "value" else "probability"

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the probability of every column, or the values themselves, [N, K]."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.kind == "logits":
            return outputs.softmax(1)
        return outputs.sigmoid() if self.kind == "sigmoid" else outputs

    def score(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what the model says of the columns `target`: what is shown, [N].

        Of pairs (a, b), [N, 2], it is the probability of a if it can only be a or b, whose log-odds
        are the difference of the logits; of values it is their difference.

        >>> Output("logits").score(torch.tensor([[2.0, 2.0, 9.0]]), torch.tensor([[0, 1]]))
        tensor([0.5000])
        """
        if target.ndim == 1 or self.kind == "value":
            return take(self.scores(outputs), target)
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.kind == "probabilities":
            outputs = outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
        elif self.kind == "labels":
            outputs = outputs.logit(torch.finfo(outputs.dtype).eps)
        return take(outputs, target).sigmoid()

    def predicts(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return whether the model predicts the classes `target`, bool [N].

        Of classes that exclude each other, the largest output; of others, and of pairs, a
        probability above 0.5.
        """
        self.check_class()
        if self.kind in ("sigmoid", "labels") or outputs.shape[1] == 1 or target.ndim == 2:
            return self.score(outputs, target) > 0.5
        return outputs.argmax(1) == target

    def check_class(self) -> None:
        """Refuse outputs that predict no class."""
        if self.kind == "value":
            raise InputError(
                "whether the predicted class stays cannot be asked: the model's output is a value. "
                "Take deletion or insertion, which follow the value itself"
            )


def take(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the column `target` [N] of outputs [N, K]: what gradients explain, [N].

    Of pairs of columns, [N, 2], it is the first less the second.
    """
    if target.ndim == 1:
        return outputs.gather(1, target.unsqueeze(1)).squeeze(1)
    first, second = outputs.gather(1, target).unbind(1)
    return first - second


def find_output(
    outputs: Tensor, output: str | Output | None = None, last_operation: str = ""
) -> Output:
    """Return what outputs [N, K] are: what the caller says, or what they look like.

    Rows of probabilities that sum to 1 are taken for such, and a single column for the logit of a
    sigmoid, or for a probability if all of it lies in [0, 1]. Several columns in [0, 1] that do not
    sum to 1 are taken for labels of their own if a sigmoid, or nobody knows what, made them; each
    of these with a notice. Several columns are logits otherwise.

    Args:
        outputs: the model's answers about the inputs.
        output: what they are, if the caller says so.
        last_operation: what made them, as autograd calls it, "" if unknown: logits of few inputs
            may look like probabilities.
    """
    output = output if isinstance(output, Output | None) else Output(output)
    if output is not None and output.kind not in ("probabilities", "labels"):
        return output
    rows = outputs.detach().to(torch.promote_types(outputs.dtype, torch.float32))
    room = max(SUM_TOLERANCE, 4 * torch.finfo(outputs.dtype).eps)
    inside = bool(((rows >= -room) & (rows <= 1 + room)).all())
    one = outputs.shape[1] == 1
    sums = inside and bool(((rows.sum(1) - 1).abs() <= room).all())
    if output is not None:
        if inside if output.kind == "labels" or one else sums:
            return output
        adds = "" if one or output.kind == "labels" else " that sum to 1"
        raise InputError(
            f"{output.kind} are values from 0 to 1{adds}, and this model's outputs run from "
            f"{float(rows.min()):.3g} to {float(rows.max()):.3g}"
            f"{f', their sums to {float(rows.sum(1).max()):.3g}' if adds else ''}; say what they "
            'are: output="logits" (a softmax follows), "sigmoid" (each a logit), "labels" (each a '
            'probability) or "value"'
        )
    bounded = (last_operation or BOUNDED[0]).startswith(BOUNDED)
    if one and inside and bounded:
        notice = (
            "the model has one output, from 0 to 1 here: taken for a probability. Say so with "
            'output="probabilities", or output="sigmoid" for a logit, "value" for a regression'
        )
        return Output("probabilities", notice, "one column, from 0 to 1")
    if one:
        notice = (
            "the model has one output: taken for a logit, whose sigmoid is a probability. Say so "
            'with output="sigmoid", or output="value" for a regression'
        )
        return Output("sigmoid", notice, "one column")
    if last_operation.startswith(LINEAR) or not inside:
        return Output("logits", "", f"{outputs.shape[1]} columns, and nothing says otherwise")
    if sums:
        notice = (
            "the model's outputs sum to 1: taken for probabilities, so no softmax follows. Say so "
            'with output="probabilities"; without its last softmax, gradients would not fade'
        )
        return Output("probabilities", notice, "rows from 0 to 1 that sum to 1")
    if bounded:
        notice = (
            "the model's outputs lie between 0 and 1 and do not sum to 1: taken for a probability "
            'of each label, as after a sigmoid. Say so with output="labels", or output="logits" '
            'where a softmax is to follow, "value" for a regression'
        )
        return Output("labels", notice, "columns from 0 to 1 that do not sum to 1")
    return Output("logits", "", "columns from 0 to 1 that neither a sigmoid nor a softmax made")


def read_both_ways(outputs: Tensor, target: Tensor) -> tuple[float, float]:
    """What logits [N, K] say of the first input's class: as one of all, and as its own label.

    >>> softmax, sigmoid = read_both_ways(torch.tensor([[0.0, 2.0, 2.0]]), torch.tensor([1]))
    >>> round(softmax, 2), round(sigmoid, 2)
    (0.47, 0.88)
    """
    first = outputs[:1], target[:1]
    return float(Output("logits").score(*first)), float(Output("sigmoid").score(*first))


def resolve_target(outputs: Tensor, target: Target, output: Output | None = None) -> Tensor:
    """Return the class to explain for every input as a tensor [N], or [N, 2] of pairs.

    Args:
        outputs: [N, classes].
        target: None (the predicted class), one class for all, or a list of one for each input; or
            the same of pairs: a tuple (a, b) for all, or a list of them.
        output: what the outputs are: of several values, none is the predicted one.
    """
    n_inputs, n_classes = outputs.shape
    if target is None:
        if output is not None and output.kind == "value" and n_classes > 1:
            raise InputError(
                f"the model's outputs are {n_classes} values, and none of them is predicted: say "
                f"which one to explain, target=0 to {n_classes - 1}"
            )
        return outputs.argmax(1)
    try:
        classes = torch.as_tensor(target, device=outputs.device)
    except (TypeError, ValueError, RuntimeError):
        classes = outputs[:0]
    if classes.is_floating_point() or classes.dtype == torch.bool:
        got = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise KindError(
            f"target must be a class number, a list or tensor of {n_inputs} of them, or None "
            f"for the predicted class; got {got}"
        )
    classes = classes.to(torch.long)
    if classes.ndim == 0 or classes.shape == (1,):
        classes = classes.reshape(1).expand(n_inputs).clone()
    elif isinstance(target, tuple) and classes.shape == (2,):
        classes = classes.expand(n_inputs, 2).clone()
    elif isinstance(target, tuple) and classes.ndim == 1:
        raise InputError(
            f"a tuple is a pair, (a, b): why a and not b; for one class an input give a list, "
            f"{list(target)}"
        )
    if classes.shape not in ((n_inputs,), (n_inputs, 2)):
        raise InputError(
            f"target must name one class, or a pair (a, b), for each of the {n_inputs} inputs; "
            f"got shape {tuple(classes.shape)}"
        )
    if classes.ndim == 2 and bool((classes[:, 0] == classes[:, 1]).any()):
        raise InputError("the two classes of a target (a, b) must differ")
    wrong = classes[(classes < 0) | (classes >= n_classes)]
    if len(wrong):
        valid = f"0 to {n_classes - 1}" if n_classes > 1 else "0 alone"
        raise InputError(
            f"target {int(wrong[0])} is out of range: this model has {n_classes} "
            f"output{'s' if n_classes > 1 else ''}, so valid targets are {valid}"
        )
    return classes


Progress = Callable[[str, int, int], None]
"""Called with what is going on (a member's name, "questions"), rows done and rows in all."""
PURPOSES = ("members", "questions", "checks")
READ_IT = (
    "say which number of the output to explain by a function, such as "
    "target=lambda output: output[:, 1].sum((1, 2))"
)


class ToldError(BaseException):
    """Carries what went wrong in the caller's progress function past everyone."""


@dataclass
class Meter:
    """Counts the rows that a model sees, by purpose, and tells the caller how far things are.

    Attributes:
        limit: the most rows in all; the row beyond is refused before the model sees it.
        progress: the caller's function, if there is one.
        total: the rows there will be, for ``progress``.
        rows: those that the model has seen, by purpose.
        purpose: what rows are counted for now.
        label: what ``progress`` is told of.
        done: the rows that ``progress`` is told of: those that what is done was expected to take.
        until: what ``done`` is at most until something else starts.
    """

    limit: int | None = None
    progress: Progress | None = None
    total: int = 0
    rows: dict[str, int] = field(default_factory=partial(dict.fromkeys, PURPOSES, 0))  # type: ignore[arg-type]
    purpose: str = "checks"
    label: str = ""
    done: int = 0
    until: int = 0

    @property
    def seen(self) -> int:
        """The rows that the model has seen."""
        return sum(self.rows.values())

    def start(self, purpose: str, label: str = "", price: int = 0) -> None:
        """Count rows for a purpose from now on, under a label of which ``price`` are expected."""
        self.purpose, self.label, self.until = purpose, label, self.done + price

    def finish(self) -> None:
        """What was started is done, for whatever it has cost; checks come next."""
        self.done = self.until
        self.add(0)
        self.purpose, self.label = "checks", ""

    def add(self, count: int) -> None:
        """Count rows that the model is about to see."""
        if self.limit is not None and self.seen + count > self.limit:
            raise MemberError(
                f"{self.label or 'the explanation'} asks the model for more rows than the budget "
                f"of {self.limit} has: a member takes more than it says; give a callable as "
                "Member(name, callable, evaluations=...) of sea_nn.members.registry"
            )
        self.rows[self.purpose] += count
        self.done = min(self.done + count, self.until)
        if self.progress is None or not self.label:
            return
        try:
            self.progress(self.label, self.done, self.total)
        except Exception as error:
            raise ToldError(error) from error


class TensorModel(nn.Module):
    """Wrap a model so that its output is always one tensor [N, K], whatever it means.

    Understood are a tensor, a mapping with the key "logits", an object with `.logits` (Hugging
    Face), a tuple whose first item is the tensor, and a list of one tensor. A score per input,
    [N] or [N, 1], becomes [N, 1].

    Args:
        model: a module or any callable.
        meter: counts the rows.

    Attributes:
        module: the model if it is a module, None for a plain function.
        notice: what was assumed of the output's form, with the line that says it; "" if nothing.

    Raises:
        KindError: the output is no tensor and holds none where one was expected.
        InputError: the output has another shape.
    """

    def __init__(self, model: Callable[..., Any], meter: Meter | None = None) -> None:
        super().__init__()
        self.model, self.meter, self.notice = model, Meter() if meter is None else meter, ""
        self.module = model if isinstance(model, nn.Module) else None

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return the outputs [N, K] for `x` [N, ...]; `args` go to the model unchanged."""
        self.meter.add(len(x))
        output = self.model(x, *args)
        mapping, count = isinstance(output, Mapping), len(x)
        found = output.get("logits") if mapping else getattr(output, "logits", output)
        if (isinstance(found, tuple) and found) or (isinstance(found, list) and len(found) == 1):
            found = found[0]
        if not isinstance(found, Tensor):
            arrays = ARRAYS if type(output).__module__.split(".")[0] == "numpy" else READ_IT
            raise KindError(
                f"the model returned {type(output).__name__}; expected a tensor [N, classes], a "
                'mapping with "logits", an object with .logits, or a tuple whose first item is '
                f"the tensor: {arrays}, or wrap the model so that it returns class scores"
            )
        if isinstance(output, tuple) and sum(isinstance(item, Tensor) for item in output) > 1:
            self.notice = (
                f"the model returned several tensors ({len(output)} items): the "
                "first was taken. Explain another by a function, such as target=lambda output: "
                "output[1][:, 3], or wrap the model so that it returns the one that is meant"
            )
        if found.ndim == 1 and len(found) == count:
            found = found.unsqueeze(1)
        if found.ndim != 2 or len(found) != count or found.shape[1] == 0:
            raise InputError(
                f"the model returned a tensor of shape {list(found.shape)} for {count} inputs; "
                f"expected [N, classes], or [N] for one score an input. Of dense outputs {READ_IT}"
                "; or wrap the model so that it returns class scores"
            )
        if not found.is_floating_point():
            raise KindError(f"the model returned {found.dtype}; expected floating-point scores")
        return found


def refuse_nan(outputs: Tensor) -> None:
    """Refuse outputs [N, K] that hold no numbers."""
    bad = outputs.isnan().any(1)
    if bool(bad.any()):
        raise InputError(
            f"the model returned NaN for {int(bad.sum())} of {len(outputs)} inputs (first: input "
            f"{int(bad.nonzero()[0])}); check the input's scale and the model's weights"
        )


def predict(model: Callable[..., Any], x: Tensor, batch_size: int = 32) -> Tensor:
    """Return the outputs [N, K] for `x` without gradients, `batch_size` inputs at a time."""
    with torch.no_grad():
        # A copy, because a model may work in place on what it is given.
        outputs = torch.cat([TensorModel(model)(some.clone()) for some in x.split(batch_size)])
    refuse_nan(outputs)
    return outputs
