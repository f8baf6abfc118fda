"""Draw the walk of a call through the package: which files, which functions, who calls whom.

    python scripts/walk.py                      # all four walks, one table
    python scripts/walk.py explain --files      # one of them, file by file
    python scripts/walk.py explain --json

The walks: ``explain`` is `SEA(model).explain(x)`, ``command`` is `sea explain` on a picture,
``run`` is `sea run` on three, ``bench`` is an experiment on one input. Functions are Python's:
comprehensions and lambdas count, what runs only while a module is imported does not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import pkgutil
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sea_nn

SOURCE = Path(sea_nn.__file__).parent
IS_FUNCTION = 1  # CO_OPTIMIZED: neither a module nor the body of a class
OPEN = "borrow"  # what opens the caller's model


@dataclass
class Walk:
    """Where one call went.

    Attributes:
        functions: how often each function was entered.
        calls: how often a function of one module called one of another.
        opened: how often the model was opened.
    """

    functions: Counter[CodeType] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    opened: int = 0

    @property
    def files(self) -> list[str]:
        """The files that were crossed, as paths below the package."""
        return sorted({name_file(code) for code in self.functions})

    @property
    def both_ways(self) -> list[tuple[str, str]]:
        """Pairs of modules that call each other both ways."""
        return sorted((a, b) for a, b in self.calls if a < b and (b, a) in self.calls)

    @property
    def lines(self) -> int:
        """Lines of the files that were crossed."""
        return sum(len((SOURCE / name).read_text().splitlines()) for name in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Counts and names as plain values."""
        inside = Counter(name_file(code) for code in self.functions)
        return {
            "files": len(self.files),
            "functions": len(self.functions),
            "lines": self.lines,
            "opened": self.opened,
            "both_ways": self.both_ways,
            "functions_by_file": dict(sorted(inside.items())),
        }


def name_file(code: CodeType) -> str:
    """The file of a function, below the package."""
    return str(Path(code.co_filename).relative_to(SOURCE))


def draw_walk(call: Callable[[], Any]) -> Walk:
    """Make the call, and watch it in all threads that it starts."""
    walk, inside, begun = Walk(), f"{SOURCE}{os.sep}", set()

    def belongs(frame: FrameType) -> bool:
        code = frame.f_code
        return bool(code.co_flags & IS_FUNCTION) and code.co_filename.startswith(inside)

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not belongs(frame):
            return
        walk.functions[frame.f_code] += 1
        if frame.f_code.co_name == OPEN and frame not in begun:
            begun.add(frame)  # a generator is entered again when it goes on
            walk.opened += 1
        below = frame.f_back
        if (
            below is not None
            and belongs(below)
            and below.f_code.co_filename != frame.f_code.co_filename
        ):
            walk.calls[name_file(below.f_code), name_file(frame.f_code)] += 1

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


def import_everything() -> None:
    """Import the package, so that a walk shows what is called and not what is loaded."""
    for module in pkgutil.walk_packages(sea_nn.__path__, "sea_nn."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # what an extra brings
                importlib.import_module(module.name)


@contextlib.contextmanager
def prepare(name: str) -> Iterator[Callable[[], Any]]:
    """The call of one walk, with everything that it needs made before."""
    from sea_nn import SEA
    from sea_nn.cli import app
    from sea_nn.vision.shipped import load_cnn, load_sample

    sample = load_sample()
    if name == "explain":
        model, x = load_cnn(), sample.images[:1]
        yield lambda: SEA(model).explain(x)
        return
    with tempfile.TemporaryDirectory() as folder:
        out, pictures = Path(folder) / "out", Path(folder) / "pictures"
        pictures.mkdir()
        for k in range(3):
            save_picture(sample.images[k], pictures / f"{k}.png")
        own = ("--model", "fashion-cnn")
        words = {
            "command": ["explain", str(pictures / "0.png"), *own, "-o", str(out)],
            "run": ["run", str(pictures), *own, "-o", str(out)],
            "bench": [
                *("bench", "predicts_fmnist", "--inputs", "1", "--device", "cpu", "-o", str(out)),
                *("--cache", str(Path(folder) / "cache")),
            ],
        }[name]
        yield lambda: app(words, standalone_mode=False)


def save_picture(image: Any, path: Path) -> None:
    from PIL import Image

    Image.fromarray((image[0] * 255).round().byte().numpy()).save(path)


NAMES = ("explain", "command", "run", "bench")


def walk_by_name(name: str) -> Walk:
    """One of the four walks."""
    import_everything()
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with prepare(name) as call, quiet[0], quiet[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return draw_walk(call)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="WALK", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--files", action="store_true", help="list the files, with their functions")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no walk {min(unknown)!r}: {', '.join(NAMES)}")
    found = {name: walk_by_name(name).to_dict() for name in given.names or NAMES}
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'walk':10}{'files':>7}{'functions':>11}{'lines':>8}{'opened':>8}  both ways")
    for name, walk in found.items():
        pairs = ", ".join(" and ".join(pair) for pair in walk["both_ways"]) or "none"
        counts = f"{walk['files']:7}{walk['functions']:11}{walk['lines']:8}{walk['opened']:8}"
        print(f"{name:10}{counts}  {pairs}")
        for file, count in walk["functions_by_file"].items() if given.files else ():
            print(f"{count:17}  {file}")


if __name__ == "__main__":
    main()
