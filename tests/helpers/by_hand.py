"""Small models, and two ways to explain them: Captum called by hand, and this package."""

import warnings
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from sea_nn.members.masking import draw_seed
from sea_nn.members.run import compute_maps
from sea_nn.model.noise import draw_normal, draw_uniform, find_keys


def build_cnn(activation=nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        activation(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        activation(inplace=True),
        nn.Flatten(),
        nn.Linear(8 * 64, 5),
    )
    model[4].running_mean.normal_()
    return model.double().eval()


def build_series() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()),
        *(nn.Linear(4 * 10, 6), nn.Tanh(), nn.Linear(6, 3)),
    ).double()


def build_table() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 3)).double()


def pick(kind: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a model, three inputs and their targets: an "image", "series" or "table"."""
    build, shape = {
        "image": (build_cnn, (3, 3, 16, 16)),
        "series": (build_series, (3, 2, 20)),
        "table": (build_table, (3, 6)),
    }[kind]
    torch.manual_seed(3)
    return build(), torch.randn(shape, dtype=torch.float64), torch.tensor([0, 2, 1])


def by_hand(attribution, x: Tensor, target: Tensor, each: bool = False, seed: int = 0, **options):
    """Call Captum; with `each`, on each input alone and with the draws that are that input's."""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        if not each:
            return attribution.attribute(x.clone(), target=target, **options).detach()
        maps = []
        for i in range(len(x)):
            one = x[i : i + 1].clone()
            with lend_draws(find_keys(one, seed)):
                maps.append(attribution.attribute(one, target=target[i], **options))
        return torch.cat(maps).detach()


def lend_draws(key: Tensor) -> ExitStack:
    """Let what Captum draws be what this package draws for the input with this key."""

    def normal(mean, deviation):
        samples = torch.arange(len(deviation))
        return mean + deviation * draw_normal(
            key.expand(len(samples)), samples, deviation.shape[1:]
        )

    torch.manual_seed(draw_seed(key[0]))
    stack = ExitStack()
    stack.enter_context(patch.object(torch, "normal", normal))
    stack.enter_context(
        patch.object(np.random, "uniform", lambda a, b, n: draw_uniform(key, -2, n)[0].numpy())
    )
    return stack


def ours(model, x, target, name, baselines=None, seed=0, limit=None, **options):
    return compute_maps(
        *(model, x, target, [(name, options)]),
        baselines=baselines,
        seed=seed,
        limit=limit,
    ).maps[name]


def same(a: Tensor, b: Tensor, tolerance: float = 1e-6) -> bool:
    assert a.shape == b.shape
    assert b.abs().max() > 0
    return bool((a - b).abs().max() <= tolerance * b.abs().max())
