"""Run batch norms in eval mode as what they are: fixed linear maps, folded into convolutions.

An explainer makes hundreds of passes with frozen statistics. PyTorch's batch norm then still keeps
its input for a backward pass that never needs it, and reads and writes every activation twice.
Folding gives the same function with about half the memory and far fewer passes over it. Which
layers may be folded is proved by `sea_nn.model.tracing`; folding is done to a copy of the twin.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sea_nn.model.borrowing import copy_twin
from sea_nn.model.tracing import CONVOLUTIONS, Layers


class Fold:
    """A copy of a twin whose norms are folded.

    Args:
        twin: the twin.
        layers: which of its layers may be folded.
        dtype: the type of folded convolutions, if not their own; for passes under autocast, which
            would otherwise convert the weights in each of them.
        faithful: whether convolutions keep their own weights on the way forward. A GPU rounds the
            operands of a convolution to 10 bits (TF32), and other weights make other activations:
            of integrated gradients, a cosine of .999 or less remains. The way back is linear, and
            takes folded weights without harm.

    Attributes:
        module: the copy; it shares all tensors with the twin but for the folded weights.
        first: the layer that alone reads the model's input, in the copy, or None.
    """

    def __init__(
        self,
        twin: nn.Module,
        layers: Layers,
        dtype: torch.dtype | None = None,
        faithful: bool = False,
    ) -> None:
        self.module = copy_twin(twin)
        self._kept: list[tuple[list[Tensor], Callable[[], Sequence[Tensor]]]] = []
        named: dict[str, Any] = dict(self.module.named_modules())
        self.first: nn.Module | None = named.get(layers.first) if layers.first else None
        alone = [named[name] for name in layers.norms]
        for conv, norm in ((named[a], named[b]) for a, b in layers.pairs):
            if conv.weight.dtype != _as_affine(norm)[0].dtype:
                alone.append(norm)
                continue
            # The first may run apart from its norm, see `sea_nn.model.first_layer`.
            if faithful and (conv is self.first or not _is_plain(conv)):
                alone.append(norm)
                continue
            if faithful:
                window = (conv.stride, conv.padding, conv.dilation)
                values = self._keep(partial(_split, *_freeze(conv, norm)), dtype)
                conv.__dict__["forward"] = partial(_convolve_twofold, window, *values)
            else:
                values = self._keep(partial(_merge, *_freeze(conv, norm)), dtype)
                for name, value in zip(("weight", "bias"), values, strict=True):
                    conv._parameters[name] = nn.Parameter(value, requires_grad=False)
            norm.__dict__["forward"] = pass_on
        for norm in alone:
            values = self._keep(partial(_as_affine, norm), None)
            norm.__dict__["forward"] = partial(_scale, *values)

    def _keep(
        self, compute: Callable[[], Sequence[Tensor]], dtype: torch.dtype | None
    ) -> list[Tensor]:
        values = [_lay_out(value, dtype) for value in compute()]
        self._kept.append((values, compute))
        return values

    def tensors(self) -> list[Tensor]:
        """Return all that was computed: there once, whatever the number of inputs."""
        return [value for values, _ in self._kept for value in values]

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the folded weights again from the model's, into the same memory."""
        for values, compute in self._kept:
            for old, new in zip(values, compute(), strict=True):
                old.copy_(new)


def may_round(device: torch.device) -> bool:
    """Whether convolutions on a device may round what they read, as GPUs do (TF32)."""
    return device.type == "cuda"


def _freeze(conv: Any, norm: nn.Module) -> tuple[Tensor, Tensor | None, nn.Module]:
    """Return the convolution's own weights, which folding takes out of it, and its norm."""
    return conv.weight, conv.bias, norm


def _as_affine(norm: Any) -> tuple[Tensor, Tensor]:
    """Return scale and shift [C] with norm(x) = scale * x + shift."""
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach()
    if norm.bias is None:
        return scale, -norm.running_mean * scale
    return scale, torch.addcmul(norm.bias.detach(), norm.running_mean, scale, value=-1)


def _merge(weight: Tensor, bias: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of norm(conv(x)) as one convolution."""
    merged, _, _, shift = _split(weight, bias, norm)
    return merged, shift


def _split(
    weight: Tensor, bias: Tensor | None, norm: nn.Module
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the weights for the way back and forward, and what scales and shifts the latter."""
    scale, shift = _as_affine(norm)
    own = weight.detach()
    if bias is not None:
        shift = torch.addcmul(shift, bias.detach(), scale)
    return own * scale.view(-1, *(1,) * (own.ndim - 1)), own, scale, shift


class _Twofold(torch.autograd.Function):
    """A convolution and its norm: forward one after the other, back as one convolution."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Any, back: Tensor, *forth: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        ctx.shape, ctx.window = x.shape, window
        weight, scale, shift = forth
        return _scale(scale, shift, _convolve(x, weight, window))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (back,) = ctx.saved_tensors
        grad = slopes[0]
        # What strides leave over at the end, so that the gradient has the input's size again.
        spare = [
            size - ((made - 1) * stride - 2 * padding + dilation * (width - 1) + 1)
            for size, made, width, stride, padding, dilation in zip(
                ctx.shape[2:], grad.shape[2:], back.shape[2:], *ctx.window, strict=True
            )
        ]
        return _convolve(grad, back, ctx.window, spare), None, None, None, None, None


def _convolve(x: Tensor, weight: Tensor, window: Any, spare: Sequence[int] = ()) -> Tensor:
    """Convolve, or with sizes to spare the other way round."""
    none = [0] * (x.ndim - 2)
    stride, padding, dilation = map(list, window)
    return torch.convolution(
        x, weight, None, stride, padding, dilation, bool(spare), list(spare) or none, 1
    )


def _convolve_twofold(
    window: Any, back: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, input: Tensor
) -> Tensor:
    if input.ndim < weight.ndim:  # a single one, which layers take as well
        return _convolve_twofold(window, back, weight, scale, shift, input[None]).squeeze(0)
    answer: Tensor = _Twofold.apply(input, window, back, weight, scale, shift)  # type: ignore[no-untyped-call]
    return answer


def _is_plain(conv: Any) -> bool:
    """Whether a layer does nothing but convolve all channels with so many zeros around."""
    if type(conv) not in CONVOLUTIONS or conv.groups != 1 or conv.padding_mode != "zeros":
        return False
    # By hand, one number may be set for all axes.
    window = (conv.stride, conv.padding, conv.dilation)
    return all(isinstance(w, tuple) and len(w) == conv.weight.ndim - 2 for w in window)


def _lay_out(value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return a copy, on a GPU in the layout of the inputs: every pass would copy it otherwise."""
    last = value.is_cuda and value.ndim == 4
    layout = torch.channels_last if last else torch.preserve_format
    return value.to(dtype or value.dtype, copy=True, memory_format=layout)


def pass_on(input: Tensor) -> Tensor:
    """Stand in for a layer that is merged with another, or run apart; `input` as layers name it."""
    return input


def _scale(scale: Tensor, shift: Tensor, input: Tensor) -> Tensor:
    shape = (1, -1, *(1,) * (input.ndim - 2))
    return torch.addcmul(shift.view(shape), input, scale.view(shape))
