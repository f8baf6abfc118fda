"""Grad-CAM and guided Grad-CAM, for convolutions and for the tokens of a transformer."""

import difflib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sea_nn.errors import InputError, MemberError, UnfitError
from sea_nn.members.backprop_rules import guided_backprop
from sea_nn.model.evaluator import Evaluator

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
