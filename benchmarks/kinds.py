"""Rows of the results at a glance for inputs that are no images, from their pages."""

from __future__ import annotations

from pathlib import Path

from sea_bench.experiments.catalogue import STUDIES
from sea_bench.experiments.tables import wrap

OURS = "SEA, 128"
RANDOM = ("random", "random map")
NO_RIVALS = ("SEA", "its members", "greedy on the model", *RANDOM)
"""Rows that do not compete: ours, and greed, which asks the model about every step."""
METRICS = ("F1", "comprehensiveness", "sufficiency")
SAID = (
    "Deletion and insertion of features by the model itself, over all cases of a page; for texts "
    "also people's or the maker's marks (F1). SEA with 128 evaluations against a random order and "
    "the best other method that has most cases of the page, also at 512 evaluations. TreeSHAP, for "
    "forests alone, is on the pages. **Bold**: SEA is clearly better, *slanted*: clearly worse, by "
    "the 95 % interval of the difference paired by inputs."
)
Table = tuple[list[str], list[list[str]]]


def read_tables(page: str) -> list[Table]:
    r"""Every Markdown table of a page: its head and its rows, as cells.

    >>> read_tables("a\n| x | y |\n|---|---:|\n| 1 | 2 |\nb")
    [(['x', 'y'], [['1', '2']])]
    """
    tables: list[Table] = []
    before = ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|--"):
            pass
        elif line.startswith("|") and before.startswith("|"):
            tables[-1][1].append(cells)
        elif line.startswith("|"):
            tables.append((cells, []))
        before = line
    return tables


def list_columns(tables: list[Table]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The columns that count, (metric with its arrow, [(method, cell)])."""
    found = []
    pooled = [rows for head, rows in tables if head[1:] == ["cases", "mean"]]
    for name, rows in zip(("insertion ↑", "deletion ↓"), pooled, strict=False):
        cases = next(int(row[1]) for row in rows if row[0] == OURS)
        often = [row for row in rows if 2 * int(row[1]) > cases]
        found.append((name, [(_tell_cases(row, cases), row[2]) for row in often]))
    for head, rows in tables:
        for k, title in enumerate(head):
            if title.startswith(METRICS) and any(row[0] == OURS for row in rows):
                found.append((title, [(row[0], row[k]) for row in rows]))
    return found


def _tell_cases(row: list[str], cases: int) -> str:
    """A method's name, with its number of cases where it has not all."""
    return row[0] if int(row[1]) == cases else f"{row[0]} ({row[1]} of {cases} cases)"


def write_row(name: str, metric: str, cells: list[tuple[str, str]]) -> str:
    """One row: the random order, the best other method, and ours with its mark."""
    value = {method: float(cell.strip("*").split()[0]) for method, cell in cells}
    text = {method: cell.replace("**", "") for method, cell in cells}
    sign = -1 if metric.endswith("↓") else 1
    others = [method for method in value if not method.startswith(NO_RIVALS)]
    best = max(others, key=lambda method: sign * value[method])
    # A cell's mark says how its method compares with ours.
    ours = text[OURS]
    ours = f"**{ours}**" if "▼" in text[best] else f"*{ours}*" if "▲" in text[best] else ours
    chance = next(text[method] for method in RANDOM if method in text)
    shown = [name, metric, chance, f"{best} {text[best]}", ours]
    return "| " + " | ".join(shown).replace(" ▼", "").replace(" ▲", "") + " |"


def tabulate_kinds(folder: Path) -> list[str]:
    """The section."""
    lines = ["", "## Other kinds of input", "", *wrap(SAID), ""]
    lines += ["| page | metric | random | best other | SEA 128 |", "|---|---|---:|---|---:|"]
    for name in STUDIES:
        path = folder / f"{name}.md"
        columns = list_columns(read_tables(path.read_text())) if path.exists() else []
        lines += [write_row(f"[{name}]({name}.md)", *column) for column in columns]
    return lines


if __name__ == "__main__":
    print("\n".join(tabulate_kinds(Path(__file__).parent.parent / "docs" / "results")))
