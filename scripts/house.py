"""Count the house: lines by room, and numbers that somebody set by hand.

python scripts/house.py            # a table, beside what each part may have at most
python scripts/house.py --numbers  # every hand-set number, with its place
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITTEN = (".py", ".js", ".css", ".html")
PARTS = {
    "the library": (("src/sea_nn",), 21_000),
    "bench": (("src/sea_bench", "scripts"), 8_500),
    "tests": (("tests",), 15_500),
}
"""Folders that count together, and how many lines they may have."""


def count_lines(folder: Path) -> Counter[str]:
    """Lines of what people wrote in a folder, by the room (the first folder) they are in."""
    lines: Counter[str] = Counter()
    for path in sorted(folder.rglob("*")):
        if path.suffix in WRITTEN and "__pycache__" not in path.parts:
            inside = path.relative_to(folder).parts
            room = f"{inside[0]}/" if len(inside) > 1 else ""
            lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def find_numbers(folder: Path) -> Iterator[tuple[str, str]]:
    """Numbers with an UPPER_CASE name at the top of a module: (place, what is written)."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                if all(name.isupper() for name in names) and _is_numeric(node.value):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node)


def _is_numeric(value: ast.expr) -> bool:
    """Whether it is a number, or several, or made of numbers alone."""
    parts = [node for node in ast.walk(value) if isinstance(node, ast.Constant)]
    strange = (ast.Name, ast.Call, ast.Attribute, ast.Dict, ast.JoinedStr)
    return (
        bool(parts)
        and all(type(part.value) in (int, float) for part in parts)
        and not any(isinstance(node, strange) for node in ast.walk(value))
    )


def main() -> None:
    numbers = list(find_numbers(ROOT / "src/sea_nn"))
    if "--numbers" in sys.argv:
        for place, code in numbers:
            print(f"{place:55} {code}")
        return
    for name, (folders, limit) in PARTS.items():
        counted = [(folder, count_lines(ROOT / folder)) for folder in folders]
        total = sum(sum(lines.values()) for _, lines in counted)
        print(f"{name:40}{total:8,} lines, at most {limit:,}")
        for folder, lines in counted:
            for room, count in sorted(lines.items()):
                print(f"  {folder + '/' + room:38}{count:8,}")
    print(f"{'hand-set numbers in the library':40}{len(numbers):8,}")


if __name__ == "__main__":
    main()
