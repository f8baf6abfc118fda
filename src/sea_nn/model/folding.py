"""Run batch norms in eval mode as what they are: fixed linear maps, folded into convolutions.

An explainer makes hundreds of passes with frozen statistics, and a norm reads and writes every
activation once more than needed: without it a forward pass of EfficientNet-Lite0 is 1.24 times as
fast on a CPU. Which norm follows which convolution is seen in a pass that is made anyway; that the
folded copy is the model is then proved by an answer that is asked for anyway (``Probe.begin``).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from sea_nn.model.borrowing import LISTENERS, copy_twin, is_private

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
Pairs = list[tuple[str, str]]


@contextmanager
def watch_norms(twin: Any) -> Iterator[Pairs]:
    """Note, while a twin runs, which norm alone read what which convolution gave.

    The list is full once the block is left. Layers that somebody listens to with hooks, or that
    run more than once, are left alone.
    """
    pairs: Pairs = []
    if not is_private(twin) or not {type(m) for m in twin.modules()} & set(NORMS):
        yield pairs
        return
    made: dict[int, tuple[str, Tensor]] = {}  # the outputs stay alive, or a number could come twice
    runs: Counter[str] = Counter()
    seen: Pairs = []
    handles = []
    for name, m in twin.named_modules():
        if any(m.__dict__.get(kind) for kind in LISTENERS):
            continue
        if isinstance(m, CONVOLUTIONS) and "weight" in m._parameters:

            def note(_: Any, __: Any, output: Tensor, name: str = name) -> None:
                runs[name] += 1
                made[id(output)] = name, output

            handles.append(m.register_forward_hook(note))
        elif type(m) in NORMS and m.running_mean is not None and m.running_var is not None:

            def match(_: Any, inputs: Any, name: str = name) -> None:
                runs[name] += 1
                if id(inputs[0]) in made:
                    seen.append((made[id(inputs[0])][0], name))

            handles.append(m.register_forward_pre_hook(match))
    try:
        yield pairs
    finally:
        for handle in handles:
            handle.remove()
    twice = Counter(conv for conv, _ in seen)
    pairs += [(a, b) for a, b in seen if runs[a] == runs[b] == twice[a] == 1]


@torch.no_grad()
def fold(twin: nn.Module, pairs: Pairs) -> nn.Module:
    """Return a copy of a twin with these norms folded into their convolutions.

    It shares all tensors with the twin but for the folded weights.
    """
    copy = copy_twin(twin)
    named: dict[str, Any] = dict(copy.named_modules())
    for conv, norm in ((named[a], named[b]) for a, b in pairs):
        if conv.weight.dtype != norm.running_mean.dtype:
            continue
        conv._parameters["weight"], conv._parameters["bias"] = fuse_conv_bn_weights(
            *(conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps),
            *(norm.weight, norm.bias),
        )
        norm.__dict__["forward"] = _pass_on
    return copy


def _pass_on(input: Tensor) -> Tensor:
    """Stand in for a norm that is merged with a convolution; `input` as layers name it."""
    return input
