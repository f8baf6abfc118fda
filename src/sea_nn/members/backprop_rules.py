"""Members that change the backward pass at activations: guided backprop, deconvolution, DeepLIFT.

The rules are attached to activation modules with autograd functions that keep their own record of
each call. So a module may be used many times, which Captum's DeepLift refuses, and ReLU6 and the
smooth activations take part, which Captum passes over in silence (the member would then repeat
`saliency` or `input_x_gradient` and vote twice). Where Captum applies the rule the maps are equal.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sea_nn.errors import UnfitError
from sea_nn.model.borrowing import copy_twin, find_inplace, is_private
from sea_nn.model.evaluator import Evaluator, is_same
from sea_nn.model.wrapped import TensorModel

RECTIFIERS = (nn.ReLU, nn.ReLU6)
ACTIVATIONS = (
    *RECTIFIERS,
    *(nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LogSigmoid, nn.Softsign),
    *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
)
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
EPSILON = 1e-10
MISSED = "missed"
"""Key of the share of f(x) - f(baseline) that the sums of a map miss, [N]."""
ROUNDING = 1e-3
"""Share of the sum of a map's magnitudes by which it may miss because of rounding."""

Hook = Callable[..., Any]


def guided_backprop(evaluator: Evaluator) -> Tensor:
    """Return the gradient with negative gradients cut at every rectifier."""

    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (_CutNegative.apply(inputs[0]), *inputs[1:])  # type: ignore[no-untyped-call]

    if "guided_backprop" not in evaluator.cache:
        with _attach(evaluator, RECTIFIERS, hook, "guided_backprop", before=True) as (mine, _):
            evaluator.cache["guided_backprop"] = mine.input_gradients()
    found: Tensor = evaluator.cache["guided_backprop"]
    return found


def deconvolution(evaluator: Evaluator) -> Tensor:
    """Return the deconvnet signal: rectifiers pass positive gradients whatever they saw."""

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Any:
        return _PassPositive.apply(inputs[0], output.detach())  # type: ignore[no-untyped-call]

    with _attach(evaluator, RECTIFIERS, hook, "deconvolution") as (mine, _):
        return mine.input_gradients()


def deeplift(evaluator: Evaluator) -> Tensor:
    """Return DeepLIFT contributions (rescale rule) against the baseline.

    Each activation is replaced by the slope between its values at the input and at the baseline,
    so the map adds up to the difference of the two scores where all non-linear steps are modules
    of a known type. Attention, layer norms and products of activations are not: the share that the
    map misses is left in the evaluator's cache (`MISSED`).
    """
    if evaluator.has(nn.Softmax):
        raise UnfitError(
            "deeplift explains scores before a softmax, and this model contains nn.Softmax; "
            "leave that layer out, or use integrated_gradients"
        )

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if isinstance(module, POOLS):
            if module.return_indices:
                return output
            return _RescalePool.apply(inputs[0], module)  # type: ignore[no-untyped-call]
        return _Rescale.apply(inputs[0], module.forward)  # type: ignore[no-untyped-call]

    base, total = evaluator.baseline(), torch.zeros_like(evaluator.x)
    change = evaluator.x.new_zeros(len(evaluator.x))

    with _attach(evaluator, (*ACTIVATIONS, *POOLS), hook, "deeplift") as (mine, said):
        for part in mine.parts(weight=2):  # each input with its baseline
            rows = part.rows
            pairs = torch.cat([evaluator.x[rows], base[rows]])
            total[rows] = mine.gradient(pairs, rows.repeat(2))[: len(rows)]
            outputs = said.pop()
            said.append(outputs[: len(rows)])  # of the inputs, without their baselines
            score = mine.score(outputs, rows.repeat(2)).to(change)
            change[rows] = score[: len(rows)] - score[len(rows) :]
    maps = total * (evaluator.x - base)
    missed = (maps.flatten(1).sum(1) - change).abs()
    rounding = ROUNDING * maps.abs().flatten(1).sum(1)
    share = missed / change.abs().clamp_min(torch.finfo(change.dtype).tiny)
    evaluator.cache[MISSED] = torch.where(missed > rounding, share, 0.0)
    return maps


@contextmanager
def _attach(
    evaluator: Evaluator,
    kinds: tuple[type[nn.Module], ...],
    hook: Hook,
    member: str,
    before: bool = False,
) -> Iterator[tuple[Evaluator, list[Tensor]]]:
    """Yield the evaluator on a model that works out of place, with the hook on its layers.

    What it says of the inputs, pass by pass, is listed: if that is not what the model says, layers
    that write in place are part of what it computes, and the member is not made for it.
    """
    module = evaluator.module
    if module is None or not is_private(module):
        raise UnfitError(
            f"{member} changes how layers run, and this model cannot be copied, so that would "
            "show wherever else it is used. Use saliency or integrated_gradients"
        )
    writes = bool(find_inplace(module))
    if writes:
        model = TensorModel(copy_twin(module, inplace=False), False, evaluator.model.meter)
        evaluator = replace(evaluator, model=model)
    evaluator = replace(evaluator, cache={})
    found = [m for m in evaluator.model.modules() if isinstance(m, kinds)]
    if not found:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise UnfitError(
            f"{member} changes the backward pass of activation modules ({names}) and found none: "
            "the map would repeat the plain gradient. Use integrated_gradients or smooth_ig, or "
            "write the activations as modules"
        )
    handles = [
        m.register_forward_pre_hook(hook) if before else m.register_forward_hook(hook)
        for m in found
    ]
    said: list[Tensor] = []
    handles.append(
        evaluator.model.register_forward_hook(lambda _, __, out: said.append(out.detach()))
    )
    try:
        yield evaluator, said
    finally:
        for handle in handles:
            handle.remove()
    if writes and not is_same(torch.cat(said), evaluator.outputs):
        raise UnfitError(
            f"{member} needs layers that do not write in place, and with inplace=False this "
            "model computes something else (an activation overwrites what another layer "
            "reads). Use saliency or integrated_gradients, which run the model as it is"
        )


class _CutNegative(torch.autograd.Function):
    """Identity forward; backward lets positive gradients through."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].clamp(min=0)


class _PassPositive(torch.autograd.Function):
    """The activation's output forward; backward the positive part of the gradient at it."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, output: Tensor) -> Tensor:
        return output.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].clamp(min=0), None


class _Rescale(torch.autograd.Function):
    """An activation of [input, baseline] pairs whose slope is the secant between the two."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        output = activation(inputs)
        ctx.save_for_backward(inputs, output)
        ctx.activation = activation
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs, output = ctx.saved_tensors
        with torch.enable_grad():
            leaf = inputs.detach().requires_grad_(True)
            tangent = torch.autograd.grad(ctx.activation(leaf), leaf, grads[0])[0]
        rise, run = _difference(output), _difference(inputs)
        level = run.abs() < EPSILON
        secant = grads[0] * rise / run.masked_fill(level, 1)
        return torch.where(level, tangent, secant), None


class _RescalePool(torch.autograd.Function):
    """Max pooling of [input, baseline] pairs by the rescale rule.

    The change of a maximum is shared between the position that held it for the input and the one
    that held it for the baseline. Overlapping windows add up (Captum keeps the last one).
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, pool: Any) -> Tensor:
        function = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}[
            inputs.ndim - 2
        ]
        output, where = function(
            inputs,
            *(pool.kernel_size, pool.stride, pool.padding, pool.dilation),
            ceil_mode=pool.ceil_mode,
            return_indices=True,
        )
        ctx.save_for_backward(inputs, output, where)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs, output, where = ctx.saved_tensors

        def spread(values: Tensor) -> Tensor:
            flat = torch.zeros_like(inputs, memory_format=torch.contiguous_format).flatten(2)
            return flat.scatter_add_(2, where.flatten(2), values.flatten(2)).view_as(inputs)

        value, reference = output.chunk(2)
        top = torch.maximum(value, reference)
        share = spread(grads[0] * torch.cat([top - reference, value - top]))
        of_input, of_baseline = share.chunk(2)
        run = _difference(inputs)
        level = run.abs() < EPSILON
        secant = torch.cat([of_input + of_baseline] * 2) / run.masked_fill(level, 1)
        return torch.where(level, spread(grads[0]), secant), None


def _difference(pairs: Tensor) -> Tensor:
    """Return input - baseline for both halves of a batch of pairs."""
    value, reference = pairs.chunk(2)
    return torch.cat([value - reference] * 2)
