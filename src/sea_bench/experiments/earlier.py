"""Our maps of today beside scores of the same inputs that an archive keeps: earlier ours, rivals.

Rivals do not change when our function does, so they need not be measured again: ``sea bench NAME
--ours`` measures maps with a budget alone and pairs them, input by input, with the archive.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sea_bench.experiments.archive import read_scores
from sea_bench.experiments.experiment import Compared, Findings, Table
from sea_bench.experiments.gain import GAIN, compute_gain
from sea_nn.errors import InputError
from sea_nn.metrics import Metric, bootstrap_difference, bootstrap_mean

ROUNDED = 1e-4  # the archive has five digits of a score
NOTE = (
    "On the {n} inputs that both have. Before: scores of the same inputs in {name}. Each cell is "
    "the mean and, in brackets, the 95 % interval of the paired difference: to the same budget "
    "before, to the next larger budget before, and to the best of all other methods. **Better**, "
    "*worse*, plain: not told apart."
)


def compare_with_earlier(findings: Findings, path: Path, name: str) -> Findings:
    """Add a table of paired differences for each metric that both have."""
    parts = [part for part in findings.parts if isinstance(part, Compared)]
    if len(parts) != 1:
        raise InputError(f"{name} has no single table of maps, so --ours cannot be compared")
    (part,) = parts
    names, methods, before = read_scores(path, name)
    here = [name for name, _ in part.names]
    shared = [one for one in here if one in names]
    if not shared:
        raise InputError(f"none of the {len(here)} inputs is in {path}: was its seed another?")
    rows = torch.tensor([here.index(one) for one in shared])
    others = torch.tensor([names.index(one) for one in shared])
    if GAIN not in before and (gain := compute_gain(before)) is not None:
        before[GAIN] = gain
    now = {key: values[rows] for key, values in part.scores.values.items()}
    then = {key: values[others] for key, values in before.items() if key in now}
    ours = [label for label in part.scores.methods if label in methods and label in part.ours]
    table = [
        _compare(part.scores.metrics[key], now[key], then[key], part.scores.methods, methods, ours)
        for key in then
        if key not in ("evaluations", "seconds")
    ]
    head = ["metric", "best of the others", *ours]
    note = NOTE.format(n=len(shared), name=path.name)
    return replace(
        findings, parts=[*findings.parts, Table("Beside earlier scores", note, head, table)]
    )


def _compare(
    metric: Metric,
    now: Tensor,
    then: Tensor,
    here: Sequence[str],
    methods: Sequence[str],
    ours: Sequence[str],
) -> list[str]:
    rivals = [k for k, label in enumerate(methods) if not label.startswith("SEA")]
    means = then[:, rivals].mean(0)
    best = rivals[int(means.argmax() if metric.direction == "higher" else means.argmin())]
    cells = []
    for k, label in enumerate(ours):
        own = now[:, list(here).index(label)]
        larger = ours[min(k + 1, len(ours) - 1)]
        pairs = (methods.index(label), methods.index(larger), best)
        cells.append(
            f"{float(bootstrap_mean(own[:, None]).mean[0]):.3f} "
            + "; ".join(write_difference(own, then[:, other], metric) for other in pairs)
        )
    return [f"{metric.name} {metric.arrow}", f"{methods[best]} {float(then[:, best].mean()):.3f}",
            *cells]  # fmt: skip


def write_difference(own: Tensor, other: Tensor, metric: Metric) -> str:
    """The paired difference of values [N] with its interval, marked where it leaves out 0."""
    apart = bootstrap_difference(torch.stack([other, own], 1), 0, middle=metric.middle)
    mean, low, high = (float(e[1]) for e in (apart.mean, apart.low, apart.high))
    text = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
    if low <= 0 <= high or max(abs(low), abs(high)) < ROUNDED:
        return text
    return f"**{text}**" if (low > 0) == (metric.direction == "higher") else f"*{text}*"
