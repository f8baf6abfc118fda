"""The core on a CUDA device, with the floor that bandwidth and arithmetic set."""

from __future__ import annotations

import torch

from benchmarks.core import smooth_maps
from benchmarks.table import Table, seconds
from sea_nn import SEAConfig, ensemble


def ceilings() -> tuple[float, float]:
    """Bytes a second of a large copy, float64 operations a second of a large product."""
    big = torch.rand(1 << 28, device="cuda")
    other = torch.empty_like(big)
    copy = 2 * big.numel() * 4 / seconds(lambda: other.copy_(big), 9)
    square = torch.rand(8192, 8192, device="cuda", dtype=torch.float64)
    return copy, 2 * 8192**3 / seconds(lambda: square @ square, 3)


def run() -> list[Table]:
    bandwidth, rate = ceilings()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rows = []
    for name, config, count, side in (
        ("paper preset", SEAConfig.paper("fmnist"), 1024, 28),
        ("default", SEAConfig(), 1024, 28),
        ("paper preset", SEAConfig.paper("fmnist"), 64, 224),
        ("default", SEAConfig(), 64, 224),
        ("default", SEAConfig(), 4, 1000),
    ):
        maps = smooth_maps(8, 3, side).repeat(count // 8 + 1, 1, 1, 1)[:count].cuda()
        time = seconds(lambda c=config, x=maps: ensemble(x, c), 5) / count
        # Each epoch streams the heatmaps twice (value, gradient), weights and Adagrad's state.
        moved = 8 * side * side * (2 * 3 + (6 if config.solver == "adagrad" else 4)) * config.epochs
        floor = moved / bandwidth
        peak = torch.cuda.max_memory_allocated() / 2**20
        torch.cuda.reset_peak_memory_stats()
        rows.append(
            [
                name,
                str(count),
                f"{side * side:,}",
                f"{time * 1e3:.4f}",
                f"{floor * 1e3:.4f}",
                f"{time / floor:.1f}",
                f"{peak:,.0f}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
        del maps
    for count in (1024, 1536):
        config = SEAConfig.paper("fmnist").replace(init=(0.0, 1.0))
        maps = smooth_maps(8, 3, 28).repeat(count // 8, 1, 1, 1).cuda()
        time = (
            seconds(lambda c=config, x=maps: ensemble(x, c, chunk=len(x), keep_scorer=False), 1)
            / count
        )
        parameters = 784 * 512 + 512 * 256 + 256 * 32 + 32
        arithmetic = 6 * 64 * parameters * config.epochs / rate
        floor = max(arithmetic, 8 * 6 * parameters * config.epochs / bandwidth)
        peak = torch.cuda.max_memory_allocated() / 2**20
        torch.cuda.reset_peak_memory_stats()
        rows.append(
            [
                "any DSF, paper objective",
                str(count),
                "784",
                f"{time * 1e3:.3f}",
                f"{floor * 1e3:.3f}",
                f"{time / floor:.1f}",
                f"{peak:,.0f}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    note = (
        f"{torch.cuda.get_device_name()}: copy {bandwidth / 1e12:.2f} TB/s, float64 product "
        f"{rate / 1e12:.1f} TFLOP/s. The floor of the collapsed form streams heatmaps, weights and "
        "state once an epoch; that of a full network is the larger of its training's arithmetic "
        "and its update's bytes (greedy not counted)."
    )
    header = ["form", "batch", "n", "ms an input", "floor, ms", "times the floor", "peak MiB"]
    return [("The core on a GPU", note, header, rows)]
