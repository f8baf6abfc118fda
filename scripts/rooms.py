"""Draw the map of rooms, from the import contracts and the rooms' own first sentences.

    python scripts/rooms.py     # write it into docs/how-a-map-is-made.md

It stands between ``<!-- rooms -->`` and ``<!-- end of rooms -->``.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/sea_nn"
PAGE = ROOT / "docs/how-a-map-is-made.md"
MARKS = re.compile(r"(<!-- rooms -->\n).*?(<!-- end of rooms -->)", re.DOTALL)


def read_layers() -> list[list[str]]:
    """The rooms of the package from top to bottom; those of one layer are apart."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def describe(name: str) -> str:
    """The first sentence of a room's or module's own docstring."""
    path = PACKAGE / name / "__init__.py"
    path = path if path.exists() else PACKAGE / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = re.split(r"(?<=[.])\s", text.split("\n\n")[0].replace("\n", " "))[0]
    return re.sub(r" (\[M\d+\][-–]?)+", "", first).replace("``", "`")


def link(name: str) -> str:
    """A room with a link to its page, if it has one."""
    page = "how-to/command_line.md" if name == "cli" else f"api/{name}.md"
    return f"[{name}]({page})" if (ROOT / "docs" / page).exists() else name


def draw() -> str:
    """The page's text with today's map in it: each layer may use the layers below it."""
    rows = [f"| {link(name)} | {describe(name)} |" for layer in read_layers() for name in layer]
    table = "\n".join(["| room | what it holds |", "|---|---|", *rows, ""])
    text = PAGE.read_text(encoding="utf-8")
    return MARKS.sub(lambda found: found[1] + table + found[2], text)


if __name__ == "__main__":
    PAGE.write_text(draw(), encoding="utf-8")
