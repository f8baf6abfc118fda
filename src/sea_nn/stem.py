"""A first layer that is linear, taken out of the passes along straight lines.

Behind an affine layer L a straight line stays straight, L(a + t (b - a)) = L(a) + t (L(b) - L(a)),
and the gradients of all its points can be added up before they pass back through L. So L runs twice
a line, not twice a point. On a GPU that is a tenth of integrated gradients: the gradient of a first
convolution writes three channels, where its kernels are made for many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from sea_nn.fold import CONVOLUTIONS, agrees, is_free

if TYPE_CHECKING:
    from sea_nn.evaluator import Evaluator

ALIKE = 0.95
"""The least cosine of a gradient through the layer and around it: a path that is not there, or a
second use of the input, leaves far less."""


class Stem:
    """The layer that a model gives its input to, and to nothing else.

    Args:
        layer: the layer.
        shape: of its output for one input.
    """

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        self.layer, self.shape = layer, shape

    @torch.no_grad()
    def push(self, x: Tensor) -> Tensor:
        """Return the layer's output, rounded once: all points of a line share its errors."""
        weights = {name: p.detach().double() for name, p in self.layer.named_parameters()}
        output: Tensor = torch.func.functional_call(self.layer, weights, (x.double(),))
        return output.to(x.dtype)

    def pull(self, x: Tensor, slopes: Tensor) -> Tensor:
        """Return the gradient at the inputs x, from the one at the layer's output."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            output = self.layer(leaf)
        return torch.autograd.grad(output, leaf, slopes)[0]

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Make the layer pass on what it is given: the model then starts behind it."""
        self.layer.__dict__["forward"] = _pass
        try:
            yield
        finally:
            del self.layer.__dict__["forward"]


def find_stem(task: Evaluator) -> Stem | None:
    """Return the first layer if it is linear and alone sees the input, by trying it on one."""
    if task.module is None or task.args or task.autocast is not None:
        return None
    x = task.arrange(task.x[:1])
    rows = torch.zeros(1, dtype=torch.long, device=x.device)
    layer = _see_first(task, x, rows)
    if layer is None:
        return None
    try:
        base = task.arrange(task.baseline()[:1])
        start, end = (Stem(layer, ()).push(v) for v in (base, x))
        stem = Stem(layer, tuple(end.shape[1:]))
        if not agrees(stem.push((x + base) / 2), (start + end) / 2):
            return None
        behind = replace(task, x=end, headless=True)
        with stem.removed():
            with torch.no_grad():
                answer = behind.forward(end.clone(), rows)
            slopes = behind.gradient(end, rows)
        ours, own = stem.pull(x, slopes), task.gradient(x, rows)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception:  # a model that looks at the input once more may fail in any way
        return None
    same = cosine_similarity(ours.flatten().double(), own.flatten().double(), dim=0)
    return stem if agrees(answer, task.logits[:1]) and float(same) >= ALIKE else None


def _see_first(task: Evaluator, x: Tensor, rows: Tensor) -> nn.Module | None:
    """Return the convolution that is given x itself, and is called only once."""
    calls: dict[nn.Module, int] = {}
    given: list[nn.Module] = []

    def see(layer: nn.Module, inputs: Any) -> None:
        calls[layer] = calls.get(layer, 0) + 1
        if inputs and inputs[0] is x:
            given.append(layer)

    layers = [m for m in task.modules if isinstance(m, CONVOLUTIONS) and is_free(m)]
    handles = [m.register_forward_pre_hook(see) for m in layers]
    try:
        with torch.no_grad():
            task.forward(x, rows)
    finally:
        for handle in handles:
            handle.remove()
    return given[0] if len(given) == 1 and calls[given[0]] == 1 else None


def _pass(x: Tensor) -> Tensor:
    return x
