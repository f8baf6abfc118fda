"""Whole data sets need pyarrow; the run that others are compared with."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.datasets.small import hash_results, run

if find_spec("pyarrow") is None:  # pip install 'sea-nn[data]'
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The files of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(out)
    return hash_results(out)
