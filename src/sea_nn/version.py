"""This package's version, installed or not."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def find_version() -> str:
    """The installed version, else that of the checkout this file lies in, else "unknown"."""
    try:
        return version("sea-nn")
    except PackageNotFoundError:
        pass  # a folder on the path, which has no metadata
    try:
        text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return "unknown"
