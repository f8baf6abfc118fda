"""The pictures to explain: those that the arguments mean, and those shipped for the demo."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from sea_nn.cli.files import find_files, name_folders
from sea_nn.cli.terminal import err, say, show
from sea_nn.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

MAP, STRIP, TOP, EXPLANATION = "map.png", "strip.png", "top.png", "explanation.safetensors"
Opening = Callable[[], "Image.Image"]
SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))


@dataclass(frozen=True)
class Picture:
    """A picture to explain: what to call it, the folder for its results, how to open it."""

    name: str
    folder: str
    open: Opening


def gather_pictures(
    patterns: Sequence[str],
    recursive: bool = False,
    demo_for: str | None = None,
    taken: Sequence[str] = (),
    output: Path | None = None,
) -> list[Picture]:
    """The pictures that the arguments mean, each with a folder name of its own.

    An argument that means none is one that cannot be opened, unless there are no others. Names in
    ``taken`` are not used, results that an earlier run left in ``output`` are passed over, and
    ``demo_for`` names a model to add a shipped picture for.
    """
    openings: list[tuple[Path, Opening]] = []
    if demo_for is not None:
        openings.append(_find_demo(demo_for))
    paths, empty = find_files(patterns, SUFFIXES, "pictures", recursive)
    if empty and not paths and not openings:
        raise InputError("; ".join(empty.values()))
    own = [path for path in paths if output is not None and _is_result(path, output)]
    if output is not None and own:
        say(f"Passed over in {show(output)}: {len(own)} results of an earlier run", console=err)
    openings.extend((path, partial(_open, path)) for path in paths if path not in own)
    folders = name_folders([path for path, _ in openings], taken)
    pictures = [
        Picture(show(path), folder, opening)
        for (path, opening), folder in zip(openings, folders, strict=True)
    ]
    # These fail when opened, so they never need a folder.
    return pictures + [Picture(show(p), "", partial(_refuse, why)) for p, why in empty.items()]


def _is_result(path: Path, output: Path) -> bool:
    """Whether `sea explain` wrote this picture; one's own may lie in the output folder too."""
    folder = path.resolve().parent
    drawn = path.name in (MAP, STRIP, TOP) and (folder / EXPLANATION).exists()
    return drawn and folder.parent == output.resolve()


def _refuse(reason: str) -> "Image.Image":
    raise InputError(reason)


def _open(path: Path) -> "Image.Image":
    from sea_nn.vision.images import load_image

    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        image = load_image(path)
    for notice in notices:
        say(f"{show(path)}: {notice.message}", "yellow", err)
    return image


def _find_demo(model: str) -> tuple[Path, Opening]:
    """A shipped picture that the model can know: clothes for the one trained on clothes."""
    return (
        (Path("boot.png"), _open_boot) if model == "fashion-cnn" else (Path("cat.jpg"), _open_cat)
    )


def _open_cat() -> "Image.Image":
    with as_file(files("sea_nn.vision") / "assets" / "cat.jpg") as path:
        return _open(path)


def _open_boot() -> "Image.Image":
    from PIL import Image

    from sea_nn.vision.shipped import load_sample

    sample = load_sample()
    boots = sample.images[sample.labels == sample.names.index("Ankle boot")]
    return Image.fromarray((boots[0, 0] * 255).round().byte().numpy()).convert("RGB")
