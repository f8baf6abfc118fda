"""pyarrow, which writes and reads Parquet: imported when a data set is worked on."""

from __future__ import annotations

from typing import Any

from sea_nn.errors import MissingExtraError


def import_arrow() -> Any:
    """Return pyarrow with its Parquet module.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            f"whole data sets are written as Parquet, which needs pyarrow ({error}). "
            "Install it with: pip install 'sea-nn[datasets]'"
        ) from error
    return pyarrow
