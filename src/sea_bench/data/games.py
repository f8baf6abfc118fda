"""Games: what a real model says with any subset of an input's features left, all 2^n of them.

A set is a number whose bit j says whether feature j is left, and a game is the table of the
model's answers by that number. So the best order there is can be found exactly, and every order
compared with it.

>>> table = np.array([0.1, 0.8, 0.2, 0.9])  # feature 0 decides
>>> round(quality(table, 2, [0, 1]), 2), round(quality(table, 2, [1, 0]), 2)
(0.6, -0.6)
>>> round(optimum(table, 2), 2)
0.6
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sea_bench.data.files import SetInfo
from sea_nn.errors import InputError

Table = NDArray[np.float64]

GAMES = SetInfo(
    name="games",
    title="every answer of a ViT, a ResNet-18 and a sentiment classifier",
    folder="shapiq_games",
    source="https://github.com/mmschlk/shapiq, folder data/precomputed_games",
    layout="the folders vit_16, vit_9, resnet18_14 and sentiment_14 with .npz files in each",
    terms="MIT",
)
KINDS = {
    "vit_16": "ViT, 16 patches",
    "vit_9": "ViT, 9 patches",
    "resnet18_14": "ResNet-18, 14 superpixels",
    "sentiment_14": "sentiment, 14 words",
}
SMALLEST = 1e-6  # answers stay this far from 0 and 1, so that every one has log-odds


def list_games(kind: str, folder: str | Path | None = None) -> list[Path]:
    """Return the files of one kind of game, by name."""
    return sorted(GAMES.find(folder).need(kind).glob("*.npz"))


def read_game(path: str | Path) -> tuple[int, Table]:
    """Return the number of features n and the probability by set, float64 [2^n].

    Answers from -1 to 1, as the sentiment classifier gives them, are brought to 0 to 1.
    """
    with np.load(path, allow_pickle=False) as file:
        n = int(np.ravel(file["n_players"])[0])
        sets, values = np.asarray(file["coalitions"], bool), np.asarray(file["values"], float)
    if sets.shape != (1 << n, n) or values.shape != (1 << n,):
        raise InputError(f"{path} should have all {1 << n} sets of {n}; it has {sets.shape}.")
    table = np.full(1 << n, np.nan)
    table[number_sets(sets)] = values
    if np.isnan(table).any():
        raise InputError(f"{path} has some of the {1 << n} sets twice, or no answer to them.")
    if table.min() < 0:
        table = (table + 1) / 2
    return n, np.clip(table, SMALLEST, 1 - SMALLEST)


def number_sets(sets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the numbers of sets, bool [..., n]."""
    numbers: NDArray[np.int64] = sets.astype(np.int64) @ (1 << np.arange(sets.shape[-1]))
    return numbers


def quality(table: Table, n: int, order: Sequence[int]) -> float:
    """Return the mean over k of p(only the first k left) - p(the first k removed), 0 < k < n.

    Args:
        table: answers by set, [2^n].
        n: the number of features.
        order: all of them, the most important first.
    """
    left = np.cumsum(1 << np.asarray(order, np.int64)[:-1])
    return float((table[left] - table[(1 << n) - 1 - left]).mean())


def optimum(table: Table, n: int) -> float:
    """Return the best ``quality`` of any order, exactly, by dynamic programming over all sets."""
    full, sets = (1 << n) - 1, np.arange(1 << n)
    gain = table - table[full - sets]
    gain[full] = 0.0
    inside = (sets[:, None] >> np.arange(n)) & 1
    size = inside.sum(1)
    best = np.zeros(1 << n)
    for k in range(1, n + 1):
        now = sets[size == k]
        before = np.where(inside[now] == 1, best[now[:, None] & ~(1 << np.arange(n))], -np.inf)
        best[now] = before.max(1) + gain[now]
    return float(best[full] / (n - 1))
