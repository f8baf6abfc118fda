"""``sea bench speed_core``: the paper's part beside its network form and other libraries."""

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sea_bench.experiments.experiment import Findings, Run, Table, experiment
from sea_bench.speed.timing import find_in_tests, measure_peak, take_seconds
from sea_nn import DSF, SEAConfig, ensemble, maximize
from sea_nn.features import scale


def smooth_maps(count: int, m: int, side: int, seed: int = 0) -> Tensor:
    """Heatmaps with the smoothness and skew of real ones: blurred noise, squared, scaled."""
    generator = torch.Generator().manual_seed(seed)
    kernel = max(3, side // 8 * 2 + 1)
    raw = torch.rand(count, m, side, side, generator=generator, dtype=torch.float64)
    raw = torch.nn.functional.avg_pool2d(raw, kernel, 1, kernel // 2) + 0.02 * raw
    return scale(scale(raw, 2) ** 2, 2)


def time_network_form(maps: Tensor) -> float:
    """Fit and map of one input in the paper's form: every candidate through the whole network."""
    paper = find_in_tests("reference.paper")
    net = paper.Network(maps.shape[1], start=None)

    def work() -> None:
        paper.train(net, maps, tuple(range(5, 51, 5)))
        paper.algorithm1(net, maps.shape[1])

    return take_seconds(work, repeats=1, warm=False)


def time_paper_form() -> Table:
    """Both of our forms of the training beside the paper's."""
    maps = smooth_maps(256, 3, 28)
    slow = time_network_form(maps[0].flatten(1))
    rows = [["network form, 1 input", f"{slow * 1e3:,.0f}", "1"]]
    for name, config in (
        ("`SEAConfig.paper('fmnist')`, 256 inputs", SEAConfig.paper("fmnist")),
        ("default (mirror descent), 256 inputs", SEAConfig()),
    ):
        fast = take_seconds(partial(ensemble, maps, config), 5) / len(maps)
        rows.append([name, f"{fast * 1e3:.3f}", f"{slow / fast:,.0f}"])
    note = "n = 784, m = 3, fit (50 epochs) and map; same result (tests compare them)."
    return Table("The paper's training", note, ["form", "ms an input", "times faster"], rows)


def time_full_resolution() -> Table:
    """Time by the number of pixels."""
    rows = []
    for side in (28, 112, 224, 512):
        maps = smooth_maps(4, 3, side)
        cells = [f"{side * side:,}"]
        for config in (SEAConfig(), SEAConfig.paper("fmnist")):
            took = take_seconds(partial(ensemble, maps, config)) / len(maps)
            scale = side**2 * math.log2(side**2)
            cells += [f"{took * 1e3:.1f}", f"{took / scale * 1e9:.1f}"]
        rows.append(cells)
    header = ["n", "default, ms", "ns / (n log n)", "paper preset, ms", "ns / (n log n)"]
    return Table("Full resolution", "m = 3, no grid, 4 inputs; times are of one.", header, rows)


def time_greedy() -> Table:
    """Lazy greedy beside apricot's, where it is installed."""
    n, d, k = 10_000, 100, 1_000
    data = np.random.default_rng(0).random((n, d)) ** 4
    f = DSF(n, widths=(d,), bias=False)
    with torch.no_grad():
        f.weights[0].copy_(torch.from_numpy(data.T))
    order = maximize(f, k).order.numpy()
    fast = take_seconds(lambda: maximize(f, k))
    rows = [["`maximize`, lazy", f"{fast:.3f}", "1", ""]]
    slow = take_seconds(lambda: maximize(f, k, "naive"), 1, False)
    rows.append(["`maximize`, naive", f"{slow:.3f}", f"{slow / fast:.1f}", "100 %"])
    try:
        import apricot
    except ImportError:
        rows.append(["apricot (not installed)", "–", "–", ""])
    else:
        found = apricot.FeatureBasedSelection(k, "sqrt", optimizer="lazy")
        took = take_seconds(lambda: found.fit(data), 1)
        same = f"{np.mean(found.ranking == order):.1%}"
        rows.append(["apricot, lazy", f"{took:.3f}", f"{took / fast:.1f}", same])
    note = f"One-layer sqrt function, n = {n:,} candidates, {d} units, budget {k:,}."
    return Table("Greedy", note, ["method", "s", "relative", "same order"], rows)


def measure_memory() -> Table:
    """Peak memory beyond the heatmaps given."""
    rows = []
    for side, count in ((28, 256), (224, 64)):
        make = f"x = torch.rand({count}, 3, {side}, {side}); ensemble(x[:1, :, :9, :9])"
        used = [
            measure_peak(make, f"ensemble(x, {config})")
            for config in ("SEAConfig()", "SEAConfig.paper('fmnist')")
        ]
        given = count * 3 * side * side * 4 / 2**20
        rows.append([f"{side * side:,}", str(count), f"{given:.0f}", *(f"{u:.0f}" for u in used)])
    header = ["n", "inputs", "heatmaps, MiB", "default, MiB more", "paper preset, MiB more"]
    return Table("Peak memory beyond the heatmaps given", "", header, rows)


@experiment("speed_core", "How fast is the paper's part?", "made here", n_inputs=1)
def core(run: Run) -> Findings:
    """The learning of f and its map beside the paper's network form and other libraries' greedy."""
    run.tell("four tables", 0, 1)
    tables = (time_paper_form, time_full_resolution, time_greedy, measure_memory)
    return Findings([table() for table in tables])
