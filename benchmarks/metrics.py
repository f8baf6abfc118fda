"""Perturbation metrics: our batched code, Quantus and a plain loop, on the same maps in one run.

    python benchmarks/metrics.py [--device cuda] [--inputs 200] [--threads 2]

Fashion-MNIST test images, the shipped CNN, the maps of three methods and their mean. Ties in the
maps are broken beforehand, so that all three rank pixels alike. Every implementation runs on all
inputs; the table gives the median of a few runs, the largest difference between the values, and
which share of our time is spent inside the classifier. Quantus is left out if it is not installed,
and where it has no such metric.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from sea_nn.data.fashion import load_cnn, load_sample
from sea_nn.explainers import compute_maps
from sea_nn.heatmap import reduce_channels, scale
from sea_nn.metrics import score_maps
from sea_nn.metrics.curve import trapezoid
from sea_nn.metrics.draws import random_map
from sea_nn.metrics.perturbation import prepare

STEPS, SIZE, POINTS = 28, 8, 8


class Timed(nn.Module):
    """A model that adds up the time spent inside it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.seconds, self.inputs = model, 0.0, 0

    def forward(self, x: Tensor) -> Tensor:
        wait(x)
        started = time.perf_counter()
        logits: Tensor = self.model(x)
        wait(x)
        self.seconds += time.perf_counter() - started
        self.inputs += len(x)
        return logits


def wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize()


def make_maps(model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Tensor]:
    methods = ("saliency", "integrated_gradients", "smooth_ig")
    raw = compute_maps(model, x, target, methods).maps
    maps = {name: scale(reduce_channels(one)) for name, one in raw.items()}
    maps["mean"] = torch.stack(list(maps.values())).mean(0)
    # In double precision no two pixels, and no two windows, are alike.
    shake = random_map(tuple(maps["mean"].shape), seed=1, device=x.device)
    return {name: one.double() + 1e-6 * shake.double() for name, one in maps.items()}


class Loop:
    """One input, one map, one step at a time."""

    def __init__(self, model: nn.Module, x: Tensor, target: Tensor, maps: dict[str, Tensor]):
        self.model, self.x, self.target, self.maps = model, x, target, maps

    def ask(self, image: Tensor, target: Tensor) -> float:
        with torch.no_grad():
            return float(self.model(image[None]).softmax(1)[0, target])

    def pixels(self, fill: Tensor, insert: bool) -> Tensor:
        table = []
        for heatmap in self.maps.values():
            for image, hidden, target, one in zip(self.x, fill, self.target, heatmap, strict=True):
                order = one.flatten().argsort(descending=True)
                first, second = (hidden, image) if insert else (image, hidden)
                curve = []
                for step in range(STEPS + 1):
                    point = first.flatten(1).clone()
                    places = order[: step * len(order) // STEPS]
                    point[:, places] = second.flatten(1)[:, places]
                    curve.append(self.ask(point.view_as(image), target))
                table.append(trapezoid(torch.tensor(curve), 1 / STEPS))
        return torch.stack(table).view(len(self.maps), -1).T

    def windows(self, fill: Tensor) -> Tensor:
        table = []
        for heatmap in self.maps.values():
            for image, hidden, target, one in zip(self.x, fill, self.target, heatmap, strict=True):
                height, width = one.shape
                corners = [
                    (float(one[r : r + SIZE, c : c + SIZE].mean()), r, c)
                    for r in range(height - SIZE + 1)
                    for c in range(width - SIZE + 1)
                ]
                taken: list[tuple[int, int]] = []
                point, curve = image.clone(), [self.ask(image, target)]
                for _, r, c in sorted(corners, reverse=True):
                    if any(abs(r - a) < SIZE and abs(c - b) < SIZE for a, b in taken):
                        continue
                    taken.append((r, c))
                    part = slice(r, r + SIZE), slice(c, c + SIZE)
                    point[:, part[0], part[1]] = hidden[:, part[0], part[1]]
                    curve.append(self.ask(point, target))
                    if len(curve) == POINTS:
                        break
                curve += curve[-1:] * (POINTS - len(curve))
                table.append(trapezoid(torch.tensor(curve)))
        return torch.stack(table).view(len(self.maps), -1).T


def flip_pixels(model: nn.Module, x: Tensor, target: Tensor, maps: dict[str, Tensor]) -> Tensor:
    """Quantus' PixelFlipping as it comes; the intact input is added, as Quantus leaves it out."""
    import quantus

    with torch.no_grad():
        start = model(x).softmax(1).gather(1, target[:, None]).squeeze(1).cpu()
    columns = []
    for one in maps.values():
        metric = quantus.PixelFlipping(
            features_in_step=x[0, 0].numel() // STEPS,
            perturb_baseline="black",
            normalise=False,
            disable_warnings=True,
            display_progressbar=False,
        )
        curves = metric(
            model=model,
            x_batch=x.cpu().numpy(),
            y_batch=target.cpu().numpy(),
            a_batch=one.unsqueeze(1).cpu().numpy(),
            softmax=True,
            device=str(x.device),
        )
        curve = torch.cat([start[:, None], torch.as_tensor(np.array(curves))], 1)
        columns.append(trapezoid(curve, 1 / STEPS))
    return torch.stack(columns, 1)


def measure(run: Callable[[], Tensor], repeats: int) -> tuple[Tensor, float]:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        values = run()
        times.append(time.perf_counter() - started)
    return values, statistics.median(times)


def has_quantus() -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import quantus  # noqa: F401
    except ImportError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--inputs", type=int, default=200, help="of the 200 shipped images")
    parser.add_argument("--threads", type=int, help="CPU threads; left out, PyTorch's choice")
    parser.add_argument("--repeats", type=int, default=3)
    choice = parser.parse_args()
    if choice.threads:
        torch.set_num_threads(choice.threads)
    warnings.simplefilter("ignore")
    sample, model = load_sample(), load_cnn(choice.device)
    x = sample.images[torch.linspace(0, 199, choice.inputs).long()].to(choice.device)
    with torch.no_grad():
        target = model(x).argmax(1)
    maps = make_maps(model, x, target)
    loop = Loop(model, x, target, maps)
    whole = torch.ones(len(x), 28, 28, dtype=torch.bool, device=x.device)
    fills = {
        kind: prepare(x, kind, bounds=(0, 1)).hide(whole, torch.arange(len(x), device=x.device))
        for kind in ("black", "blur", "noise")
    }
    plain: dict[str, Callable[[], Tensor]] = {
        "deletion:black": lambda: loop.pixels(fills["black"], False),
        "insertion:black": lambda: loop.pixels(fills["black"], True),
        "deletion:blur": lambda: loop.pixels(fills["blur"], False),
        "aupc_windows:black": lambda: loop.windows(fills["black"]),
        "aupc_windows:noise": lambda: loop.windows(fills["noise"]),
    }
    others = {"deletion:black": lambda: flip_pixels(model, x, target, maps)}
    timed = Timed(model)

    def ours(*names: str) -> Tensor:
        scores = score_maps(timed, x, target, maps, names, bounds=(0, 1), random=False)
        return torch.cat([scores.values[name] for name in names], 1)

    print(f"{len(x)} Fashion-MNIST images, {len(maps)} maps each, {choice.device}, "
          f"{torch.get_num_threads()} CPU threads, torch {torch.__version__}\n")  # fmt: skip
    head = ["metric", "ours s", "Quantus s", "loop s", "Quantus/ours", "loop/ours",
            "largest difference", "asked", "in classifier"]  # fmt: skip
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    ours(*plain)  # warm up
    loops: dict[str, tuple[Tensor, float]] = {}
    for name, run in plain.items():
        show(
            name, timed, choice.repeats, lambda name=name: ours(name), run, others.get(name), loops
        )
    timed.seconds, timed.inputs = 0.0, 0
    values, seconds = measure(lambda: ours(*plain), choice.repeats)
    total = sum(loops[name][1] for name in plain)
    gap = float((values - torch.cat([loops[name][0] for name in plain], 1)).abs().max())
    print(f"| all five in one call | {seconds:.3f} | - | {total:.2f} | - | {total / seconds:.1f} | "
          f"{gap:.1e} | {timed.inputs // choice.repeats} | "
          f"{timed.seconds / choice.repeats / seconds:.0%} |")  # fmt: skip


def show(
    name: str,
    timed: Timed,
    repeats: int,
    ours: Callable[[], Tensor],
    loop: Callable[[], Tensor],
    other: Callable[[], Tensor] | None,
    loops: dict[str, tuple[Tensor, float]],
) -> None:
    timed.seconds, timed.inputs = 0.0, 0
    started = time.perf_counter()
    mine, seconds = measure(ours, repeats)
    share = timed.seconds / (time.perf_counter() - started)
    asked = timed.inputs // repeats
    loops[name] = measure(loop, 1)
    gaps, theirs = [float((mine - loops[name][0]).abs().max())], None
    if other is not None and has_quantus():
        other()  # warm up
        values, theirs = measure(other, repeats)
        gaps.append(float((mine - values).abs().max()))
    cells = [
        name,
        f"{seconds:.3f}",
        "-" if theirs is None else f"{theirs:.2f}",
        f"{loops[name][1]:.2f}",
        "-" if theirs is None else f"{theirs / seconds:.1f}",
        f"{loops[name][1] / seconds:.1f}",
        f"{max(gaps):.1e}",
        str(asked),
        f"{share:.0%}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
