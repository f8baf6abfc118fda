"""The submodular core against the paper's network form, apricot and submodlib."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.table import Table, peak_memory, seconds
from sea_nn import DSF, SEAConfig, ensemble, maximize
from sea_nn.paper import heatmaps as heatmap
from tests.reference import paper


def smooth_maps(count: int, m: int, side: int, seed: int = 0) -> torch.Tensor:
    """Heatmaps with the smoothness and skew of real ones: blurred noise, squared, scaled."""
    generator = torch.Generator().manual_seed(seed)
    kernel = max(3, side // 8 * 2 + 1)
    raw = torch.rand(count, m, side, side, generator=generator, dtype=torch.float64)
    raw = torch.nn.functional.avg_pool2d(raw, kernel, 1, kernel // 2) + 0.02 * raw
    return heatmap.scale(heatmap.scale(raw, 2) ** 2, 2)


def reference_seconds(maps: torch.Tensor, start: tuple[float, float] | None) -> float:
    """Fit and map of one input in the paper's form: every candidate through the whole network."""
    net = paper.Network(maps.shape[1], start=start)

    def work() -> None:
        paper.train(net, maps, tuple(range(5, 51, 5)))
        paper.algorithm1(net, maps.shape[1])

    return seconds(work, repeats=1, warm=False)


def paper_form() -> Table:
    maps = smooth_maps(256, 3, 28)
    slow = reference_seconds(maps[0].flatten(1), None)
    rows = [["network form, 1 input", f"{slow * 1e3:,.0f}", "1"]]
    for name, config in (
        ("`ensemble`, `SEAConfig.paper('fmnist')`, 256 inputs", SEAConfig.paper("fmnist")),
        ("`ensemble`, default (mirror descent), 256 inputs", SEAConfig()),
    ):
        fast = seconds(lambda c=config: ensemble(maps, c), repeats=5) / len(maps)
        rows.append([name, f"{fast * 1e3:.3f}", f"{slow / fast:,.0f}"])
    note = (
        "n = 784, m = 3, fit (50 epochs) and map; same result (tests/ensembling/test_ensemble.py)."
    )
    return "a. The paper's training", note, ["form", "ms an input", "times faster"], rows


def full_resolution() -> Table:
    rows, base = [], None
    for side in (28, 112, 224, 512, 1000):
        maps = smooth_maps(1, 3, side).repeat(16 if side <= 224 else 1, 1, 1, 1)
        cells = [f"{side * side:,}"]
        for config in (SEAConfig(), SEAConfig.paper("fmnist")):
            cells.append(seconds(lambda c=config, x=maps: ensemble(x, c), 7) / len(maps))
        scale = side**2 * math.log2(side**2)
        base = base or [t / scale for t in cells[1:]] if side >= 112 else None
        growth = (
            [f"{t / scale / b:.2f}" for t, b in zip(cells[1:], base, strict=True)]
            if base
            else ["", ""]
        )
        rows.append([cells[0], *(f"{t * 1e3:.1f}" for t in cells[1:]), *growth])
    note = (
        "m = 3, no grid, 16 inputs (1 above n = 50,176). The last columns are time / (n log n), "
        "relative to n = 12,544."
    )
    header = [
        "n",
        "default, ms an input",
        "paper preset, ms",
        "default / n log n",
        "paper / n log n",
    ]
    return "b. Full resolution", note, header, rows


def any_dsf() -> Table:
    maps = smooth_maps(8, 3, 28)
    config = SEAConfig.paper("fmnist").replace(init=(0.0, 1.0))
    slow = reference_seconds(maps[0].flatten(1), (0.0, 1.0))
    rows = [["naive form, 1 input", f"{slow:.2f}", "1"]]
    for count in (1, 8):
        fast = seconds(lambda k=count: ensemble(maps[:k], config), repeats=1) / count
        rows.append([f"`ensemble`, batch of {count}", f"{fast:.3f}", f"{slow / fast:,.0f}"])
    note = "Random start, 784-512-256-32-1, paper objective, fit (50 epochs) and map; same result."
    return "c. Any deep submodular function", note, ["form", "s an input", "times faster"], rows


def against_peers() -> Table:
    n, d, k = 10_000, 100, 1_000
    data = np.random.default_rng(0).random((n, d)) ** 4
    f = DSF(n, widths=(d,), bias=False)
    with torch.no_grad():
        f.weights[0].copy_(torch.from_numpy(data.T))
    ours = maximize(f, k)
    rows = [["`maximize`, lazy", seconds(lambda: maximize(f, k), 7), ours.order.numpy()]]
    rows.append(["`maximize`, naive", seconds(lambda: maximize(f, k, "naive"), 1, False), None])
    try:
        import apricot

        for optimizer in ("lazy", "two-stage"):

            def select(o: str = optimizer) -> object:
                return apricot.FeatureBasedSelection(k, "sqrt", optimizer=o).fit(data)

            select()
            rows.append([f"apricot, {optimizer}", seconds(select, 1, False), select().ranking])
    except ImportError:
        rows.append(["apricot (not installed)", math.nan, None])
    try:
        from submodlib import FeatureBasedFunction
        from submodlib_cpp import FeatureBased

        # Its sparse input fails; its dense one is min-max scaled first, hence another order.
        peer = FeatureBasedFunction(n, data.tolist(), d, sparse=False, mode=FeatureBased.squareRoot)
        for optimizer, repeats in (("NaiveGreedy", 1), ("LazyGreedy", 7)):

            def search(o: str = optimizer) -> object:
                return peer.maximize(k, o, show_progress=False)

            rows.append([f"submodlib, {optimizer}", seconds(search, repeats, repeats > 1), None])
    except Exception as error:  # an optional peer that may not build or run here
        rows.append([f"submodlib (did not run: {str(error)[:60]})", math.nan, None])
    fast = rows[0][1]
    table = []
    for name, time, order in rows:
        same = "" if order is None else f"{np.mean(order == ours.order.numpy()):.1%}"
        table.append([name, f"{time:.3f}", f"{time / fast:.1f}", same])
    note = f"One-layer sqrt function, n = {n:,} candidates, {d} units, budget {k:,}."
    return (
        "d. Greedy against other libraries",
        note,
        ["method", "s", "relative", "same order"],
        table,
    )


def memory() -> Table:
    rows = []
    for side, count in ((28, 256), (224, 64), (1000, 4)):
        make = f"x = torch.rand({count}, 3, {side}, {side}); ensemble(x[:1, :, :9, :9])"
        used = [
            peak_memory(make, f"ensemble(x, {config}, keep_scorer=False)")
            for config in ("SEAConfig()", "SEAConfig.paper('fmnist')")
        ]
        given = count * 3 * side * side * 4 / 2**20
        rows.append([f"{side * side:,}", str(count), f"{given:.0f}", *(f"{u:.0f}" for u in used)])
    header = ["n", "inputs", "heatmaps, MiB", "default, MiB more", "paper preset, MiB more"]
    return "e. Peak memory beyond the heatmaps given", "", header, rows


def run() -> Iterator[Table]:
    """One table at a time, so that each is printed when it is ready."""
    for table in (paper_form, full_resolution, any_dsf, against_peers, memory):
        yield table()
