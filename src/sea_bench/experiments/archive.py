"""Scores by input in one archive: NAME.csv for each table of each page, all in one zip file.

A row is one input and one method. Later runs are compared with these scores input by input, so
that rivals, and earlier versions of ours, are not measured again.
"""

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sea_bench.experiments.experiment import Compared
from sea_nn.errors import InputError
from sea_nn.explanation.atomic import write_atomically

ARCHIVE = "archive.zip"
PUBLISHED = Path("docs/results") / ARCHIVE
ABOUT = ("input", "name", "class", "method")
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal scores make equal files


def write_scores(path: Path, name: str, parts: Sequence[Compared]) -> None:
    """Put the scores of one experiment into an archive, in the place of its earlier ones."""
    new = {
        name if len(parts) == 1 else f"{name}.{number}": _write_csv(part)
        for number, part in enumerate(parts)
    }
    texts = _read_all(path)
    for key in [key for key in texts if key == name or key.startswith(f"{name}.")]:
        del texts[key]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as file:
        for key, text in sorted({**texts, **new}.items()):
            file.writestr(zipfile.ZipInfo(f"{key}.csv", MOMENT), text, zipfile.ZIP_LZMA)
    with write_atomically(path) as out:
        out.write(content.getvalue())


def read_scores(path: Path, name: str) -> tuple[list[str], list[str], dict[str, Tensor]]:
    """Return inputs' names, methods and values by metric, [N, m], of one experiment's table.

    Raises:
        InputError: no such archive, or no such table in it; names those that are there.
    """
    texts = _read_all(path)
    if name not in texts:
        there = ", ".join(sorted(texts)) or "nothing"
        raise InputError(f"{path} has no scores of {name!r}; it has: {there}")
    rows = list(csv.DictReader(io.StringIO(texts[name])))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    first = rows[:: len(methods)]
    if len(rows) != len(first) * len(methods):
        raise InputError(f"{name} in {path} should have a row for each input and method")
    values = {}
    for metric in (key for key in rows[0] if key not in ABOUT):
        found = torch.tensor([float(row[metric]) for row in rows], dtype=torch.float64)
        values[metric] = found.view(len(first), len(methods))
    return [row["name"] or row["input"] for row in first], methods, values


def _write_csv(part: Compared) -> str:
    """One row for each input and method; an input's name stands in the first of its rows alone."""
    text, scores = io.StringIO(), part.scores
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*ABOUT, *scores.metrics])
    for row in range(len(scores)):
        about = part.names[row] if part.names else ("", "")
        for column, method in enumerate(scores.methods):
            values = [f"{float(scores.values[m][row, column]):.5g}" for m in scores.metrics]
            writer.writerow([row, *(about if column == 0 else ("", "")), method, *values])
    return text.getvalue()


def _read_all(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as file:
        return {one.removesuffix(".csv"): file.read(one).decode() for one in file.namelist()}
