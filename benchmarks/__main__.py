"""``python -m benchmarks [NAME ...]``: the modules beside this one, or those of ``make bench``.

Each module has ``run()``, which gives its tables one by one; nothing is timed in
the tests.
"""

from __future__ import annotations

import argparse
import importlib

from benchmarks.table import hardware, to_markdown

NAMES = ("core", "members", "metrics", "learning")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(NAMES)} (all if none)")
    parser.add_argument("-o", "--output", help="also write the tables to this Markdown file")
    arguments = parser.parse_args()
    parts = [f"Hardware and versions: {hardware()}\n"]
    print(parts[0])
    for name in arguments.names or NAMES:
        for title, note, header, rows in importlib.import_module(f"benchmarks.{name}").run():
            parts.append(to_markdown(title, note, header, rows))
            print(parts[-1], flush=True)
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.write(f"# Speed: `python -m benchmarks {' '.join(arguments.names)}`\n\n")
            file.write("\n".join(parts))


if __name__ == "__main__":
    main()
