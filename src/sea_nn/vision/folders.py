"""Where data and weights that cannot be shipped are looked for, and where results are kept."""

import os
from pathlib import Path

DATA_VARIABLE = "SEA_NN_DATA"
CACHE_VARIABLE = "SEA_NN_CACHE"


def find_data(*parts: str) -> Path | None:
    """Return ``$SEA_NN_DATA/parts...`` if it exists, otherwise None.

    >>> find_data("no such data set") is None
    True
    """
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        return None
    path = Path(root).expanduser().joinpath(*parts)
    return path if path.exists() else None


def find_cache(*parts: str) -> Path:
    """Return ``$SEA_NN_CACHE/parts...``, or ~/.cache/sea_nn/parts...; it may not exist yet."""
    root = os.environ.get(CACHE_VARIABLE) or "~/.cache/sea_nn"
    return Path(root).expanduser().joinpath(*parts)
