"""Members that read or change attention: rollout, gradient-weighted rollout, LRP for attention.

Attention has no module that all libraries share, but it has two functions: PyTorch's
``scaled_dot_product_attention``, and a softmax over the positions. Both are caught as the model
calls them, so transformers, timm and hand-written blocks need no hint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sea_nn.errors import UnfitError
from sea_nn.members.quick import count_prefix, lay_tokens
from sea_nn.model.outputs import take
from sea_nn.model.probe import Probe

SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax)
ACTIVATIONS = (functional.gelu, functional.silu, functional.relu, torch.relu, torch.tanh)
MISSING = (
    "{} found no attention in the model: neither scaled_dot_product_attention nor a softmax over "
    "positions was called; use grad_cam, saliency or integrated_gradients"
)
INVERSE_ROOTS = (torch.rsqrt, Tensor.rsqrt)  # of norms that are written by hand


def attention_rollout(probe: Probe) -> Tensor:
    """Return how much of each patch reaches the output through attention alone, [N, 1, H, W].

    Heads are averaged, the residual counts as half of each layer, and layers are multiplied. The
    map is of the input, not of the class: it is the same for all of them.
    """
    return _map_tokens(probe, lambda weights, slopes: roll_out(weights))


def roll_out(weights: Sequence[Tensor]) -> Tensor:
    """How much of each token reaches each through layers [N, heads, T, T], [N, T, T]."""
    flow = _identity(weights[0])
    for layer in weights:
        mixed = layer.mean(1) + _identity(layer)
        flow = mixed / mixed.sum(2, keepdim=True) @ flow
    return flow


def attention_gradient(probe: Probe) -> Tensor:
    """Return attention weighted by the class's gradient and rolled out, [N, 1, H, W].

    Of attention times gradient the positive part counts, averaged over heads and added along the
    layers (rule 5 and 6 of the reference). Class tokens, or the mean of all, are read at the end.
    """

    def spread(weights: list[Tensor], slopes: list[Tensor]) -> Tensor:
        flow = _identity(weights[0])
        for layer, slope in zip(weights, slopes, strict=True):
            flow = flow + (layer * slope).clamp(min=0).mean(1) @ flow
        return flow - _identity(flow)

    return _map_tokens(probe, spread)


def attention_lrp(probe: Probe) -> Tensor:
    """Return input times gradient, with attention, norms and activations held as they are.

    Softmax weights, the norms' deviations and the activations' ratios f(x) / x count as constants
    of the input: layer-wise relevance propagation with rules that conserve it. Without biases the
    map adds up to the score.
    """
    hold, total = HoldAttention(), torch.zeros_like(probe.x)
    for rows, _ in probe.parts():
        with hold:
            total[rows] = probe.gradient(probe.x[rows], rows) * probe.x[rows]
    if not hold.seen:
        raise UnfitError(MISSING.format("attention_lrp"))
    return total


class _Attentive(TorchFunctionMode):
    """Let ``see`` look at the weights of every attention, in the graph of the model that runs."""

    def see(self, weights: Tensor) -> None:
        """Take notice of weights, [N, heads, T, T] or [N * heads, T, T]."""
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            weights, value = attend(*args, **kwargs)
            self.see(weights)
            return weights @ value
        if func is functional.multi_head_attention_forward:
            # PyTorch hides the softmax inside, but returns a view of what it gave, if asked to.
            asked = {"need_weights": True, "average_attn_weights": False}
            given: Any = func(*args, **{**kwargs, **asked})
            out, heads = given
            self.see(heads if heads._base is None else heads._base)
            shown = heads.mean(-3) if kwargs.get("average_attn_weights", True) else heads
            return out, shown if kwargs.get("need_weights", True) else None
        result = func(*args, **kwargs)
        softmax = func in SOFTMAXES and isinstance(result, Tensor) and result.ndim >= 3
        if softmax and result.shape[-1] == result.shape[-2] > 1:  # over positions
            self.see(result)
        return result


class HoldAttention(_Attentive):
    """Hold what is not linear; ``seen`` says whether there was any attention."""

    seen = False

    def see(self, weights: Tensor) -> None:
        """Weights are constants: no gradient passes."""
        self.seen = True
        if weights.requires_grad:
            weights.register_hook(torch.zeros_like)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.layer_norm:
            return _norm(*args, **kwargs)
        result = super().__torch_function__(func, types, args, kwargs)
        if func in INVERSE_ROOTS:
            return result.detach()
        if func in ACTIVATIONS and isinstance(args[0], Tensor):
            x = args[0]
            return x * torch.where(x == 0, 0.0, result / torch.where(x == 0, 1, x)).detach()
        return result


class RecordAttention(_Attentive):
    """Keep the weights of every attention over all of an input's positions."""

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.n_inputs, self.windowed = n_inputs, False
        self.weights: list[Tensor] = []

    def see(self, weights: Tensor) -> None:
        """Remember the weights, or that they are of windows."""
        rows, *_, length, side = weights.shape
        own = rows == self.n_inputs if weights.ndim == 4 else rows % self.n_inputs == 0
        if length == side and weights.ndim <= 4 and own:
            self.weights.append(weights)
        else:
            self.windowed = True

    def by_head(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Weights, or what is of their shape, as [N, heads, T, T] without a graph."""
        return [t.detach().reshape(self.n_inputs, -1, *t.shape[-2:]) for t in tensors]


def _map_tokens(probe: Probe, spread: Callable[[list[Tensor], list[Tensor]], Tensor]) -> Tensor:
    """Run the model, let ``spread`` say how tokens flow, [N, T, T], and lay them on the input."""
    size = (probe.x.shape[2], probe.x.shape[3])
    maps = probe.x.new_zeros(len(probe.x), 1, *size)

    for rows, _ in probe.parts():
        points = probe.x[rows].requires_grad_(True)
        with probe.differentiable(), RecordAttention(len(rows)) as record:
            score = take(probe.forward(points, rows), probe.target[rows]).sum()
        weights = record.weights
        if not weights and not record.windowed:
            raise UnfitError(MISSING.format("attention"))
        lengths = {w.shape[-1] for w in weights}
        prefix = count_prefix(max(lengths), *size) if lengths else None
        if record.windowed or len(lengths) > 1 or prefix is None:
            raise UnfitError(
                "the model's attention is not over all patches at once (windows, as in Swin, "
                "pooled tokens, or a grid of another shape); use attention_lrp or grad_cam"
            )
        slopes = torch.autograd.grad(score, weights, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            flow = spread(record.by_head(weights), record.by_head(slopes))
            # What reaches the class token (with none: all tokens) from each patch. A distilled
            # transformer has two tokens that answer; registers do not.
            answering = flow[:, : 2 if prefix == 2 else 1] if prefix else flow
            grid = lay_tokens(answering.mean(1).unsqueeze(2), *size)
        maps[rows] = functional.interpolate(grid, size, mode="bilinear", align_corners=False)
    return maps


def _identity(weights: Tensor) -> Tensor:
    return torch.eye(weights.shape[-1], device=weights.device, dtype=weights.dtype)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The weights and values of PyTorch's attention, without dropout; arguments are its own."""
    # What attention makes of ones on a diagonal is its weights.
    ones = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device)
    ones = ones.expand(*value.shape[:-1], -1)
    weights = functional.scaled_dot_product_attention(
        query, key, ones, attn_mask, 0.0, is_causal, **options
    )
    if options.get("enable_gqa", False):
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    return weights, value


def _norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """A layer norm whose deviation is a constant."""
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(axes, keepdim=True)
    deviation = (centred.square().mean(axes, keepdim=True) + eps).sqrt().detach()
    scaled = centred / deviation * (1 if weight is None else weight)
    return scaled + (0 if bias is None else bias)
