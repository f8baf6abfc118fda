"""One projected step, in three ways [M5]."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad

from sea_nn.config import SEAConfig

ADAGRAD_EPS = 1e-10  # as torch.optim.Adagrad


class Solver:
    """Moves a list of non-negative tensors [N, ...] against their gradients, in place.

    Args:
        config: the solver and its rates.
        layers: for each tensor, whether it is one layer; else each of its entries is one.

    "adagrad" is torch.optim.Adagrad followed by a clamp at zero. "gradient" and "mirror" divide
    each tensor's gradient by its largest entry first, so that the learning rate means the same for
    every input and layer: w <- (w - rate g)+ and w <- w exp(-rate g).
    """

    def __init__(self, config: SEAConfig, layers: list[bool]) -> None:
        self.config = config
        self.layers = layers  # False where every entry of a tensor is a layer of its own
        self.squares: list[Tensor] = []
        self.steps: list[Tensor] = []

    def step(self, epoch: int | Tensor, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Take step number ``epoch`` (from 0); the gradients are overwritten.

        On a GPU the number may be a float64 tensor, so that a captured step can be replayed.
        """
        config = self.config
        rate = config.learning_rate / (1 + config.lr_decay * epoch)
        if config.solver == "adagrad" and not self.squares:
            self.squares = [torch.zeros_like(p) for p in parameters]
            self.steps = [torch.zeros((), device=p.device) for p in parameters]
        if config.solver == "adagrad" and not isinstance(epoch, Tensor) and is_fused(gradients[0]):
            step_fused(parameters, gradients, self.squares, self.steps, config)
            for parameter in parameters:
                parameter.clamp_(min=0)
            return
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if config.weight_decay:
                gradient.add_(parameter, alpha=config.weight_decay)
            if config.solver == "adagrad":
                root = self.squares[i].addcmul_(gradient, gradient).sqrt().add_(ADAGRAD_EPS)
                if isinstance(rate, Tensor):
                    parameter.sub_(gradient.div_(root).mul_(rate)).clamp_(min=0)
                else:
                    parameter.addcdiv_(gradient, root, value=-rate).clamp_(min=0)
                continue
            size = gradient.abs()
            if self.layers[i]:
                size = size.flatten(1).amax(1).reshape(-1, *[1] * (gradient.ndim - 1))
            gradient.div_(size.clamp_min_(torch.finfo(gradient.dtype).tiny)).mul_(-rate)
            if config.solver == "mirror":
                parameter.mul_(gradient.exp_())
            else:
                parameter.add_(gradient).clamp_(min=0)


def step_fused(
    parameters: list[Tensor],
    gradients: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
    config: SEAConfig,
) -> None:
    """Torch's own Adagrad in one sweep over memory; it counts its steps itself."""
    adagrad(
        parameters,
        [gradient.contiguous() for gradient in gradients],
        squares,
        steps,
        fused=True,
        lr=config.learning_rate,
        lr_decay=config.lr_decay,
        weight_decay=config.weight_decay,
        eps=ADAGRAD_EPS,
        maximize=False,
    )


def is_fused(like: Tensor) -> bool:
    """Whether this torch has Adagrad in one kernel for tensors of this kind."""
    return _try_fused(like.device, like.dtype)


@lru_cache(maxsize=8)
def _try_fused(device: torch.device, dtype: torch.dtype) -> bool:
    one, other, square = ([torch.ones(1, device=device, dtype=dtype)] for _ in range(3))
    try:
        step_fused(one, other, square, [torch.zeros((), device=device)], SEAConfig())
    except (RuntimeError, TypeError, ValueError):  # each is what some version says
        return False
    return True
