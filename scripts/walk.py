"""Draw the walk of a call through the package: which files, which functions, who calls whom.

    python scripts/walk.py            # all four walks, one table
    python scripts/walk.py explain    # one of them, file by file

The walks: ``explain`` is `SEA(model).explain(x)`, ``command`` is `sea explain` on a picture,
``run`` is `sea run` on three, ``bench`` is an experiment on one input. Functions are Python's:
comprehensions and lambdas count, what runs only while a module is imported does not.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pkgutil
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sea_nn

SOURCE = Path(sea_nn.__file__).parent
IS_FUNCTION = 1  # CO_OPTIMIZED: neither a module nor the body of a class
OPEN = "borrow"  # what opens the caller's model
NAMES = ("explain", "command", "run", "bench")


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
    def files(self) -> Counter[str]:
        """The files that were crossed, as paths below the package, with how many functions."""
        return Counter(sorted(map(name_file, self.functions)))

    @property
    def both_ways(self) -> list[tuple[str, str]]:
        """Pairs of modules that call each other both ways."""
        return sorted((a, b) for a, b in self.calls if a < b and (b, a) in self.calls)


def name_file(code: CodeType) -> str:
    """The file of a function, below the package."""
    return str(Path(code.co_filename).relative_to(SOURCE))


def draw_walk(call: Callable[[], Any]) -> Walk:
    """Make the call, and watch it in all threads that it starts."""
    walk, inside, begun = Walk(), f"{SOURCE}{os.sep}", set()

    def belongs(code: CodeType) -> bool:
        return bool(code.co_flags & IS_FUNCTION) and code.co_filename.startswith(inside)

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code, below = frame.f_code, frame.f_back
        if event != "call" or not belongs(code):
            return
        walk.functions[code] += 1
        if code.co_name == OPEN and frame not in begun:
            begun.add(frame)  # a generator is entered again when it goes on
            walk.opened += 1
        if below is not None and belongs(below.f_code):
            pair = name_file(below.f_code), name_file(code)
            walk.calls[pair] += pair[0] != pair[1]

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


def walk_by_name(name: str) -> Walk:
    """One of the four walks, with everything that it needs imported and made before."""
    for module in pkgutil.walk_packages(sea_nn.__path__, "sea_nn."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # what an extra brings
                importlib.import_module(module.name)
    from PIL import Image

    from sea_nn import SEA
    from sea_nn.cli import app
    from sea_nn.vision.shipped import load_cnn, load_sample

    sample, model, out = load_sample(), load_cnn(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        pictures, own = Path(folder) / "pictures", ("--model", "fashion-cnn", "-o", folder)
        pictures.mkdir()
        for k, image in enumerate(sample.images[:3]):
            pixels = (image[0] * 255).round().byte().numpy()
            Image.fromarray(pixels).save(pictures / f"{k}.png")
        few = ("--inputs", "1", "--device", "cpu", "--cache", f"{folder}/cache", "-o", folder)
        words = {
            "command": ["explain", str(pictures / "0.png"), *own],
            "run": ["run", str(pictures), *own[:-1], f"{folder}/out"],
            "bench": ["bench", "predicts_fmnist", *few],
        }

        def call() -> None:
            if name in words:
                app(words[name], standalone_mode=False)
            else:
                SEA(model).explain(sample.images[:1])

        with contextlib.redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return draw_walk(call)


def main() -> None:
    wanted = sys.argv[1:] or NAMES
    print(f"{'walk':10}{'files':>7}{'functions':>11}{'opened':>8}  both ways")
    for name in wanted:
        walk = walk_by_name(name)
        pairs = ", ".join(" and ".join(pair) for pair in walk.both_ways) or "none"
        print(f"{name:10}{len(walk.files):7}{len(walk.functions):11}{walk.opened:8}  {pairs}")
        for file, count in walk.files.items() if len(wanted) == 1 else ():
            print(f"{count:17}  {file}")


if __name__ == "__main__":
    main()
