"""Texts measured one by one, remembered on disk, and tables of what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sea_bench.experiments.store import Store, hash_source, make_key
from sea_bench.experiments.studies import Tell, table
from sea_bench.experiments.text_maps import Marked, score_text_maps
from sea_bench.machine import describe_machine
from sea_nn.metrics.bootstrap import bootstrap_difference, bootstrap_mean
from sea_nn.text.model import TextModel
from sea_nn.vision.folders import find_cache

MARKS = ("F1", "AUPRC", "IoU")
CURVES = ("comprehensiveness", "sufficiency", "deletion", "insertion")
LOWER = ("sufficiency", "deletion")
EXPLAINED = (
    "F1: of as many first words as are marked, the share that is marked; IoU: the same words, "
    "common ones by those in either; AUPRC: the area under precision and recall of marked words. "
    "Deletion: the mean probability where the first 1, 2, … words are absent; insertion: where "
    "only they are left. Comprehensiveness is the whole text's probability less deletion, "
    "sufficiency the same less insertion. After the colon: how words are absent. Means over texts "
    "± half of the 95 % bootstrap interval. ▲ better, ▼ worse than {against} by the 95 % interval "
    "of the paired difference. Numbers after a name are model evaluations a text."
)


class Part(NamedTuple):
    """Names of maps, their values by metric, [N, m], and how many texts each machine measured."""

    names: Sequence[str]
    values: Mapping[str, Tensor]
    machines: Mapping[str, int]

    def tell_machines(self) -> list[str]:
        """Which machine measured what."""
        return [f"{count} texts were measured by: {name}" for name, count in self.machines.items()]


def measure_texts(
    items: Sequence[Marked],
    models: Mapping[str, TextModel],
    compute: Callable[[Marked], dict[str, Tensor]],
    settings: Mapping[str, object],
    tell: Tell,
) -> Part:
    """The scores of every map of every text; ``settings`` determine them beside the text."""
    store, rows = Store(find_cache("bench")), []
    names: list[str] = []
    machines: Counter[str] = Counter()
    here = describe_machine(next(iter(models.values())).device)
    for number, item in enumerate(items):
        tell(f"{settings['study']}: text {number + 1}", number, len(items))
        known = {**settings, "ends": item.ends, "target": item.target, "source": hash_source()}
        key = make_key(known, 0, item.reading.given["input_ids"], item.marked)
        found = store.read(key)
        if found is None:
            maps = compute(item)
            found = score_text_maps(models, item, maps), {"names": list(maps), "machine": here}
            store.write(key, *found)
        rows.append(found[0])
        names = found[1]["names"]
        machines[found[1]["machine"]] += 1
    values = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return Part(names, values, machines)


def tabulate_texts(part: Part, against: str, absences: Sequence[str]) -> list[str]:
    """Tables: marked words, and curves of words by each way of absence."""
    names, values = part.names, part.values
    lines = []
    for columns in (MARKS, *([f"{c}:{absent}" for c in CURVES] for absent in absences)):
        lower = [name.startswith(LOWER) for name in columns]
        head = [f"{name} {'↓' if low else '↑'}" for name, low in zip(columns, lower, strict=True)]
        cells = [
            _column(values[c], names, against, low) for c, low in zip(columns, lower, strict=True)
        ]
        rows = [[name, *row] for name, *row in zip(names, *cells, strict=True)]
        lines += [*table(["order by", *head], rows), ""]
    return lines


def _column(values: Tensor, names: Sequence[str], against: str, lower: bool) -> list[str]:
    mean = bootstrap_mean(values)
    apart = bootstrap_difference(values, list(names).index(against))
    best = mean.mean.argmin() if lower else mean.mean.argmax()
    cells = []
    for k in range(len(names)):
        half = float(mean.high[k] - mean.low[k]) / 2
        text = f"{float(mean.mean[k]):.3f} ± {half:.3f}"
        text = f"**{text}**" if k == int(best) else text
        low, high = float(apart.low[k]), float(apart.high[k])
        mark = "" if low <= 0 <= high else " ▲" if (low > 0) != lower else " ▼"
        cells.append(text + mark)
    return cells
