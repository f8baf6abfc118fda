"""Whether another form of a model is the model: its outputs and gradients, up to rounding."""

import torch
from torch import Tensor

# How far apart rounding may bring them: single precision, TF32 and half precision. Of outputs, as a
# share of their spread; of a gradient, of its length. Where an activation has a kink, rounding may
# turn a unit on or off, so gradients are less alike than outputs: on EfficientNet-Lite0, .04.
_LOGITS = {"cpu": 1e-3, "cuda": 0.02}
_GRADIENTS = {"cpu": 0.1, "cuda": 0.2}
_HALF = {torch.float16: (0.02, 0.3), torch.bfloat16: (0.05, 0.7)}


def same_outputs(found: Tensor, expected: Tensor, autocast: torch.dtype | None = None) -> Tensor:
    """Return whether outputs [N, classes] are the same, as a bool on their device.

    They are compared with the spread of the outputs, between classes or between inputs: an offset
    that all of them share does not hide a difference.
    """
    a, b = found.detach().double(), expected.detach().double()
    share = _HALF[autocast][0] if autocast in _HALF else _LOGITS.get(a.device.type, 1e-3)
    spread = torch.maximum((b - b.mean(1, keepdim=True)).abs().max(), (b - b.mean(0)).abs().max())
    spread = torch.where(spread > 0, spread, b.abs().max())  # one output of one input
    return ((a - b).abs() <= share * spread + torch.finfo(found.dtype).tiny).all()


def same_gradients(found: Tensor, expected: Tensor, autocast: torch.dtype | None = None) -> Tensor:
    """Return whether gradients [N, ...] are the same for every input, as a bool on their device."""
    a, b = found.detach().flatten(1), expected.detach().flatten(1)
    share = _HALF[autocast][1] if autocast in _HALF else _GRADIENTS.get(a.device.type, 0.1)
    norm = torch.linalg.vector_norm
    apart, long = (norm(v, dim=1, dtype=torch.float64) for v in (a - b, b))
    same: Tensor = apart <= share * long + torch.finfo(b.dtype).tiny
    return same.all()
