"""Members of a few passes, with which a budget starts: by presence, at activations, of layers.

Guided backprop, deconvolution and DeepLIFT change the backward pass at activation modules, call by
call. So a module may be used many times, which Captum's DeepLift refuses, and ReLU6 and the smooth
activations take part, which Captum passes over in silence (the member would then repeat `saliency`
or `input_x_gradient` and vote twice). Where Captum applies the rule the maps are equal, and take as
long: what these gain is a map for models such as EfficientNet-Lite, whose activations are ReLU6.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sea_nn.errors import MemberError, UnfitError
from sea_nn.features import Features
from sea_nn.model.opening import CONVOLUTIONS, copy_twin
from sea_nn.model.outputs import TensorModel, take
from sea_nn.model.probe import Probe, add_up, is_same

RECTIFIERS = (nn.ReLU, nn.ReLU6)
ACTIVATIONS = (
    *RECTIFIERS,
    *(nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LogSigmoid, nn.Softsign),
    *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
)
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
# Tokens before the patches: none, a class token, that and a distillation token, or four registers.
PREFIXES = (0, 1, 2, 5)
EPSILON = 1e-10
MISSED = "missed"
"""Key of the share of f(x) - f(baseline) that the sums of a map miss, [N]."""
ROUNDING = 1e-3
"""Share of the sum of a map's magnitudes by which it may miss because of rounding."""

Hook = Callable[..., Any]
Reshape = Callable[[Tensor], Tensor]


def presence_gradient(probe: Probe, passes: int = 16, cells: int = 8) -> Tensor:
    """Return the mean gradient of the probability by presence, at ``passes`` half-hidden inputs.

    Args:
        probe: the inputs and the model.
        passes: blends, in pairs of shares m and 1 - m; the same ones for all inputs.
        cells: along each axis with neighbours, that are present in one share each; what has none,
            the columns of a table, is a cell of its own, and so is a group of a feature mask.
    """
    x, absent = probe.x, probe.absent()
    features = form_cells(probe.features, cells)
    number = features.expand(torch.arange(features.n, device=x.device)).unsqueeze(0)
    number = features.kind.over_input(number).expand(1, *x.shape[1:])[0]
    random = torch.Generator().manual_seed(probe.seed)
    half = torch.rand(math.ceil(passes / 2), features.n, generator=random)
    shares = torch.stack([half, 1 - half], 1).flatten(0, 1)[:passes].to(x)
    total = torch.zeros_like(x)
    for rows, step in probe.parts(passes):
        start = absent[rows, step % absent.shape[1]]
        share = shares[step][:, number.flatten()].view(-1, *number.shape)
        points = torch.addcmul(start, share, x[rows] - start)
        add_up(total, rows, probe.gradient(points, rows, probability=True) * (x[rows] - start))
    return total / passes


def form_cells(features: Features, cells: int) -> Features:
    """The same map with cells as features, so many along each axis with neighbours."""
    if features.parts:
        parts = [form_cells(part, cells) for part in features.parts]
        return Features.join(parts, features.names or ())
    if features.groups is not None:
        return features
    kind, grid = features.kind, list(features.shape)
    for axis in kind.neighbours:
        grid[axis - 1 if axis < (kind.channels or kind.axes) else axis - 2] = cells
    return features.on_grid(grid)


def guided_backprop(probe: Probe) -> Tensor:
    """Return the gradient with negative gradients cut at every rectifier."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(torch.clamp, min=0))

    if "guided_backprop" not in probe.cache:
        with _attach(probe, RECTIFIERS, hook, "guided_backprop") as (mine, _):
            probe.cache["guided_backprop"] = mine.input_gradients()
    found: Tensor = probe.cache["guided_backprop"]
    return found


def deconvolution(probe: Probe) -> Tensor:
    """Return the deconvnet signal: rectifiers pass positive gradients whatever they saw."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        passed = output.detach() + (inputs[0] - inputs[0].detach())
        if passed.requires_grad:
            passed.register_hook(partial(torch.clamp, min=0))
        return passed

    with _attach(probe, RECTIFIERS, hook, "deconvolution") as (mine, _):
        return mine.input_gradients()


def deeplift(probe: Probe) -> Tensor:
    """Return DeepLIFT contributions (rescale rule) against the baseline.

    Each activation is replaced by the slope between its values at the input and at the baseline,
    so the map adds up to the difference of the two scores where all non-linear steps are modules
    of a known type. Attention, layer norms and products of activations are not: the share that the
    map misses is left in the probe's cache (`MISSED`).
    """

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if isinstance(module, nn.Softmax):
            raise UnfitError(
                "deeplift explains scores before a softmax, and this model contains nn.Softmax; "
                "leave that layer out, or use integrated_gradients"
            )
        if isinstance(module, POOLS):
            if module.return_indices:
                return output
            return _rescale_pool(inputs[0], module)
        return _rescale(inputs[0], output.detach(), module)

    base, total = probe.baseline(), torch.zeros_like(probe.x)
    change = probe.x.new_zeros(len(probe.x))
    with _attach(probe, (*ACTIVATIONS, *POOLS, nn.Softmax), hook, "deeplift") as (mine, said):
        for rows, _ in mine.parts(weight=2):  # each input with its baseline
            pairs = torch.cat([probe.x[rows], base[rows]])
            total[rows] = mine.gradient(pairs, rows.repeat(2))[: len(rows)]
            outputs = said.pop()
            said.append(outputs[: len(rows)])  # of the inputs, without their baselines
            score = take(outputs, probe.target[rows.repeat(2)])
            change[rows] = (score[: len(rows)] - score[len(rows) :]).to(change)
    maps = total * (probe.x - base)
    missed = (maps.flatten(1).sum(1) - change).abs()
    rounding = ROUNDING * maps.abs().flatten(1).sum(1)
    share = missed / change.abs().clamp_min(torch.finfo(change.dtype).tiny)
    probe.cache[MISSED] = torch.where(missed > rounding, share, 0.0)
    return maps


@contextmanager
def _attach(
    probe: Probe, kinds: tuple[type[nn.Module], ...], hook: Hook, member: str
) -> Iterator[tuple[Probe, list[Tensor]]]:
    """Yield the probe of a copy that works out of place, with the hook on its layers.

    What it says of the inputs, pass by pass, is listed: if that is not what the model says, layers
    that write in place are part of what it computes, and the member is not made for it.
    """
    if not probe.private or probe.model.module is None:
        raise UnfitError(
            f"{member} changes how layers run, and this model cannot be copied, so that would "
            "show wherever else it is used. Use saliency or integrated_gradients"
        )
    model, said = TensorModel(copy_twin(probe.model.module), probe.meter), list[Tensor]()
    writes = found = False
    for layer in model.modules():
        if getattr(layer, "inplace", None) is True:
            layer.inplace, writes = False, True  # type: ignore[assignment]
        if isinstance(layer, kinds):
            layer.register_forward_hook(hook)
            found = True
    if not found:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise UnfitError(
            f"{member} changes the backward pass of activation modules ({names}) and found none: "
            "the map would repeat the plain gradient. Use integrated_gradients or smooth_ig, or "
            "write the activations as modules"
        )
    model.register_forward_hook(lambda _, __, out: said.append(out.detach()))
    yield replace(probe, model=model, cache={}), said
    if writes and not is_same(torch.cat(said), probe.whole):
        raise UnfitError(
            f"{member} needs layers that do not write in place, and with inplace=False this "
            "model computes something else (an activation overwrites what another layer "
            "reads). Use saliency or integrated_gradients, which run the model as it is"
        )


def _rescale(x: Tensor, output: Tensor, activation: nn.Module) -> Tensor:
    """The output for [input, baseline] pairs, whose slope is the secant between the two."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_(True)
        (tangent,) = torch.autograd.grad(activation.forward(leaf).sum(), leaf)
    rise, run = _difference(output), _difference(x.detach())
    level = run.abs() < EPSILON
    slope = torch.where(level, tangent, rise / run.masked_fill(level, 1))
    return output + slope * (x - x.detach())


def _rescale_pool(x: Tensor, pool: Any) -> Tensor:
    """Max pooling of [input, baseline] pairs by the rescale rule.

    The change of a maximum is shared between the position that held it for the input and the one
    that held it for the baseline. Overlapping windows add up (Captum keeps the last one).
    """
    function = getattr(functional, f"max_pool{x.ndim - 2}d")
    sizes = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    output, where = function(x.detach(), *sizes, ceil_mode=pool.ceil_mode, return_indices=True)

    def pick(values: Tensor) -> Tensor:
        return values.flatten(2).gather(2, where.flatten(2)).view_as(output)

    value, reference = output.chunk(2)
    top = torch.maximum(value, reference)
    change, run = x - x.detach(), _difference(x.detach())
    level = run.abs() < EPSILON
    of_input, of_baseline = (change / run.masked_fill(level, torch.inf)).chunk(2)
    shares = torch.cat([top - reference, value - top])
    moved = shares * pick(torch.cat([of_input + of_baseline] * 2))
    result: Tensor = output + moved + pick(change * level)
    return result


def _difference(pairs: Tensor) -> Tensor:
    """Return input - baseline for both halves of a batch of pairs."""
    value, reference = pairs.chunk(2)
    return torch.cat([value - reference] * 2)


def guided_grad_cam(
    probe: Probe, layer: str | None = None, reshape: Reshape | None = None
) -> Tensor:
    """Return guided backprop times Grad-CAM; either is reused if it is a member too."""
    return guided_backprop(probe) * grad_cam(probe, layer, reshape)


def grad_cam(probe: Probe, layer: str | None = None, reshape: Reshape | None = None) -> Tensor:
    """Return what of a layer's map speaks for the class, enlarged to the input's size, [N, 1, ...].

    Args:
        probe: the inputs and the model.
        layer: the layer's name as in `model.named_modules()`. Left out, it is the last one that
            the model runs with a spatial output which the score depends on: a convolution, or a
            layer norm over tokens.
        reshape: turns the layer's output into [N, channels, height, width]. Left out, tokens
            [N, tokens, channels] are laid on a grid of the input's shape, less a class token.
    """
    if not probe.features.kind.neighbours:
        raise UnfitError(
            f"grad_cam needs inputs with positions, [N, channels, ...]; got {list(probe.x.shape)}. "
            "Use saliency, integrated_gradients or smooth_ig"
        )
    key = "grad_cam", layer, reshape
    if key not in probe.cache:
        name, cams = layer, list[Tensor]()
        for rows, _ in probe.parts():
            name, cam = _read_layers(probe, name, rows, reshape)
            cams.append(cam)
        made = torch.cat(cams).clamp(min=0)
        mode = ("linear", "bilinear", "trilinear")[probe.x.ndim - 3]
        size = probe.x.shape[2:]
        probe.cache[key] = functional.interpolate(made, size, mode=mode, align_corners=False)
    found: Tensor = probe.cache[key]
    return found


def _read_layers(
    probe: Probe, wanted: str | None, rows: Tensor, reshape: Reshape | None
) -> tuple[str, Tensor]:
    """Return the name of a layer, and the maps of the inputs `rows` at its own resolution.

    If none is wanted, it is the last of convolutions and layer norms to run whose output has more
    than one position, and whose positions the score depends on. (The last norms of a transformer
    with a class token fail the second test: only that token counts.)
    """
    seen = list[tuple[str, nn.Module, Tensor]]()

    def hook(name: str, layer: nn.Module, _: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple | list) else output
        if not isinstance(first, Tensor) or not first.is_floating_point():
            return None
        # Cutting the graph here spares the backward pass below the first layer.
        tracked = first if first.requires_grad else first.detach().requires_grad_(True)
        seen.append((name, layer, tracked))
        own = tracked.clone()  # what follows may work in place
        return own if first is output else type(output)((own, *output[1:]))

    model: Any = probe.model.model
    with ExitStack() as hooks, probe.differentiable():
        for name, layer in model.named_modules():
            if name == wanted if wanted else isinstance(layer, (*CONVOLUTIONS, nn.LayerNorm)):
                hooks.enter_context(layer.register_forward_hook(partial(hook, name)))
        outputs = probe.forward(probe.x[rows], rows)
        score = take(outputs, probe.target[rows]).sum()
    for name, layer, output in reversed(seen) if score.requires_grad else ():
        (grad,) = torch.autograd.grad(score, output, retain_graph=True, allow_unused=True)
        if grad is None:
            continue
        try:
            active = _to_grid(output.detach(), probe, reshape)
            slope = _to_grid(grad, probe, reshape)
        except MemberError:
            if wanted:
                raise
            continue
        counts = isinstance(layer, CONVOLUTIONS) or bool(slope.any())
        if wanted or (counts and active.shape[2:].numel() > 1):
            weight = slope.mean(tuple(range(2, slope.ndim)), keepdim=True)
            return name, (weight * active).sum(1, keepdim=True).to(probe.x.dtype)
    if wanted:
        raise MemberError(
            f"the model never runs layer {wanted!r}, or the score does not depend on what it "
            "returns; name another"
        )
    raise UnfitError(
        "grad_cam found no convolution or token layer that the score depends on; name one with "
        'methods=[("grad_cam", {"layer": ...})], or use saliency, integrated_gradients, smooth_ig '
        "or occlusion, which need no such layer"
    )


def _to_grid(output: Tensor, probe: Probe, reshape: Reshape | None) -> Tensor:
    """Return a layer's output as [N, channels, *positions] with as many axes as the input."""
    x, kind = probe.x, probe.features.kind
    if reshape is not None:
        output = reshape(output)
    elif kind.view == "picture" and output.ndim == 3:  # tokens [N, T, D]
        output = lay_tokens(output, x.shape[2], x.shape[3])
    if output.ndim != kind.axes:
        raise MemberError(
            f"the layer's output {list(output.shape)} has no positions to match the input "
            f"{list(x.shape)}; name another layer, or pass reshape= to lay it on a grid"
        )
    return output


def lay_tokens(tokens: Tensor, height: int, width: int) -> Tensor:
    """Return tokens [N, T, D] as [N, D, h, w] on a grid with the input's aspect."""
    prefix = count_prefix(tokens.shape[1], height, width)
    if prefix is None:
        raise MemberError(
            f"{tokens.shape[1]} tokens fit no grid for an input of {height} x {width}; pass "
            "reshape=, a function from [N, tokens, channels] to [N, channels, height, width]"
        )
    patches = tokens[:, prefix:].mT
    rows = math.isqrt(patches.shape[2] * height // width)
    return patches.reshape(*patches.shape[:2], rows, -1)


def count_prefix(n_tokens: int, height: int, width: int) -> int | None:
    """Return the tokens before those of patches on a grid with this aspect; None if there is none.

    >>> count_prefix(197, 224, 224)
    1
    """
    for prefix in PREFIXES:
        patches = n_tokens - prefix
        rows = math.isqrt(max(0, patches * height // width))
        whole = rows > 0 and patches % rows == 0
        if patches > 1 and whole and rows * width == (patches // rows) * height:
            return prefix
    return None
