"""What TF32 does to integrated gradients, imitated on a CPU: which rounding matters, and which not.

TF32 keeps 10 bits of the operands of a convolution and adds up in single precision. Here operands
are rounded so, forward and backward, and the maps of ResNet-50 with norms folded in several ways
are compared with the model's own: with its own weights on the way forward, as `sea_nn.passes.norm_folding` has
them on a GPU, with folded ones both ways, and with a first layer that reads its points unrounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.members import STEPS, cosine, views
from benchmarks.table import Table
from sea_nn.passes import norm_folding as fold
from sea_nn.passes.borrowing import borrow
from sea_nn.passes.norm_folding import Fold
from sea_nn.passes.tracing import trace
from sea_nn.vision.models import load_model

POINTS = 10  # in a pass
_convolve = torch.nn.functional.conv2d


def cut(values: Tensor) -> Tensor:
    """Round to 10 bits behind the leading one, to even."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Rounded(torch.autograd.Function):
    """A convolution of rounded operands, whose gradient is one too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *window: Any) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.shape, ctx.window = x.shape, window
        return _convolve(cut(x), cut(weight), bias, *window)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Any, ...]:
        (weight,) = ctx.saved_tensors
        back = torch.nn.grad.conv2d_input(ctx.shape, cut(weight), cut(slopes[0]), *ctx.window)
        return back, *[None] * (2 + len(ctx.window))


@contextmanager
def rounded(first: bool = True) -> Iterator[None]:
    """Round the operands of convolutions, those of the one that reads colours only if `first`."""
    both_ways = fold._convolve

    def convolve(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        window = (stride, padding, dilation, groups)
        if weight.shape[1] == 3 and not first:
            return _convolve(x, weight, bias, *window)
        answer: Tensor = Rounded.apply(x, weight, bias, *window)
        return answer

    def convolve_pair(x: Tensor, weight: Tensor, *window: Any) -> Tensor:
        return both_ways(cut(x), cut(weight), *window)

    with (
        patch.object(torch.nn.functional, "conv2d", convolve),
        patch.object(fold, "_convolve", convolve_pair),
    ):
        yield


def integrate(model: nn.Module, x: Tensor, target: int) -> Tensor:
    """Return integrated gradients of an image from 0, [1, C, H, W]."""
    nodes, weights = np.polynomial.legendre.leggauss(STEPS)
    total = torch.zeros_like(x)
    for steps, counts in zip(
        torch.tensor((1 + nodes) / 2).float().split(POINTS),
        torch.tensor(weights / 2).float().split(POINTS),
        strict=True,
    ):
        points = (steps.view(-1, 1, 1, 1) * x).requires_grad_(True)
        (grads,) = torch.autograd.grad(model(points)[:, target].sum(), points)
        total += (grads * counts.view(-1, 1, 1, 1)).sum(0)
    return total * x


def run(count: int = 3) -> list[Table]:
    loaded = load_model("resnet50")
    model, rows = loaded.model, []
    images = views(loaded.preprocess, count)
    with borrow(model, images) as twin:
        layers = trace(twin)
        merged, faithful = (Fold(twin, layers, faithful=own).module for own in (False, True))
        for number, x in enumerate(images.split(1)):
            with torch.no_grad():
                target = int(model(x).argmax())
            exact = integrate(twin, x, target)
            with rounded():
                theirs = integrate(twin, x, target)
            found = [("as it is", theirs)]
            for label, form, first in (
                ("norms folded, own weights on the way forward", faithful, True),
                ("the same, first layer exact", faithful, False),
                ("norms folded both ways", merged, True),
                ("the same, first layer exact", merged, False),
            ):
                with rounded(first):
                    found.append((label, integrate(form, x, target)))
            for label, maps in found:
                to_theirs = "" if maps is theirs else f"{cosine(maps, theirs):.5f}"
                rows.append([str(number + 1), label, f"{cosine(maps, exact):.5f}", to_theirs])
                print(" | ".join(rows[-1]), flush=True)
    note = "Cosines of integrated gradients of ResNet-50, operands of convolutions in 10 bits."
    header = ["photograph", "model", "with the exact map", "with the rounded model's as it is"]
    return [("Which rounding moves integrated gradients", note, header, rows)]
