"""Perturbation metrics: our batched code, Quantus and a plain loop, on the same maps in one run.

    python -m benchmarks metrics            # on a GPU where there is one, else on the CPU

Fashion-MNIST images, the shipped CNN, the maps of three methods and their mean. Ties in the maps
are broken beforehand, so that all three rank pixels alike. Times are for one map of one input, the
least of a few runs in turn; "in classifier" is the share of our time that the model itself takes,
by CUDA events on a GPU. "classifier" is the time that the model alone needs for as many inputs,
given to it ready-made in the best layout and in chunks that suit it: nothing that asks the whole
model as much is faster.
On a CPU a second table has the time that the classifier would take at the machine's peak.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.members import load_photographs
from benchmarks.table import Table
from sea_nn.members.run import compute_maps
from sea_nn.metrics import pixel_bounds, score_maps
from sea_nn.metrics.curve import trapezoid
from sea_nn.model.noise import random_map
from sea_nn.paper.heatmaps import to_heatmap
from sea_nn.questions.absent import blur, prepare
from sea_nn.vision.models import load_model
from sea_nn.vision.shipped import load_cnn, load_sample

STEPS, SIZE, POINTS = 28, 8, 8
REPEATS = 5
CHUNKS = {"cpu": (16, 32, 64, 128), "cuda": (1024, 4096)}
HEADER = [
    "metric",
    "ours, ms a map",
    "Quantus",
    "plain loop",
    "Quantus / ours",
    "loop / ours",
    "classifier",
    "in classifier",
    "asked a map",
    "largest difference",
]


class Timed(nn.Module):
    """A model that adds up the time spent inside it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.reset()

    def reset(self) -> None:
        self.spent: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.seconds, self.inputs = 0.0, 0

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            # Events wait for nothing: the queue stays full, as it is without them.
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            pair[0].record()
        started = time.perf_counter()
        logits: Tensor = self.model(x)
        if x.is_cuda:
            pair[1].record()
            self.spent.append(pair)
        else:
            self.seconds += time.perf_counter() - started
        self.inputs += len(x)
        return logits

    def total(self) -> float:
        wait()
        return self.seconds + sum(a.elapsed_time(b) for a, b in self.spent) / 1e3


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def least(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The least wall time of a few runs: other work on the machine only adds to it."""
    times = []
    for _ in range(repeats):
        wait()
        started = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - started)
    return min(times)


def break_ties(maps: dict[str, Tensor]) -> dict[str, Tensor]:
    """In double precision and shaken a little, no two pixels, and no two windows, are alike."""
    some = next(iter(maps.values()))
    shake = random_map(tuple(some.shape), seed=1, device=some.device).double()
    return {name: one.double() + 1e-6 * shake for name, one in maps.items()}


def make_maps(model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Tensor]:
    methods = ("saliency", "integrated_gradients", "smooth_ig")
    raw = compute_maps(model, x, target, methods).maps
    maps = {name: to_heatmap(one) for name, one in raw.items()}
    return break_ties({**maps, "mean": torch.stack(list(maps.values())).mean(0)})


class Loop:
    """One input, one map, one step at a time."""

    def __init__(
        self, model: nn.Module, x: Tensor, target: Tensor, maps: dict[str, Tensor], steps: int
    ) -> None:
        self.model, self.x, self.target, self.maps = model, x, target, maps
        self.steps = steps

    def run(self, name: str, fill: Tensor) -> Tensor:
        kind = name.partition(":")[0]
        table = [
            self.windows(*one) if kind == "aupc_windows" else self.pixels(kind, *one)
            for heatmap in self.maps.values()
            for one in zip(self.x, fill, self.target, heatmap, strict=True)
        ]
        return torch.stack(table).view(len(self.maps), -1).T

    def ask(self, image: Tensor, target: Tensor) -> float:
        with torch.no_grad():
            return float(self.model(image[None]).softmax(1)[0, target])

    def pixels(
        self, kind: str, image: Tensor, hidden: Tensor, target: Tensor, one: Tensor
    ) -> Tensor:
        order = one.flatten().argsort(descending=True)
        first, second = (hidden, image) if kind == "insertion" else (image, hidden)
        curve = []
        for step in range(self.steps + 1):
            point = first.flatten(1).clone()
            places = order[: step * len(order) // self.steps]
            point[:, places] = second.flatten(1)[:, places]
            curve.append(self.ask(point.view_as(image), target))
        return trapezoid(torch.tensor(curve), 1 / self.steps)

    def windows(self, image: Tensor, hidden: Tensor, target: Tensor, one: Tensor) -> Tensor:
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
            part = slice(None), slice(r, r + SIZE), slice(c, c + SIZE)
            point[part] = hidden[part]
            curve.append(self.ask(point, target))
            if len(curve) == POINTS:
                break
        curve += curve[-1:] * (POINTS - len(curve))
        return trapezoid(torch.tensor(curve))


def flip_pixels(
    model: nn.Module, x: Tensor, target: Tensor, maps: dict[str, Tensor], steps: int
) -> Tensor:
    """Quantus' PixelFlipping as it comes; the intact input is added, as Quantus leaves it out."""
    import quantus

    with torch.no_grad():
        start = model(x).softmax(1).gather(1, target[:, None]).squeeze(1).cpu()
    columns = []
    for one in maps.values():
        metric = quantus.PixelFlipping(
            features_in_step=x[0, 0].numel() // steps,
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
        columns.append(trapezoid(curve, 1 / steps))
    return torch.stack(columns, 1)


def has_quantus() -> bool:
    try:
        import quantus  # noqa: F401
    except ImportError:
        return False
    return True


def time_classifier(model: nn.Module, x: Tensor) -> float:
    """Seconds an input of the model alone, in the best layout and the best of a few chunks."""
    best = float("inf")
    for size in CHUNKS[x.device.type]:
        some = x.repeat(-(-size // len(x)), 1, 1, 1)[:size]
        for layout in (torch.contiguous_format, torch.channels_last):
            ready = some.clone(memory_format=layout)
            with torch.inference_mode():
                model(ready)
                best = min(best, least(partial(model, ready), 20) / size)
    return best


def compare(
    model: nn.Module,
    x: Tensor,
    maps: dict[str, Tensor],
    names: tuple[str, ...],
    bounds: object,
    peers: dict[str, int],
) -> list[list[str]]:
    """A row a metric, and one for all of them in one call.

    Args:
        model: the classifier.
        x: inputs.
        maps: by method.
        names: of the metrics.
        bounds: of the pixels.
        peers: how many inputs the peers run on, by their name; they are slow.
    """
    timed, rows = Timed(model), []
    loops: list[float] = []  # of single metrics: a loop gains nothing from doing all in one call
    with torch.no_grad():
        target = model(x).argmax(1)
    alone = time_classifier(model, x)
    calls = [(name,) for name in names] + ([names] if len(names) > 1 else [])

    def ours(*asked: str) -> dict[str, Tensor]:
        found = score_maps(timed, x, target, maps, asked, bounds=bounds, random=False)
        return found.values

    for asked in calls:
        name, gap, count = asked[0], 0.0, len(x) * len(maps)
        runs, sizes = {"ours": partial(ours, *asked)}, {"ours": count}
        for peer, n in peers.items() if len(asked) == 1 else ():
            run = _find_peer(peer, name, model, x[:n], target[:n], _head(maps, n), bounds)
            if run is not None:
                runs[peer], sizes[peer] = run, n * len(maps)
        values = {label: run() for label, run in runs.items()}
        # They take turns: a machine has faster and slower minutes.
        found = [{label: least(run, 1) for label, run in runs.items()} for _ in range(REPEATS)]
        times = {label: min(one[label] for one in found) / sizes[label] for label in runs}
        if "loop" in times:
            loops.append(times["loop"])
        elif len(asked) > 1 and len(loops) == len(asked):
            times["loop"] = sum(loops)
        scores, own = values.pop("ours"), times["ours"]
        timed.reset()
        whole = least(partial(ours, *asked), 1)
        share, inputs = timed.total() / whole, timed.inputs / count
        for other in values.values():
            gap = max(gap, float((scores[name][: len(other)] - other).abs().max()))
        cells = [name if len(asked) == 1 else "all of these in one call", f"{own * 1e3:.3f}"]
        cells += [f"{times[p] * 1e3:.2f}" if p in times else "" for p in ("Quantus", "loop")]
        cells += [f"{times[p] / own:.1f}" if p in times else "" for p in ("Quantus", "loop")]
        cells += [f"{alone * inputs * 1e3:.3f}", f"{share:.0%}", f"{inputs:.1f}"]
        rows.append([*cells, f"{gap:.1e}" if values else ""])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def _head(maps: dict[str, Tensor], n: int) -> dict[str, Tensor]:
    return {name: one[:n] for name, one in maps.items()}


def _find_peer(
    peer: str,
    name: str,
    model: nn.Module,
    x: Tensor,
    target: Tensor,
    maps: dict[str, Tensor],
    bounds: object,
) -> Callable[[], Tensor] | None:
    kind, _, rest = name.partition(":")
    how, _, option = rest.partition(",steps=")
    steps = int(option or STEPS)
    if peer == "Quantus":
        fits = kind == "deletion" and how == "black" and has_quantus()
        return (lambda: flip_pixels(model, x, target, maps, steps)) if fits else None
    hidden = torch.ones(len(x), *x.shape[2:], dtype=torch.bool, device=x.device)
    fill = prepare(x, how, bounds=bounds).hide(hidden, torch.arange(len(x), device=x.device))
    return lambda: Loop(model, x, target, maps, steps).run(name, fill)


def fashion(device: str, count: int, peers: dict[str, int]) -> Table:
    model, sample = load_cnn(device), load_sample().images.to(device)
    x = sample.repeat(-(-count // len(sample)), 1, 1, 1)[:count]
    with torch.no_grad():
        maps = make_maps(model, x, model(x).argmax(1))
    names = (
        "deletion:black",
        "insertion:black",
        "deletion:blur",
        "aupc_windows:black",
        "aupc_windows:noise",
    )
    rows = compare(model, x, maps, names, (0, 1), peers)
    few = min(count, 200) if device == "cuda" else 20
    fine = (f"deletion:black,steps={x[0, 0].numel()}",)
    more = compare(model, x[:few], _head(maps, few), fine, (0, 1), {"Quantus": few, "loop": 1})
    rows += more
    said = ", ".join(f"{peer} {n}" for peer, n in peers.items())
    distinct = min(count, len(sample))
    note = (
        f"{count} Fashion-MNIST inputs ({distinct} different ones), {len(maps)} maps each, on "
        f"{device}, {torch.get_num_threads()} CPU threads; of these, {said}. Quantus is its "
        f"PixelFlipping, with 28 pixels a step as ours, and in the last row, on {few} inputs, "
        "one pixel a step, its default."
    )
    return f"Perturbation metrics, Fashion-MNIST, {device}", note, HEADER, rows


def photographs(device: str, count: int) -> Table:
    loaded = load_model("efficientnet-lite0", device)
    x = torch.stack([loaded.preprocess(one) for one in load_photographs()]).to(device)
    x = torch.cat([x.roll(8 * k, -1) for k in range(-(-count // 2))])[:count]
    raw = compute_maps(loaded.model, x, None, ("saliency", "input_x_gradient")).maps
    maps = {name: to_heatmap(one) for name, one in raw.items()}
    smooth = {f"{name}, smooth": blur(one[:, None], 8)[:, 0] for name, one in maps.items()}
    maps = break_ties({**maps, **smooth})
    names = (
        "aupc_windows:noise",
        "deletion:blur",
        "insertion:blur",
        "deletion:inpaint",
        "insertion:inpaint",
    )
    bounds = pixel_bounds(loaded.preprocess.mean, loaded.preprocess.std)
    rows = compare(loaded.model, x, maps, names, bounds, {})
    note = (
        f"EfficientNet-Lite0, {count} inputs of 224 x 224 pixels, {len(maps)} maps each, two of "
        "them smooth, which takes in-painting longest."
    )
    return f"Perturbation metrics, photographs, {device}", note, HEADER, rows


def run() -> Iterator[Table]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if torch.cuda.is_available():
            yield fashion("cuda", 10_000, {"Quantus": 200, "loop": 10})
            yield photographs("cuda", 32)
        else:
            yield fashion("cpu", 100, {"Quantus": 100, "loop": 10})


if __name__ == "__main__":
    from benchmarks.table import to_markdown

    for table in run():
        print(to_markdown(*table))
