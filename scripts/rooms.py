"""Draw the map of rooms, from the import contracts and the rooms' own first sentences.

    python scripts/rooms.py     # write it into docs/concepts.md and CONTRIBUTING.md

It stands between ``<!-- rooms -->`` and ``<!-- end of rooms -->``.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/sea_nn"
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


def link(name: str, folder: str) -> str:
    """A room with a link to its page, if it has one."""
    page = "how-to/command_line.md" if name == "cli" else f"api/{name}.md"
    return f"[{name}]({folder}{page})" if (ROOT / "docs" / page).exists() else name


def draw(folder: str) -> str:
    """The map as a table: each layer may use the layers below it."""
    rows = [
        f"| {link(name, folder)} | {describe(name)} |" for layer in read_layers() for name in layer
    ]
    return "\n".join(["| room | what it holds |", "|---|---|", *rows, ""])


def fill(page: Path) -> str:
    """The page's text with today's map in it."""
    folder = "" if page.parent.name == "docs" else "docs/"
    text, count = MARKS.subn(
        lambda found: found[1] + draw(folder) + found[2], page.read_text(encoding="utf-8")
    )
    if count != 1:
        raise SystemExit(f"{page} should have one place for the map of rooms; it has {count}")
    return text


PAGES = (ROOT / "docs/concepts.md", ROOT / "CONTRIBUTING.md")


def main() -> None:
    for page in PAGES:
        page.write_text(fill(page), encoding="utf-8")


if __name__ == "__main__":
    main()
