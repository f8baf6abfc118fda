"""Make any model's answer a tensor [N, K], say what it means, and choose the column to explain.

>>> import torch
>>> model = lambda x: {"logits": x, "hidden": None}
>>> outputs = TensorModel(model)(torch.tensor([[1.0, 3.0]]))
>>> resolve_target(outputs, None)
tensor([1])
>>> find_output(outputs).score(outputs, torch.tensor([1]))
tensor([0.8808])
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import AssumptionWarning, InputError, KindError

Target = int | Sequence[int] | tuple[int, int] | Sequence[tuple[int, int]] | Tensor | None
"""A class, or a list of one an input; a tuple (a, b): a and not b, or a list of such pairs; None:
the predicted class. As a tensor, int64 [N] or, of pairs, [N, 2]."""
OUTPUTS = {
    "logits": "one column a class; their softmax is the classes' probabilities",
    "probabilities": "one column a class, already probabilities: rows sum to 1",
    "sigmoid": "each column the logit of a label of its own, or the only one",
    "value": "a number, as of a regression",
}
SUM_TOLERANCE = 1e-4
BOUNDED = ("Sigmoid", "Softmax", "Hardsigmoid", "Clamp", "Exp")
"""Operations, as autograd calls them, whose results are probabilities where they lie in [0, 1]."""
LINEAR = ("Addmm", "Mm")
"""Operations whose results are logits, even if these happen to sum to 1."""
SHAPING = ("View", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Index", "ToCopy", "Clone")


@dataclass(frozen=True)
class Output:
    """What a model's outputs [N, K] are. Nothing else turns outputs into probabilities.

    Gradients and fits (LIME, Kernel SHAP, occlusion) explain the model's own output, `take`: the
    logit where there is one, as Captum does; of "probabilities" the probability, whose gradients
    fade where the model is sure.

    Attributes:
        kind: a name from `OUTPUTS`.
        notice: what was assumed and how to say otherwise, where nobody said what they are.

    >>> Output("sigmoid").score(torch.tensor([[0.0]]), torch.tensor([0]))
    tensor([0.5000])
    """

    kind: str
    notice: str = ""

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
        return take(outputs, target).sigmoid()

    def predicts(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return whether the model predicts the classes `target`, bool [N].

        Of classes that exclude each other, the largest output; of others, and of pairs, a
        probability above 0.5.
        """
        self.check_class()
        if self.kind == "sigmoid" or outputs.shape[1] == 1 or target.ndim == 2:
            return self.score(outputs, target) > 0.5
        return outputs.argmax(1) == target

    def check_class(self) -> None:
        """Refuse outputs that predict no class."""
        if self.kind == "value":
            raise InputError(
                "whether the predicted class stays cannot be asked: the model's output is a value. "
                "Take deletion or insertion, which follow the value itself"
            )

    def warn(self) -> None:
        """Warn of what was assumed, if anything was."""
        if self.notice:
            warnings.warn(self.notice, AssumptionWarning, stacklevel=3)


def find_last_operation(model: Callable[..., Any], x: Tensor, args: tuple[Any, ...]) -> str:
    """Return autograd's name of what makes the outputs of x, past changes of shape; "" if none."""
    try:
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_(True)
            made = model(leaf.clone(), *args).grad_fn
    except Exception:  # a model that cannot be differentiated, such as one of NumPy's
        return ""
    while made is not None and made.name().startswith(SHAPING):
        made = made.next_functions[0][0]
    return "" if made is None else str(made.name())


def take(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the column `target` [N] of outputs [N, K]: what gradients explain, [N].

    Of pairs of columns, [N, 2], it is the first less the second.
    """
    if target.ndim == 1:
        return outputs.gather(1, target.unsqueeze(1)).squeeze(1)
    first, second = outputs.gather(1, target).unbind(1)
    return first - second


def find_output(
    outputs: Tensor,
    output: "str | Output | None" = None,
    last_operation: Callable[[], str] = lambda: "",
) -> Output:
    """Return what outputs [N, K] are: what the caller says, or what they look like.

    Rows of probabilities that sum to 1 are taken for such, and a single column for the logit of a
    sigmoid, or for a probability if all of it lies in [0, 1]; each with a notice. Several columns
    are logits otherwise.

    Args:
        outputs: the model's answers about the inputs.
        output: what they are, if the caller says so.
        last_operation: names what made them, "" if unknown: logits of few inputs may look alike.
    """
    if isinstance(output, str):
        output = Output(output)
    elif not isinstance(output, Output | None):
        raise KindError(f"output must be one of {', '.join(OUTPUTS)}; got {type(output).__name__}")
    if output is not None and output.kind != "probabilities":
        return output
    exact = torch.promote_types(outputs.dtype, torch.float32)
    rows = outputs.detach().to(exact)
    room = max(SUM_TOLERANCE, 4 * torch.finfo(outputs.dtype).eps)
    inside = bool(((rows >= -room) & (rows <= 1 + room)).all())
    one = outputs.shape[1] == 1
    fits = inside and (one or bool(((rows.sum(1) - 1).abs() <= room).all()))
    if output is not None:
        if fits:
            return output
        raise InputError(
            f"probabilities are values from 0 to 1{'' if one else ' that sum to 1'}, and this "
            f"model's outputs run from {float(rows.min()):.3g} to {float(rows.max()):.3g}"
            f"{'' if one else f', their sums to {float(rows.sum(1).max()):.3g}'}; say what they "
            'are: output="logits" (a softmax follows), "sigmoid" (each a logit) or "value"'
        )
    if one and fits and (last_operation() or BOUNDED[0]).startswith(BOUNDED):
        return Output(
            "probabilities",
            "the model has one output, from 0 to 1 here: taken for a probability. Say so with "
            'output="probabilities", or output="sigmoid" for a logit, "value" for a regression',
        )
    if one:
        return Output(
            "sigmoid",
            "the model has one output: taken for a logit, whose sigmoid is a probability. Say so "
            'with output="sigmoid", or output="value" for a regression',
        )
    if fits and not last_operation().startswith(LINEAR):
        return Output(
            "probabilities",
            "the model's outputs sum to 1: taken for probabilities, so no softmax follows. Say so "
            'with output="probabilities"; without its last softmax, gradients would not fade',
        )
    return Output("logits")


class TensorModel(nn.Module):
    """Wrap a model so that its output is always one tensor [N, K], whatever it means.

    Understood are a tensor, a mapping with the key "logits", an object with `.logits` (Hugging
    Face), a tuple whose first item is the tensor, and a list of one tensor. A score per input,
    [N] or [N, 1], becomes [N, 1].

    Args:
        model: a module or any callable.
        check: refuse NaN (on a GPU this waits for the result).

    Raises:
        KindError: the output is no tensor and holds none where one was expected.
        InputError: the output has another shape, or NaN in it.
    """

    def __init__(self, model: Callable[..., Any], check: bool = True) -> None:
        super().__init__()
        self.model = model
        self.check = check

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return the outputs [N, K] for `x` [N, ...]; `args` go to the model unchanged."""
        outputs = _to_matrix(_find_tensor(self.model(x, *args)), len(x))
        if self.check:
            _refuse_nan(outputs)
        return outputs


def predict(
    model: Callable[..., Any],
    x: Tensor,
    additional_forward_args: Any = None,
    *,
    batch_size: int = 32,
) -> Tensor:
    """Return the outputs [N, K] for `x` without gradients, `batch_size` inputs at a time.

    The model is called in the mode it is in: put it in eval mode first, or `borrow` it.
    """
    if x.ndim < 2 or len(x) == 0:
        raise InputError(
            f"x must hold at least one input, [N, ...] with N >= 1; got shape {tuple(x.shape)}"
        )
    inner = model.model if isinstance(model, TensorModel) else model
    wrapped = TensorModel(inner, check=False)
    args = as_args(additional_forward_args)
    with torch.no_grad():
        # A copy, because a model may work in place on what it is given.
        parts = [
            wrapped(x[rows].clone(), *select_args(args, rows, len(x)))
            for rows in torch.arange(len(x), device=x.device).split(max(1, batch_size))
        ]
    answers = torch.cat(parts)
    _refuse_nan(answers)
    return answers


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
    if isinstance(target, Tensor) and (target.is_floating_point() or target.dtype == torch.bool):
        raise KindError(f"target must hold whole class numbers, got a tensor of {target.dtype}")
    if isinstance(target, bool | float | str):
        raise KindError(
            f"target must be a class number, a list or tensor of {n_inputs} of them, or None "
            f"for the predicted class; got {target!r}"
        )
    try:
        classes = torch.as_tensor(target, device=outputs.device).to(torch.long)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(
            f"target must be a class number, a list or tensor of {n_inputs} of them, or None "
            f"for the predicted class; got {type(target).__name__}"
        ) from error
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


def as_args(additional_forward_args: Any) -> tuple[Any, ...]:
    """Return the additional forward arguments as a tuple; None means there are none."""
    if additional_forward_args is None:
        return ()
    if isinstance(additional_forward_args, tuple):
        return additional_forward_args
    return (additional_forward_args,)


def select_args(args: tuple[Any, ...], rows: Tensor, n_inputs: int) -> tuple[Any, ...]:
    """Return `args` for the inputs `rows`: tensors with one entry an input follow the input."""
    return tuple(
        arg[rows.to(arg.device)]
        if isinstance(arg, Tensor) and arg.ndim > 0 and len(arg) == n_inputs
        else arg
        for arg in args
    )


def _find_tensor(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        if isinstance(output.get("logits"), Tensor):
            return output["logits"]  # type: ignore[no-any-return]
        keys = ", ".join(map(repr, output)) or "none"
        raise KindError(
            f'the model returned a mapping without a tensor under "logits" (keys: {keys}); '
            "wrap it so that it returns the class scores"
        )
    if isinstance(getattr(output, "logits", None), Tensor):
        return output.logits  # type: ignore[no-any-return]
    if isinstance(output, tuple) and output and isinstance(output[0], Tensor):
        return output[0]
    if isinstance(output, list) and len(output) == 1 and isinstance(output[0], Tensor):
        return output[0]
    if isinstance(output, list):
        kinds = ", ".join(_describe(item) for item in output)
        raise KindError(
            f"the model returned a list of {len(output)} items ({kinds}); wrap it so that it "
            "returns the one [N, classes] tensor to explain"
        )
    raise KindError(
        f"the model returned {_describe(output)}; expected a tensor [N, classes], a mapping with "
        '"logits", an object with .logits, or a tuple whose first item is the tensor'
    )


def _describe(item: Any) -> str:
    if isinstance(item, Tensor):
        return f"tensor {list(item.shape)}"
    return f"{type(item).__name__}" if item is not None else "None"


def _to_matrix(output: Tensor, n_inputs: int) -> Tensor:
    if output.ndim == 1 and len(output) == n_inputs:
        output = output.unsqueeze(1)
    if output.ndim != 2 or len(output) != n_inputs or output.shape[1] == 0:
        raise InputError(
            f"the model returned a tensor of shape {list(output.shape)} for {n_inputs} inputs; "
            "expected [N, classes], or [N] for one score an input. Wrap the model so that it "
            "returns class scores (for dense outputs: select or pool the positions to explain)"
        )
    if not output.is_floating_point():
        raise KindError(f"the model returned {output.dtype}; expected floating-point scores")
    return output


def _refuse_nan(outputs: Tensor) -> None:
    bad = outputs.isnan().any(1)
    if bool(bad.any()):
        raise InputError(
            f"the model returned NaN for {int(bad.sum())} of {len(outputs)} inputs (first: input "
            f"{int(bad.nonzero()[0])}); check the input's scale and the model's weights"
        )
