"""Members that read or change attention: rollout, gradient-weighted rollout, LRP for attention.

Attention has no module that all libraries share, but it has two functions: PyTorch's
``scaled_dot_product_attention``, and a softmax over the positions. Both are caught as the model
calls them, so transformers, timm and hand-written blocks need no hint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
INVERSE_ROOTS = (torch.rsqrt, Tensor.rsqrt)  # of norms that are written by hand


def attention_rollout(probe: Probe) -> Tensor:
    """Return how much of each patch reaches the output through attention alone, [N, 1, H, W].

    Heads are averaged, the residual counts as half of each layer, and layers are multiplied. The
    map is of the input, not of the class: it is the same for all of them.
    """

    def spread(weights: list[Tensor], slopes: list[Tensor]) -> Tensor:
        flow = _identity(weights[0])
        for layer in weights:
            mixed = layer.mean(1) + _identity(layer)
            flow = mixed / mixed.sum(2, keepdim=True) @ flow
        return flow

    return _map_tokens(probe, spread)


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
    for part in probe.parts():
        points = probe.x[part.rows].requires_grad_(True)
        with probe.differentiable(), hold:
            score = take(probe.forward(points, part.rows), probe.target[part.rows]).sum()
            slope = torch.autograd.grad(score, points)[0]
        total[part.rows] = slope * points.detach()
    if not hold.seen:
        raise UnfitError(_missing("attention_lrp"))
    return total


class _Attentive(TorchFunctionMode):
    """Let ``keep`` see, and replace, the weights of every attention while the model runs."""

    def keep(self, weights: Tensor) -> Tensor:
        """The weights to go on with, of the same shape."""
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            weights, value = attend(*args, **kwargs)
            return self.keep(weights) @ value
        if func is functional.multi_head_attention_forward:
            return _attend_module(self.keep, *args, **kwargs)
        result = func(*args, **kwargs)
        return self.keep(result) if func in SOFTMAXES and _is_attention(result) else result


class HoldAttention(_Attentive):
    """Hold what is not linear; ``seen`` says whether there was any attention."""

    seen = False

    def keep(self, weights: Tensor) -> Tensor:
        """The weights as constants."""
        self.seen = True
        return weights.detach()

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
    """Keep the weights of every attention, [N, heads, T, T]."""

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.n_inputs, self.windowed = n_inputs, False
        self.weights: list[Tensor] = []

    def keep(self, weights: Tensor) -> Tensor:
        """The same weights, remembered."""
        side, rows = weights.shape[-1], weights.shape[0]
        # [N, heads, T, T], or [N * heads, T, T] of nn.MultiheadAttention; windows are neither.
        own = rows == self.n_inputs if weights.ndim == 4 else rows % self.n_inputs == 0
        if weights.shape[-2] != side or weights.ndim > 4 or not own:
            self.windowed = True
            return weights
        by_head = weights.reshape(self.n_inputs, -1, side, side)
        self.weights.append(by_head)
        return by_head.reshape(weights.shape)


def _map_tokens(probe: Probe, spread: Callable[[list[Tensor], list[Tensor]], Tensor]) -> Tensor:
    """Run the model, let ``spread`` say how tokens flow, [N, T, T], and lay them on the input."""
    size = (probe.x.shape[2], probe.x.shape[3])
    maps = probe.x.new_zeros(len(probe.x), 1, *size)

    for part in probe.parts():
        rows = part.rows
        points = probe.x[rows].requires_grad_(True)
        with probe.differentiable(), RecordAttention(len(rows)) as record:
            score = take(probe.forward(points, rows), probe.target[rows]).sum()
        weights = record.weights
        if not weights and not record.windowed:
            raise UnfitError(_missing("attention"))
        lengths = {w.shape[-1] for w in weights}
        if record.windowed or len(lengths) > 1 or count_prefix(lengths.pop(), *size) is None:
            raise UnfitError(
                "the model's attention is not over all patches at once (windows, as in Swin, "
                "pooled tokens, or a grid of another shape); use attention_lrp or grad_cam"
            )
        slopes = torch.autograd.grad(score, weights, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            flow = spread([w.detach() for w in weights], list(slopes))
            grid = _read(flow, size)
        maps[rows] = functional.interpolate(grid, size, mode="bilinear", align_corners=False)
    return maps


def _read(flow: Tensor, size: tuple[int, int]) -> Tensor:
    """What reaches the class token (with none: all tokens) from each patch, [N, 1, h, w]."""
    prefix = count_prefix(flow.shape[2], *size)
    # A distilled transformer has two tokens that answer; registers do not.
    answering = flow[:, : 2 if prefix == 2 else 1] if prefix else flow
    return lay_tokens(answering.mean(1).unsqueeze(2), *size)


def _identity(weights: Tensor) -> Tensor:
    side = weights.shape[-1]
    return torch.eye(side, device=weights.device, dtype=weights.dtype)[None]


def _is_attention(weights: Any) -> bool:
    """Whether a softmax is over positions: [..., T, T] with more than one axis before them."""
    square = isinstance(weights, Tensor) and weights.ndim >= 3
    return square and weights.shape[-1] == weights.shape[-2] > 1


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """The weights and values of PyTorch's attention, without dropout; arguments are its own."""
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = scale * (query @ key.mT)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    return scores.softmax(-1), value


def _attend_module(
    keep: Callable[[Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    n_heads: int,
    in_weight: Tensor | None,
    in_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_weight: Tensor,
    out_bias: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """``nn.MultiheadAttention`` with its weights seen: PyTorch hides what it calls inside.

    Arguments are those of ``functional.multi_head_attention_forward``; tensors are [T, N, width].
    """
    if in_weight is None or bias_k is not None or add_zero_attn:
        raise UnfitError(
            "attention members read nn.MultiheadAttention with one in_proj_weight and without "
            "add_bias_kv or add_zero_attn; use grad_cam, saliency or integrated_gradients"
        )
    biases = [None] * 3 if in_bias is None else in_bias.chunk(3)
    parts = zip((query, key, value), in_weight.chunk(3), biases, strict=True)
    heads = [
        functional.linear(x, w, b).unflatten(-1, (n_heads, -1)).permute(1, 2, 0, 3)
        for x, w, b in parts
    ]
    mask = options.get("attn_mask")
    if mask is not None and mask.ndim == 3:
        mask = mask.unflatten(0, (-1, n_heads))
    mask = None if mask is None else _to_scores(mask)
    padding = options.get("key_padding_mask")
    if padding is not None:
        mask = _to_scores(padding)[:, None, None] + (0 if mask is None else mask)
    weights, values = attend(heads[0], heads[1], heads[2], mask)
    weights = keep(weights)
    out = (weights @ values).permute(2, 0, 1, 3).flatten(2)
    shown = weights.mean(1) if options.get("average_attn_weights", True) else weights
    out = functional.linear(out, out_weight, out_bias)
    return out, shown if options.get("need_weights", True) else None


def _to_scores(hidden: Tensor) -> Tensor:
    """A module's mask, true where hidden, as numbers to add to the scores."""
    if hidden.dtype != torch.bool:
        return hidden
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill(hidden, -torch.inf)


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
    normed = centred / deviation
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def _missing(member: str) -> str:
    return (
        f"{member} found no attention in the model: neither scaled_dot_product_attention nor a "
        "softmax over positions was called; use grad_cam, saliency or integrated_gradients"
    )
