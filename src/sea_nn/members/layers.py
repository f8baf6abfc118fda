"""Members that change the backward pass at activations: guided backprop, deconvolution, DeepLIFT.

The rules are attached to activation modules with autograd functions that keep their own record of
each call. So a module may be used many times, which Captum's DeepLift refuses, and ReLU6 and the
smooth activations take part, which Captum passes over in silence (the member would then repeat
`saliency` or `input_x_gradient` and vote twice). Where Captum applies the rule the maps are equal.
"""

import difflib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sea_nn.errors import InputError, MemberError, UnfitError
from sea_nn.model.borrowing import copy_twin, find_inplace, is_private
from sea_nn.model.evaluator import Evaluator, is_same
from sea_nn.model.outputs import TensorModel

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


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Tokens before the patches: none, a class token, that and a distillation token, or four registers.
PREFIXES = (0, 1, 2, 5)

Reshape = Callable[[Tensor], Tensor]


def grad_cam(
    evaluator: Evaluator,
    layer: str | None = None,
    reshape: Reshape | None = None,
    relu: bool = True,
) -> Tensor:
    """Return the class activation map of a layer, enlarged to the input's size, [N, 1, ...].

    Args:
        evaluator: the inputs and the model.
        layer: the layer's name as in `model.named_modules()`. Left out, it is the last one that
            the model runs with a spatial output which the score depends on: a convolution, or a
            layer norm over tokens.
        reshape: turns the layer's output into [N, channels, height, width]. Left out, tokens
            [N, tokens, channels] are laid on a grid of the input's shape, less a class token.
        relu: keep the evidence for the class only, as the authors do.
    """

    if not evaluator.kind.neighbours:
        raise UnfitError(
            "grad_cam needs inputs with positions, [N, channels, ...]; got "
            f"{list(evaluator.x.shape)}. Use saliency, integrated_gradients or smooth_ig"
        )
    key = "grad_cam", layer, reshape, relu
    if key not in evaluator.cache:
        evaluator.cache[key] = _map_layer(evaluator, layer, reshape, relu)
    found: Tensor = evaluator.cache[key]
    return found


def _map_layer(
    evaluator: Evaluator, layer: str | None, reshape: Reshape | None, relu: bool
) -> Tensor:
    """Return the maps of all inputs, enlarged."""
    if layer:
        name, module = _named_layer(evaluator, layer)
        cams = []
    else:  # the pass that looks for the layer tells the first input's map as well
        name, module, cam = find_layer(evaluator, reshape)
        cams = [cam]
    others = torch.arange(len(cams), len(evaluator.x), device=evaluator.x.device)
    # The graph starts at the layer, so a pass costs little more than a forward pass.
    parts = others.split(evaluator.chunk(len(others), gradient=False)) if len(others) else ()
    cams += [_class_map(evaluator, name, module, rows, reshape) for rows in parts]
    made = torch.cat(cams).clamp(min=0) if relu else torch.cat(cams)
    size = evaluator.x.shape[2:]
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
    return functional.interpolate(made, size, mode=mode, align_corners=False)


def guided_grad_cam(
    evaluator: Evaluator, layer: str | None = None, reshape: Reshape | None = None
) -> Tensor:
    """Return guided backprop times Grad-CAM; either is reused if it is a member too."""
    return guided_backprop(evaluator) * grad_cam(evaluator, layer, reshape)


def find_layer(
    evaluator: Evaluator, reshape: Reshape | None = None
) -> tuple[str, nn.Module, Tensor]:
    """Return the name and module of the layer that Grad-CAM reads if none is named.

    The model runs once on the first input; among convolutions and layer norms, the last to run
    whose output has more than one position, and whose positions the score depends on, is taken.
    (The last norms of a transformer with a class token fail the second test: only that token
    counts.) The first input's map at the layer's own resolution, [1, 1, ...], comes with it.
    """
    module = _require_module(evaluator)
    kinds = (*CONVOLUTIONS, nn.LayerNorm)
    names: dict[nn.Module, str] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, kinds):
            names[layer] = name
    seen: list[tuple[nn.Module, Tensor]] = []

    def hook(layer: nn.Module, _: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        tracked = output if output.requires_grad else output.detach().requires_grad_(True)
        seen.append((layer, tracked))
        return tracked.clone()  # what follows may work in place

    handles = [m.register_forward_hook(hook) for m in names]
    rows = torch.zeros(1, dtype=torch.long, device=evaluator.x.device)
    try:
        with evaluator.differentiable():
            outputs = evaluator.forward(evaluator.arrange(evaluator.x[:1]), rows)
            score = evaluator.score(outputs, rows).sum()
    finally:
        for handle in handles:
            handle.remove()
    for layer, output in reversed(seen):
        try:
            grid = _to_grid(output, evaluator, reshape)
        except MemberError:
            continue
        if grid.shape[2:].numel() < 2 or not score.requires_grad:
            continue
        grad = torch.autograd.grad(score, output, retain_graph=True, allow_unused=True)[0]
        if grad is None:
            continue
        if isinstance(layer, CONVOLUTIONS) or bool(_to_grid(grad, evaluator, reshape).any()):
            return names[layer], layer, _weigh(output.detach(), grad, evaluator, reshape)
    raise UnfitError(
        "grad_cam found no convolution or token layer that the score depends on; name one with "
        'methods=[("grad_cam", {"layer": ...})], or use saliency, integrated_gradients, smooth_ig '
        "or occlusion, which need no such layer"
    )


def _class_map(
    evaluator: Evaluator,
    name: str,
    module: nn.Module,
    rows: Tensor,
    reshape: Reshape | None,
) -> Tensor:
    """Return the maps of the inputs `rows` at the layer's own resolution, [P, 1, ...]."""
    kept: list[Tensor] = []

    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple | list) else output
        if not isinstance(first, Tensor):
            raise MemberError(f"layer {name!r} returns no tensor, but {type(output).__name__}")
        # Cutting the graph here spares the backward pass below the layer.
        leaf = first.detach().requires_grad_(True)
        kept[:] = [leaf]
        if first is output:
            return leaf.clone()
        return type(output)((leaf.clone(), *output[1:]))

    handle = module.register_forward_hook(hook)
    try:
        with evaluator.differentiable():
            outputs = evaluator.forward(evaluator.arrange(evaluator.x[rows]), rows)
            if not kept:
                raise MemberError(f"the model never runs layer {name!r}; name another")
            score = evaluator.score(outputs, rows).sum()
            grad = torch.autograd.grad(score, kept[0], allow_unused=True)[0]
    finally:
        handle.remove()
    if grad is None:
        raise MemberError(f"the score does not depend on layer {name!r}; name another")
    return _weigh(kept[0].detach(), grad, evaluator, reshape)


def _weigh(active: Tensor, slope: Tensor, evaluator: Evaluator, reshape: Reshape | None) -> Tensor:
    """Channels of a layer's output, weighed by their mean gradients and added up, [P, 1, ...]."""
    active, slope = (_to_grid(t, evaluator, reshape) for t in (active, slope))
    weight = slope.mean(tuple(range(2, slope.ndim)), keepdim=True)
    return (weight * active).sum(1, keepdim=True).to(evaluator.x.dtype)


def _to_grid(output: Tensor, evaluator: Evaluator, reshape: Reshape | None) -> Tensor:
    """Return a layer's output as [N, channels, *positions] with as many axes as the input."""
    x = evaluator.x
    if reshape is not None:
        output = reshape(output)
    elif evaluator.kind.view == "picture" and output.ndim == 3:  # tokens [N, T, D]
        output = lay_tokens(output, x.shape[2], x.shape[3])
    if output.ndim != evaluator.kind.axes:
        raise MemberError(
            f"the layer's output {list(output.shape)} has no positions to match the input "
            f"{list(x.shape)}; name another layer, or pass reshape= to lay it on a grid"
        )
    return output


def lay_tokens(tokens: Tensor, height: int, width: int) -> Tensor:
    """Return tokens [N, T, D] as [N, D, h, w] on a grid with the input's aspect."""
    n_inputs, n_tokens, n_channels = tokens.shape
    for prefix in PREFIXES:
        patches = n_tokens - prefix
        rows = max(1, math.isqrt(max(0, patches * height // width)))
        if patches > 1 and patches % rows == 0 and rows * width == (patches // rows) * height:
            grid = tokens[:, prefix:].transpose(1, 2)
            return grid.reshape(n_inputs, n_channels, rows, patches // rows)
    raise MemberError(
        f"{n_tokens} tokens fit no grid for an input of {height} x {width}; pass reshape=, a "
        "function from [N, tokens, channels] to [N, channels, height, width]"
    )


def _named_layer(evaluator: Evaluator, layer: str) -> tuple[str, nn.Module]:
    modules = dict(_require_module(evaluator).named_modules())
    if layer in modules:
        return layer, modules[layer]
    names = [name for name in modules if name]
    near = difflib.get_close_matches(layer, names, n=5, cutoff=0.3) or names[-5:]
    raise InputError(
        f"the model has no layer {layer!r}; nearest names: {', '.join(map(repr, near))} "
        f"({len(names)} in all, see model.named_modules())"
    )


def _require_module(evaluator: Evaluator) -> nn.Module:
    if evaluator.module is None:
        raise UnfitError(
            "grad_cam reads a layer, so it needs a torch.nn.Module, not a plain function; use "
            "saliency, integrated_gradients or occlusion"
        )
    return evaluator.module
