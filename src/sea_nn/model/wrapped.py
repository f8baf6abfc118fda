"""The caller's model behind one face: tensors in, outputs [N, K] out, every row counted.

>>> import torch
>>> model = lambda x: {"logits": x, "hidden": None}
>>> TensorModel(model)(torch.tensor([[1.0, 3.0]]))
tensor([[1., 3.]])
>>> area = read_value(torch.nn.Conv2d(1, 2, 3), lambda output: output[:, 1].sum((1, 2)))
>>> area(torch.zeros(4, 1, 8, 8)).shape
torch.Size([4])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, KindError, MemberError

Progress = Callable[[str, int, int], None]
"""Called with what is going on (a member's name, "questions"), rows done and rows in all."""
PURPOSES = ("members", "questions", "checks")
ARRAYS = "a model of NumPy arrays is explained as sea_nn.NumpyModel(model.predict_proba)"
READ_IT = (
    "say which number of the output to explain by a function, such as "
    "target=lambda output: output[:, 1].sum((1, 2))"
)


class ToldError(BaseException):
    """What went wrong in the caller's progress function, on its way past everyone."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Meter:
    """Counts the rows that a model sees, by purpose, and tells the caller how far things are.

    Args:
        limit: the most rows in all; the row beyond is refused before the model sees it.
        progress: the caller's function, if there is one.
        total: the rows there will be, for ``progress``.
    """

    def __init__(
        self, limit: int | None = None, progress: Progress | None = None, total: int = 0
    ) -> None:
        if progress is not None and not callable(progress):
            raise KindError(
                "progress must be a function of (member, evaluations done, evaluations in all); "
                f"got {type(progress).__name__}"
            )
        self.limit, self.progress, self.total = limit, progress, total
        self.rows = dict.fromkeys(PURPOSES, 0)
        self.purpose, self.label, self.paid = "checks", "", 0
        self.price, self.spent = 0, 0

    @property
    def seen(self) -> int:
        """The rows that the model has seen."""
        return sum(self.rows.values())

    def start(self, purpose: str, label: str = "", price: int = 0) -> None:
        """Count rows for a purpose from now on, under a label of which ``price`` are expected."""
        self.purpose, self.label, self.price, self.spent = purpose, label, price, 0

    def finish(self) -> None:
        """What was started is done, for whatever it has cost; checks come next."""
        self.paid += self.price
        self._tell(self.paid)
        self.start("checks")

    def add(self, count: int) -> None:
        """Count rows that the model is about to see."""
        if self.limit is not None and self.seen + count > self.limit:
            raise MemberError(
                f"{self.label or 'the explanation'} asks the model for more rows than the budget "
                f"of {self.limit} has: a member costs more than it says (cost=, see register)"
            )
        self.rows[self.purpose] += count
        self.spent += count
        self._tell(self.paid + min(self.spent, self.price))

    def _tell(self, done: int) -> None:
        if self.progress is None or not self.label:
            return
        try:
            self.progress(self.label, done, self.total)
        except Exception as error:
            raise ToldError(error) from error


class TensorModel(nn.Module):
    """Wrap a model so that its output is always one tensor [N, K], whatever it means.

    Understood are a tensor, a mapping with the key "logits", an object with `.logits` (Hugging
    Face), a tuple whose first item is the tensor, and a list of one tensor. A score per input,
    [N] or [N, 1], becomes [N, 1].

    Args:
        model: a module or any callable.
        check: refuse NaN (on a GPU this waits for the result).
        meter: counts the rows.

    Attributes:
        notice: what was assumed of the output's form, with the line that says it; "" if nothing.

    Raises:
        KindError: the output is no tensor and holds none where one was expected.
        InputError: the output has another shape, or NaN in it.
    """

    def __init__(
        self, model: Callable[..., Any], check: bool = True, meter: Meter | None = None
    ) -> None:
        super().__init__()
        self.model, self.check, self.meter, self.notice = model, check, meter, ""

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return the outputs [N, K] for `x` [N, ...]; `args` go to the model unchanged."""
        if self.meter is not None:
            self.meter.add(len(x))
        output = self.model(x, *args)
        if isinstance(output, tuple) and sum(isinstance(item, Tensor) for item in output) > 1:
            told = ", ".join(map(_describe, output))
            self.notice = (
                f"the model returned several tensors ({told}): the first was taken. Explain "
                "another by a function, such as target=lambda output: output[1][:, 3], or wrap "
                "the model so that it returns the one that is meant"
            )
        outputs = _to_matrix(_find_tensor(output), len(x))
        if self.check:
            refuse_nan(outputs)
        return outputs


class Reading(nn.Module):
    """A module whose output is one number an input, read off another model's output.

    Args:
        model: the model whose output is read.
        read: from that output to numbers, [N].
    """

    def __init__(self, model: Callable[..., Any], read: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.read = model, read

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return [N]; `args` go to the model unchanged."""
        return check_value(self.read(self.model(x, *args)), len(x))


def check_value(value: Any, count: int) -> Tensor:
    """Return what a target that is a function gave, if it is one number an input."""
    if not isinstance(value, Tensor) or value.shape != (count,):
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(
            f"a target that is a function must return one number an input, a tensor [{count}]; "
            f"got {got}"
        )
    return value


def read_value(model: Callable[..., Any], read: Callable[[Any], Tensor]) -> Callable[..., Any]:
    """Return the model as one of values, `read(output)`; a module as a module."""
    reading = Reading(model, read)
    return reading if isinstance(model, nn.Module) else reading.forward


class PackedModel(nn.Module):
    """Call a model with several inputs from rows of their values side by side, [N, V].

    Args:
        model: a module or any callable.
        split: from rows to the inputs.
        names: of keyword arguments; None to pass the inputs by position, before further arguments.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        split: Callable[[Tensor], Sequence[Tensor]],
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.split, self.names = model, split, names

    def forward(self, rows: Tensor, *args: Any) -> Any:
        """The model's answer about rows [N, V]."""
        inputs = self.split(rows)
        if self.names is None:
            return self.model(*inputs, *args)
        return self.model(*args, **dict(zip(self.names, inputs, strict=True)))


class NumpyModel:
    """A function of arrays, [N, ...] -> [N] or [N, K], as a model that SEA explains.

    It has no gradient: members that need one are left out, and the model is asked instead.

    >>> model = NumpyModel(lambda rows: rows.sum(1))
    >>> model(torch.ones(2, 3))
    tensor([3., 3.])
    """

    def __init__(self, predict: Callable[[Any], Any]) -> None:
        self.predict = predict

    def __call__(self, x: Tensor) -> Tensor:
        """What the function says of x, as a tensor of its type and on its device."""
        return torch.as_tensor(self.predict(x.detach().cpu().numpy())).to(x)


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
    wrapped = model if isinstance(model, TensorModel) else TensorModel(model, check=False)
    args = as_args(additional_forward_args)
    with torch.no_grad():
        # A copy, because a model may work in place on what it is given.
        parts = [
            wrapped(x[rows].clone(), *select_args(args, rows, len(x)))
            for rows in torch.arange(len(x), device=x.device).split(max(1, batch_size))
        ]
    answers = torch.cat(parts)
    refuse_nan(answers)
    return answers


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


def refuse_nan(outputs: Tensor) -> None:
    """Refuse outputs [N, K] that hold no numbers."""
    bad = outputs.isnan().any(1)
    if bool(bad.any()):
        raise InputError(
            f"the model returned NaN for {int(bad.sum())} of {len(outputs)} inputs (first: input "
            f"{int(bad.nonzero()[0])}); check the input's scale and the model's weights"
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
            f"{READ_IT}, or wrap the model so that it returns the class scores"
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
            f"returns the one [N, classes] tensor to explain, or {READ_IT}"
        )
    if type(output).__module__.split(".")[0] == "numpy":
        raise KindError(f"the model returned {type(output).__name__}: {ARRAYS}")
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
            f"expected [N, classes], or [N] for one score an input. Of dense outputs {READ_IT}; "
            "or wrap the model so that it returns class scores"
        )
    if not output.is_floating_point():
        raise KindError(f"the model returned {output.dtype}; expected floating-point scores")
    return output
