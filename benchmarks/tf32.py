"""What TF32 does to integrated gradients, layer by layer, imitated on a CPU.

TF32 keeps 10 bits of the operands of a convolution and adds up in single precision. Here operands
are rounded so, forward and backward, and the maps of ResNet-50 with norms folded are compared with
the model's own: with the first layer rounded at every point, as Captum and a GPU have it, and with
it exact, as `sea_nn.stem` has it.
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
from sea_nn.borrow import borrow
from sea_nn.fold import Fold, plan
from sea_nn.models import load_model

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
def rounded(first: bool) -> Iterator[None]:
    """Round the operands of convolutions, those of the one that reads colours only if `first`."""

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

    with patch.object(torch.nn.functional, "conv2d", convolve):
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
    with borrow(model):
        images = views(loaded.preprocess, count)
        fold = Fold(plan(model, lambda: model(images[:1])))
        for number, x in enumerate(images.split(1)):
            with torch.no_grad():
                target = int(model(x).argmax())
            exact = integrate(model, x, target)
            with rounded(first=True):
                theirs = integrate(model, x, target)
                with fold.applied():
                    folded = integrate(model, x, target)
            with rounded(first=False), fold.applied():
                apart = integrate(model, x, target)
            for label, found in (
                ("as it is", theirs),
                ("norms folded", folded),
                ("norms folded, first layer exact", apart),
            ):
                to_theirs = "" if found is theirs else f"{cosine(found, theirs):.5f}"
                rows.append([str(number + 1), label, f"{cosine(found, exact):.5f}", to_theirs])
                print(" | ".join(rows[-1]), flush=True)
    note = "Cosines of integrated gradients of ResNet-50, operands of convolutions in 10 bits."
    header = ["photograph", "model", "with the exact map", "with the rounded model's as it is"]
    return [("TF32 imitated on a CPU", note, header, rows)]
