"""Make any model's answer a [N, classes] tensor, and choose the class to explain.

>>> import torch
>>> model = lambda x: {"logits": x, "hidden": None}
>>> Logits(model)(torch.tensor([[1.0, 3.0]]))
tensor([[1., 3.]])
>>> resolve_target(torch.tensor([[1.0, 3.0]]), None)
tensor([1])
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, KindError

Target = int | Sequence[int] | Tensor | None


class Logits(nn.Module):
    """Wrap a model so that its output is always one tensor of logits, [N, classes].

    Understood are a tensor, a mapping with the key "logits", an object with `.logits` (Hugging
    Face), a tuple whose first item is the tensor, and a list of one tensor. A score per input,
    [N] or [N, 1], becomes [N, 1].

    Args:
        model: a module or any callable.
        check: refuse NaN logits (on a GPU this waits for the result).

    Raises:
        KindError: the output is no tensor and holds none where one was expected.
        InputError: the output has another shape, or NaN in it.
    """

    def __init__(self, model: Callable[..., Any], check: bool = True) -> None:
        super().__init__()
        self.model = model
        self.check = check

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Return the logits [N, classes] of `x` [N, ...]; `args` go to the model unchanged."""
        logits = _to_matrix(_find_tensor(self.model(x, *args)), len(x))
        if self.check:
            _refuse_nan(logits)
        return logits


def predict(
    model: Callable[..., Any],
    x: Tensor,
    additional_forward_args: Any = None,
    *,
    batch_size: int = 32,
) -> Tensor:
    """Return the logits [N, classes] of `x` without gradients, `batch_size` inputs at a time.

    The model is called in the mode it is in: put it in eval mode first, or `borrow` it.
    """
    if x.ndim < 2 or len(x) == 0:
        raise InputError(
            f"x must hold at least one input, [N, ...] with N >= 1; got shape {tuple(x.shape)}"
        )
    inner = model.model if isinstance(model, Logits) else model
    logits = Logits(inner, check=False)
    args = as_args(additional_forward_args)
    with torch.no_grad():
        # A copy, because a model may work in place on what it is given.
        parts = [
            logits(x[rows].clone(), *select_args(args, rows, len(x)))
            for rows in torch.arange(len(x), device=x.device).split(max(1, batch_size))
        ]
    answers = torch.cat(parts)
    _refuse_nan(answers)
    return answers


def resolve_target(logits: Tensor, target: Target) -> Tensor:
    """Return the class to explain for every input as a tensor [N].

    Args:
        logits: [N, classes].
        target: None (the predicted class), one class for all, or one for each input.
    """
    n_inputs, n_classes = logits.shape
    if target is None:
        return logits.argmax(1)
    if isinstance(target, Tensor) and (target.is_floating_point() or target.dtype == torch.bool):
        raise KindError(f"target must hold whole class numbers, got a tensor of {target.dtype}")
    if isinstance(target, bool | float | str):
        raise KindError(
            f"target must be a class number, a list or tensor of {n_inputs} of them, or None "
            f"for the predicted class; got {target!r}"
        )
    try:
        classes = torch.as_tensor(target, device=logits.device).to(torch.long)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KindError(
            f"target must be a class number, a list or tensor of {n_inputs} of them, or None "
            f"for the predicted class; got {type(target).__name__}"
        ) from error
    if classes.ndim == 0 or classes.shape == (1,):
        classes = classes.reshape(1).expand(n_inputs).clone()
    if classes.shape != (n_inputs,):
        raise InputError(
            f"target must name one class for each of the {n_inputs} inputs; "
            f"got shape {tuple(classes.shape)}"
        )
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


def _refuse_nan(logits: Tensor) -> None:
    bad = logits.isnan().any(1)
    if bool(bad.any()):
        raise InputError(
            f"the model returned NaN for {int(bad.sum())} of {len(logits)} inputs (first: input "
            f"{int(bad.nonzero()[0])}); check the input's scale and the model's weights"
        )
