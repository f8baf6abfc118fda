"""The members against Captum called by hand, and what the SEA step adds.

On a CPU: time and memory for one photograph of 224 x 224. On a GPU: images a second of integrated
gradients and of the paper's ensemble, for several batch sizes. Captum's defaults put all steps of
all inputs into one pass; where that does not fit it is given an internal batch size, and the table
says so.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.resources import as_file, files
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.table import Table
from sea_nn.vision.images import Preprocess, load_image
from sea_nn.vision.models import load_model

CPU_PROGRAM = """
import resource, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from benchmarks.members import by_hand, ours, views
from sea_nn.vision.models import load_model
which, loaded = sys.argv[1], load_model("efficientnet-lite0")
model, x = loaded.model, views(loaded.preprocess, 1)
target = model(x).argmax(1).detach()
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
before, start = rss(), time.perf_counter()
maps, sea = (ours if which == "ours" else by_hand)(model, x, target)
print(time.perf_counter() - start, rss() - before, sea)
from safetensors.torch import save_file
save_file(dict(zip(("vg", "ig", "sg"), maps)), sys.argv[2])
"""


def load_photographs() -> list[Image.Image]:
    pictures = []
    for name in ("cat.jpg", "coffee.jpg"):
        with as_file(files("sea_nn.vision") / "assets" / name) as path:
            pictures.append(load_image(path))
    return pictures


def views(preprocess: Preprocess, count: int) -> Tensor:
    """Return `count` different crops of the two photographs that come with the library."""
    pictures, draw, found = load_photographs(), random.Random(0), []
    for number in range(count):
        picture = pictures[number % len(pictures)]
        side = round(draw.uniform(0.5, 1.0) * min(picture.size))
        left, top = (draw.randint(0, whole - side) for whole in picture.size)
        crop = picture.crop((left, top, left + side, top + side))
        found.append(preprocess(ImageOps.mirror(crop) if draw.random() < 0.5 else crop))
    return torch.stack(found)


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
    from sea_nn.members.run import compute_maps
    from sea_nn.members.member_maps import to_heatmaps

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
    note = (
        "EfficientNet-Lite0, one photograph of 224 x 224; VG, IG (50 steps) and SG (3 noisy IGs)."
    )
    if len(maps) == 2:
        same = [cosine(maps[0][name], maps[1][name]) for name in ("vg", "ig")]
        note += f" Cosine of the maps with Captum's: VG {same[0]:.4f}, IG {same[1]:.4f}."
    return "Members on a CPU", note, ["", "s", "memory, GiB more", "share of the SEA step"], rows


def cosines(a: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(a.double().flatten(1), b.double().flatten(1))


def cosine(a: Tensor, b: Tensor) -> float:
    """Return the least over inputs."""
    return float(cosines(a, b).min())


SAMPLES, STEPS = 3, 50
PAPER = ("saliency", "integrated_gradients", ("smooth_ig", {"preset": "paper"}))
FITS = 512  # points in a pass of Captum's where all at once do not fit
SECONDS = 360  # rows that would start later are left out


class Captum:
    """Captum's three methods as its documentation shows them, each timed alone."""

    def __init__(self, model: nn.Module) -> None:
        from captum.attr import IntegratedGradients, NoiseTunnel, Saliency

        ig = IntegratedGradients(model)
        self.vg, self.ig, self.sg = Saliency(model), ig, NoiseTunnel(ig)
        self.too_many = float("inf")  # points that did not fit into one pass

    def explain(self, x: Tensor, target: Tensor) -> tuple[list[Tensor], list[float], bool]:
        """Return the maps VG, IG, SG, the seconds each took, and whether one was split."""
        calls = [
            (1, partial(self.vg.attribute, x, target=target, abs=False)),
            (STEPS, partial(self.ig.attribute, x, target=target)),
            (
                SAMPLES * STEPS,
                partial(self.sg.attribute, x, target=target, nt_samples=SAMPLES, stdevs=1.0),
            ),
        ]
        maps, took, split = [], [], False
        for steps, call in calls:
            points = steps * len(x)
            if steps > 1 and points >= self.too_many:
                call, split = partial(call, internal_batch_size=FITS), True
                if steps > STEPS:  # or else the copies of all inputs are one pass
                    call = partial(call, nt_samples_batch_size=1)
            start = clock()
            found = _try(call)
            if found is None:
                if points >= self.too_many:
                    raise MemoryError(f"Captum does not fit {points} points in passes of {FITS}")
                self.too_many = points
                torch.cuda.empty_cache()
                return self.explain(x, target)
            took.append(clock() - start)
            maps.append(found.detach())
        return maps, took, split


def _try(call: Callable[[], Tensor]) -> Tensor | None:
    """Return what the call returns, or None if the GPU has no room for it."""
    try:
        return call()
    except torch.cuda.OutOfMemoryError:
        return None  # the error holds the memory of the call, so it must be gone before another


def clock() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def explain(
    model: nn.Module, x: Tensor, target: Tensor, methods: Any, compiled: bool = False
) -> tuple[list[Tensor], list[float], bool]:
    from sea_nn.members.run import compute_maps

    start = clock()
    found = compute_maps(model, x, target, methods, compile=compiled)
    return list(found.maps.values()), [clock() - start], False


def repeat(work: Callable[[], tuple[list[Tensor], list[float], bool]], size: int) -> Any:
    """Return the maps, the least time each took, and whether it was split.

    Small batches are run three times untimed: the third is the first that only replays. Large ones
    are run once untimed: a new shape may be compiled, or want other kernels and blocks of memory.
    """
    warm, repeats = (3, 5) if size == 1 else (3, 3) if size <= 8 else (1, 1)
    for _ in range(warm):
        work()
    runs = [work() for _ in range(repeats)]
    maps, _, split = runs[-1]
    return maps, [min(times) for times in zip(*(took for _, took, _ in runs), strict=True)], split


def pass_rate(model: nn.Module, x: Tensor, target: Tensor, points: int) -> float:
    """Return the points a second of bare passes: norms folded, no Python, no launches."""
    from sea_nn.model.borrowing import borrow
    from sea_nn.model.evaluator import Evaluator
    from sea_nn.model.forms import fold, run_by
    from sea_nn.model.outputs import TensorModel
    from sea_nn.model.recording import Recording

    count = min(points, 8 * STEPS)
    with borrow(model, x) as twin:
        evaluator = Evaluator(TensorModel(twin, check=False), x, target, x)
        evaluator = run_by(evaluator, fold(evaluator, gradients=True))
        batch = evaluator.arrange(x[:1].expand(count, -1, -1, -1))
        classes = target[:1].repeat(count)
        bare = Recording(lambda: evaluator.slope(batch, classes), x.device)
        start = clock()
        for _ in range(3):
            bare.replay()
        return 3 * count / (clock() - start)


def alike(model: nn.Module, x: Tensor, target: Tensor, captum: Captum) -> float:
    """Return the least cosine of SG and Captum's, given the same draws."""
    from sea_nn.model.noise import draw_normal, find_keys

    def normal(mean: float, deviation: Tensor) -> Tensor:
        keys = find_keys(x).repeat_interleave(SAMPLES)
        samples = torch.arange(SAMPLES, device=x.device).repeat(len(x))
        return mean + deviation * draw_normal(keys, samples, tuple(x.shape[1:])).to(x)

    with patch.object(torch, "normal", normal):
        theirs = captum.explain(x, target)[0][2]
    return cosine(explain(model, x, target, PAPER[2:])[0][0], theirs)


def on_gpu(sizes: tuple[int, ...] = (1, 8, 32, 128, 256)) -> list[Table]:
    from sea_nn.model.cuda_graphs import release

    warnings.simplefilter("ignore")
    alone: list[list[str]] = []
    together: list[list[str]] = []
    start = time.perf_counter()
    for name in ("efficientnet-lite0", "resnet50"):
        loaded = load_model(name, "cuda")
        model, every = loaded.model, views(loaded.preprocess, max(sizes))
        captum, rates = Captum(model), {}
        for size in sizes:
            if time.perf_counter() - start > SECONDS:
                for rows in (alone, together):
                    rows.append([name, str(size), "no time left", *[""] * 7])
                continue
            x = every[:size].cuda()
            with torch.no_grad():
                target = torch.cat([model(part).argmax(1) for part in x.split(64)])
            release()  # what is kept from the last row must not take Captum's memory
            torch.cuda.empty_cache()
            call = partial(captum.explain, x, target)
            theirs, took, split = repeat(call, size)
            torch.cuda.empty_cache()  # or the next call pays for giving Captum's memory back
            mark = " *" if split else ""
            for rows, methods, place, points in (
                (alone, PAPER[1:2], [1], STEPS),
                (together, PAPER, [0, 1, 2], 1 + STEPS + SAMPLES * STEPS),
            ):
                here = sum(took[k] for k in place)
                row = [name, str(size), f"{size / here:.1f}{mark}"]
                for compiled in (False, True):
                    call = partial(explain, model, x, target, methods, compiled)
                    maps, (mine,), _ = repeat(call, size)
                    same = [cosine(maps[j], theirs[k]) for j, k in enumerate(place) if k < 2]
                    row += [f"{size / mine:.1f}", f"{here / mine:.2f}", f"{min(same):.5f}"]
                    if not compiled:
                        count = min(size, 8) * STEPS
                        if count not in rates:
                            rates[count] = pass_rate(model, x, target, count)
                        bare = size * points / rates[count]
                        row.append(f"{max(0.0, 1 - bare / mine):.0%}")
                rows.append(row)
                print(" | ".join(row), flush=True)
            if size == 8:
                together[-1][5] += f" (SG {alike(model, x, target, captum):.5f})"
            del theirs, maps
        del captum, model
    header = [
        *("model", "batch", "Captum"),
        *("`sea_nn`", "ratio", "cosine", "outside the model"),
        *("compiled", "ratio", "cosine"),
    ]
    note = (
        "Images a second, of different crops of two photographs; the best of several calls after "
        "three untimed ones for batches of 1 and 8, the second for others. The cosine is the least "
        "over all inputs and maps{}. Outside the model is the time not spent in forward and "
        "backward passes, as measured by replaying passes of the folded model. Compiled is the "
        f"same call with `compile=True`, against the same Captum. * Captum in passes of {FITS} "
        "points, as one pass ran out of memory."
    )
    sg = ", for SG, whose draws differ, with Captum given ours at a batch of 8"
    return [
        ("Integrated gradients on a GPU, 50 steps", note.format(""), header, alone),
        ("The paper's ensemble (VG, IG, SG) on a GPU", note.format(sg), header, together),
    ]


def rounding(count: int = 32) -> Table:
    """How far TF32, PyTorch's default for convolutions, moves integrated gradients."""
    rows = []
    for name in ("efficientnet-lite0", "resnet50"):
        loaded = load_model(name, "cuda")
        model, x = loaded.model, views(loaded.preprocess, count).cuda()
        with torch.no_grad():
            target = model(x).argmax(1)
        method, found = Captum(model).ig, {}
        for precise in (True, False):
            # Not by cudnn.flags, which PyTorch 2.11 does not heed here.
            with patch.object(torch.backends.cudnn, "allow_tf32", not precise):
                parts = zip(x.split(8), target.split(8), strict=True)
                theirs = [method.attribute(a, target=b).detach() for a, b in parts]
                found["Captum", precise] = torch.cat(theirs)
                found["ours", precise] = explain(model, x, target, PAPER[1:2])[0][0]
        exact = found["Captum", True]
        pairs = (
            ("ours, single precision", found["ours", True], exact),
            ("ours, TF32", found["ours", False], exact),
            ("Captum, TF32", found["Captum", False], exact),
            ("ours, TF32, and Captum's, TF32", found["ours", False], found["Captum", False]),
        )
        for label, a, b in pairs:
            same = cosines(a, b)
            rows.append([name, label, f"{float(same.min()):.5f}", f"{float(same.mean()):.5f}"])
    note = (
        f"Cosines over {count} crops of two photographs, with Captum's map in single precision "
        "unless another is named."
    )
    return "Integrated gradients and TF32", note, ["model", "map", "least", "mean"], rows


def run() -> list[Table]:
    return [*on_gpu(), rounding()] if torch.cuda.is_available() else [on_cpu()]
