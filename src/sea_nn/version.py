"""This package's version, installed or not."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def find_version() -> str:
    """The installed version, else that of the checkout this file lies in, else "unknown"."""
    try:
        return version("sea-nn")
    except PackageNotFoundError:  # a folder on the path, which has no metadata
        file = Path(__file__).parents[2] / "pyproject.toml"
        known = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return str(known.get("project", {}).get("version", "unknown"))
