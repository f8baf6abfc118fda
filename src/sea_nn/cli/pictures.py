"""The pictures to explain: those that the arguments mean, and those shipped for the demo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from sea_nn.cli.files import find_files, name_folders
from sea_nn.cli.terminal import show

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))


@dataclass(frozen=True)
class Picture:
    """A picture to explain: what to call it, the folder for its results, how to open it."""

    name: str
    folder: str
    open: Callable[[], Image.Image]


def gather_pictures(
    patterns: Sequence[str],
    recursive: bool = False,
    demo_for: str | None = None,
    taken: Sequence[str] = (),
) -> list[Picture]:
    """The pictures that the arguments mean, each with a folder name of its own.

    Args:
        patterns: files, folders and globs.
        recursive: also look into folders' folders.
        demo_for: the name of a model to add a shipped picture for.
        taken: folder names that may not be used.
    """
    openings: list[tuple[Path, Callable[[], Image.Image]]] = []
    if demo_for is not None:
        openings.append(_find_demo(demo_for))
    for path in find_files(patterns, SUFFIXES, "pictures", recursive):
        openings.append((path, partial(_open, path)))
    folders = name_folders([path for path, _ in openings], taken)
    return [
        Picture(show(path), folder, opening)
        for (path, opening), folder in zip(openings, folders, strict=True)
    ]


def _open(path: Path) -> Image.Image:
    from sea_nn.images import load_image

    return load_image(path)


def _find_demo(model: str) -> tuple[Path, Callable[[], Image.Image]]:
    """A shipped picture that the model can know: clothes for the one trained on clothes."""
    return (
        (Path("boot.png"), _open_boot) if model == "fashion-cnn" else (Path("cat.jpg"), _open_cat)
    )


def _open_cat() -> Image.Image:
    with as_file(files("sea_nn") / "assets" / "cat.jpg") as path:
        return _open(path)


def _open_boot() -> Image.Image:
    from PIL import Image

    from sea_nn.data.fashion import load_sample

    sample = load_sample()
    boots = sample.images[sample.labels == sample.names.index("Ankle boot")]
    return Image.fromarray((boots[0, 0] * 255).round().byte().numpy()).convert("RGB")
