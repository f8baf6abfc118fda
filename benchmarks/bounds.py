"""How many candidates each upper bound leaves to evaluate, on DSFs of the paper's size."""

from __future__ import annotations

import torch

from benchmarks.table import Table
from sea_nn import DSF

STEPS = (0, 1, 5, 10, 20, 50)


@torch.no_grad()
def contenders(f: DSF, steps: int) -> list[tuple[int, int, int]]:
    """After 0 … steps greedy steps: survivors of each bound, and of the search's cubic."""
    phi, matrix = f.activation, f.matrix(0)
    z = f.offset(0).clone()
    free = torch.ones(f.n, dtype=torch.bool)
    counts = []
    for _ in range(steps + 1):
        sums = f.finish(z)
        gains = f.rise(sums, matrix.mT)[0]
        best = gains[free].max()
        at_set = (f.upper_slope(sums) * phi.slope(z) @ matrix)[0, 0]
        average = matrix[:, :, free].mean(2).unsqueeze(1)
        anchor = f.finish(z + average)
        common, upper = f.rise(sums, average)[0, 0], f.upper_slope(anchor)
        slope = upper * phi.slope(anchor[0])
        at_average = common + (slope @ (matrix - average.mT))[0, 0]
        apart = matrix - average.mT
        (second, third), (_, i) = phi.cubic, phi.expand(anchor[0])
        bend = second * (slope * i) @ apart**2 + third * (slope * i**2) @ apart**3
        cubic = at_average + bend[0, 0].clamp(max=0)
        level = best * (1 - 1e-12)
        counts.append(
            tuple(int((bound[free] >= level).sum()) for bound in (at_set, at_average, cubic))
        )
        chosen = int(torch.where(free, gains, -1).argmax())
        z, free[chosen] = z + matrix[:, None, :, chosen], False
    return counts


def run() -> list[Table]:
    rows = []
    generator = torch.Generator().manual_seed(0)
    for init in ((0.0, 1.0), (0.5, 1.5)):
        for spread in (0.0, 0.5):
            f = DSF(784, init=init)
            with torch.no_grad():
                draw = torch.randn(784, generator=generator, dtype=torch.float64)
                f.weights[0].mul_(torch.exp(spread * draw))
            found = contenders(f, max(STEPS))
            for label, which in (
                ("gradient at the set", 0),
                ("tangent at the average", 1),
                ("cubic at the average", 2),
            ):
                cells = [str(found[step][which]) for step in STEPS]
                rows.append([f"{init}, spread {spread}", label, *cells])
    note = (
        "784-512-256-32-1, weights uniform in the interval, columns scaled by "
        "exp(spread × normal), seed 0. Candidates whose bound reaches the best gain, after so "
        "many greedy steps."
    )
    header = ["start", "bound", *(f"step {step}" for step in STEPS)]
    return [("Contenders left by each bound", note, header, rows)]
