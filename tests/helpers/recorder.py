"""Recorded passes: a stand-in for machines without a CUDA device, a network, what is kept."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sea_nn.model import borrowing
from sea_nn.model import cuda_graphs as replay
from sea_nn.model.borrowing import copy_twin
from sea_nn.model.evaluator import Evaluator
from sea_nn.model.outputs import TensorModel


class Again:
    """Stands in for a recording: runs the function again, into the same tensor."""

    made = 0
    replayed = 0

    def __init__(self, run: Callable[[], Tensor], device: torch.device) -> None:
        Again.made += 1
        self.run, self.output = run, run()

    def replay(self) -> Tensor:
        Again.replayed += 1
        return self.output.copy_(self.run())


def build() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6(inplace=True)),
        *(nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.SiLU(), nn.Flatten(), nn.Linear(5 * 36, 3)),
    )
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.running_mean)
            nn.init.normal_(m.weight)
    return model.eval()


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def compare(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance=1e-5) -> bool:
    return all(
        (found[name].cpu() - expected[name].cpu()).abs().max()
        <= tolerance * expected[name].abs().max()
        for name in expected
    )


def find_kept(model: nn.Module) -> replay.Kept:
    """What is kept with the model's idle twin."""
    return replay._KEPT[borrowing._IDLE[model].module]


def make_evaluator(model, x: Tensor, **options) -> Evaluator:
    target = torch.zeros(len(x), dtype=torch.long, device=x.device)
    model = copy_twin(model.requires_grad_(False))
    with torch.no_grad():
        return Evaluator(TensorModel(model), x, target, model(x), **options)
