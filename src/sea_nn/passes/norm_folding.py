"""Run batch norms in eval mode as what they are: fixed linear maps, folded into convolutions.

An explainer makes hundreds of passes with frozen statistics. PyTorch's batch norm then still keeps
its input for a backward pass that never needs it, and reads and writes every activation twice.
Folding gives the same function with about half the memory and far fewer passes over it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sea_nn.passes.layer_reads import Readers

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True)
class Plan:
    """What to fold: `pairs` of a convolution and the norm right after it, and `norms` alone."""

    pairs: tuple[tuple[nn.Module, nn.Module], ...] = ()
    norms: tuple[nn.Module, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs or self.norms)

    def holds(self, module: nn.Module) -> bool:
        """Whether the layers are still the module's, and nobody has put a hand on them."""
        layers, parts = (*sum(self.pairs, ()), *self.norms), set(module.modules())
        return all(m in parts and is_free(m) for m in layers)


_PLANS: "WeakKeyDictionary[nn.Module, Plan]" = WeakKeyDictionary()


def plan(module: nn.Module | None, run: Callable[[], object]) -> Plan:
    """Return what can be folded in `module`, seen in one call of `run`; remembered by module.

    A convolution and a norm are folded into one if nothing but the norm reads what the convolution
    gives. Left alone are modules that carry hooks, are used more than once, or are compiled,
    scripted or spread over devices.
    """
    if module is None or not any(is_frozen_norm(m) for m in module.modules()):
        return Plan()
    known = _PLANS.get(module)
    if known is not None and known.holds(module):
        return known
    if any(is_sealed(m) for m in module.modules()):
        return Plan()
    seen = [m for m in module.modules() if is_free(m)]
    with Readers(seen) as readers:
        run()
    norms = [m for m in seen if isinstance(m, NORMS) and readers.calls.get(m)]
    pairs = []
    for layer in readers.calls:  # in the order of the pass
        followers = list(readers.of_output(layer)) if isinstance(layer, CONVOLUTIONS) else []
        alone = len(followers) == 1 and followers[0] in norms
        if alone and readers.calls[layer] == readers.calls[followers[0]] == 1:
            pairs.append((layer, followers[0]))
    paired = {norm for _, norm in pairs}
    found = Plan(tuple(pairs), tuple(m for m in norms if m not in paired))
    _PLANS[module] = found
    return found


class Fold:
    """The folded weights of a plan, computed once, to be put in place as often as needed.

    Args:
        what: what to fold.
        dtype: the type of folded convolutions, if not their own; for passes under autocast, which
            would otherwise convert the weights in each of them.
        faithful: whether convolutions keep their own weights on the way forward. A GPU rounds the
            operands of a convolution to 10 bits (TF32), and other weights make other activations:
            of integrated gradients, a cosine of .999 or less remains. The way back is linear, and
            takes folded weights without harm.
    """

    def __init__(
        self,
        what: Plan = Plan(),  # noqa: B008
        dtype: torch.dtype | None = None,
        faithful: bool = False,
    ) -> None:
        self.what = what
        self.forwards: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
        self.parameters: dict[nn.Module, dict[str, nn.Parameter]] = {}
        self._kept: list[tuple[list[Tensor], Callable[[], Sequence[Tensor]]]] = []
        alone = list(what.norms)
        conv: Any
        for number, (conv, norm) in enumerate(what.pairs):
            if conv.weight.dtype != _as_affine(norm)[0].dtype:
                continue
            # The first may be the layer that runs apart from its norm, see `sea_nn.passes.first_layer`.
            if faithful and (number == 0 or not is_plain(conv) or not _is_spelt_out(conv)):
                alone.append(norm)
                continue
            if faithful:
                window = (conv.stride, conv.padding, conv.dilation)
                values = self._keep(partial(_split, conv, norm), dtype)
                self.forwards[conv] = partial(_convolve_twofold, window, *values)
            else:
                values = self._keep(partial(_merge, conv, norm), dtype)
                self.parameters[conv] = {
                    name: nn.Parameter(value, requires_grad=False)
                    for name, value in zip(("weight", "bias"), values, strict=True)
                }
            self.forwards[norm] = pass_on
        for norm in alone:
            self.forwards[norm] = partial(_scale, *self._keep(partial(_as_affine, norm), None))

    def _keep(
        self, compute: Callable[[], Sequence[Tensor]], dtype: torch.dtype | None
    ) -> list[Tensor]:
        values = [_lay_out(value, dtype) for value in compute()]
        self._kept.append((values, compute))
        return values

    def __bool__(self) -> bool:
        return bool(self.forwards)

    def tensors(self) -> Iterator[Tensor]:
        """Return all that was computed: there once, whatever the number of inputs."""
        return (value for values, _ in self._kept for value in values)

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the folded weights again from the model's, into the same memory."""
        for values, compute in self._kept:
            for old, new in zip(values, compute(), strict=True):
                old.copy_(new)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Fold inside the block; the very same parameter objects are back in place after it."""
        kept = [(conv, dict(conv._parameters)) for conv in self.parameters]
        try:
            for conv, parameters in self.parameters.items():
                conv._parameters.update(parameters)
            for layer, forward in self.forwards.items():
                layer.__dict__["forward"] = forward
            yield
        finally:
            for layer in self.forwards:
                layer.__dict__.pop("forward", None)
            for conv, own in kept:
                conv._parameters.update(own)


def fold_safely(
    module: nn.Module | None,
    run: Callable[[], Tensor],
    expected: Tensor | None = None,
    faithful: bool = False,
) -> Fold:
    """Fold a model's norms, unless the answer that ``run`` gets from it changes with them.

    Args:
        module: the model.
        run: asks it about one input.
        expected: the answer without folding, if known.
        faithful: whether convolutions keep their own weights on the way forward, see `Fold`.
    """
    found = Fold(plan(module, run), faithful=faithful)
    if not found:
        return found
    expected = run() if expected is None else expected
    try:
        with found.applied():
            same = agrees(run(), expected)
    except Exception:  # a layer that is called or built as none of ours is: it stays as it is
        same = False
    if not same and module is not None:
        _PLANS.pop(module, None)
    return found if same else Fold()


def may_round(device: torch.device) -> bool:
    """Whether convolutions on a device may round what they read, as GPUs do (TF32)."""
    return device.type == "cuda"


def agrees(found: Tensor, expected: Tensor, tolerance: float | None = None) -> bool:
    """Whether folded logits are the model's own, up to rounding."""
    if tolerance is None:
        tolerance = 0.02 if found.is_cuda else 1e-3  # TF32 convolutions round to three digits
    found, expected = found.detach(), expected.detach()
    allowed = tolerance * (expected.abs().max() + 1e-6)
    return bool((found - expected).abs().max() <= allowed)


def _as_affine(norm: Any) -> tuple[Tensor, Tensor]:
    """Return scale and shift [C] with norm(x) = scale * x + shift."""
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach()
    if norm.bias is None:
        return scale, -norm.running_mean * scale
    return scale, torch.addcmul(norm.bias.detach(), norm.running_mean, scale, value=-1)


def _merge(conv: Any, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of norm(conv(x)) as one convolution."""
    merged, _, _, shift = _split(conv, norm)
    return merged, shift


def _split(conv: Any, norm: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the weights for the way back and forward, and what scales and shifts the latter."""
    scale, shift = _as_affine(norm)
    weight = conv.weight.detach()
    if conv.bias is not None:
        shift = torch.addcmul(shift, conv.bias.detach(), scale)
    return weight * scale.view(-1, *(1,) * (weight.ndim - 1)), weight, scale, shift


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


def is_plain(layer: Any) -> bool:
    """Whether a layer does nothing but convolve all channels with so many zeros around."""
    if type(layer) not in CONVOLUTIONS or layer.groups != 1:
        return False
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _is_spelt_out(conv: Any) -> bool:
    """Whether strides and the like are given for every axis; by hand, one number may be set."""
    window = (conv.stride, conv.padding, conv.dilation)
    return all(isinstance(w, tuple) and len(w) == conv.weight.ndim - 2 for w in window)


def _lay_out(value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return a copy, on a GPU in the layout of the inputs: every pass would copy it otherwise."""
    last = value.is_cuda and value.ndim == 4
    layout = torch.channels_last if last else torch.preserve_format
    return value.to(dtype or value.dtype, copy=True, memory_format=layout)


# What stands in for a layer calls its argument as layers do, for models that name it.


def pass_on(input: Tensor) -> Tensor:
    """Stand in for a layer that is merged with another, or run apart."""
    return input


@contextmanager
def passing(layer: nn.Module) -> Iterator[None]:
    """Make a layer pass on what it is given: inside the block the model does without it."""
    before = layer.__dict__.get("forward")
    layer.__dict__["forward"] = pass_on
    try:
        yield
    finally:
        del layer.__dict__["forward"]
        if before is not None:  # a norm that is folded passes on already
            layer.__dict__["forward"] = before


def _scale(scale: Tensor, shift: Tensor, input: Tensor) -> Tensor:
    shape = (1, -1, *(1,) * (input.ndim - 2))
    return torch.addcmul(shift.view(shape), input, scale.view(shape))


def is_frozen_norm(m: Any) -> bool:
    """Whether this is a batch norm whose statistics are fixed in eval mode."""
    return type(m) in NORMS and m.running_mean is not None and m.running_var is not None


def is_free(m: nn.Module) -> bool:
    """Whether this is a layer to fold that nobody else has a hand on."""
    if not is_frozen_norm(m):
        has_weight = isinstance(m, CONVOLUTIONS) and isinstance(
            m._parameters.get("weight"), nn.Parameter
        )
        if not has_weight or "bias" not in m._parameters:
            return False
    return is_unheard(m)


def is_unheard(m: nn.Module) -> bool:
    """Whether nobody listens to a module with hooks, and its forward pass is its class's own."""
    hooked = m._forward_hooks or m._forward_pre_hooks or m._backward_hooks
    return not hooked and not m._backward_pre_hooks and "forward" not in m.__dict__


def is_sealed(m: nn.Module) -> bool:
    """Whether a module is compiled, scripted or spread over devices."""
    spread = (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)
    compiled = getattr(m, "_compiled_call_impl", None) is not None or "_orig_mod" in m._modules
    return isinstance(m, spread) or compiled
