"""What the arguments of ``sea explain`` mean: pictures, volumes, texts, each with a folder."""

import glob
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sea_nn.cli.terminal import err, say, show
from sea_nn.errors import InputError
from sea_nn.vision.names import ASSETS, NIFTI, PICTURES

if TYPE_CHECKING:
    from PIL import Image

EXPLANATION, REPORT = "explanation.safetensors", "report.html"
DICOM = (".dcm", ".ima")


@dataclass(frozen=True)
class Input:
    """An input to explain: what to call it, the folder for its results, its file or its text."""

    name: str
    folder: str
    source: Any


def find_files(
    patterns: Iterable[str], suffixes: Collection[str], noun: str, recursive: bool = False
) -> tuple[list[Path], dict[str, str]]:
    """The files that the arguments of a command mean, in their order, each once.

    A single file is returned unseen: a missing or broken one must not stop the others, and nor
    must a folder or a glob that has no file with one of the ``suffixes`` (lower case). Returns the
    files, and by argument why it means none; ``noun`` is what errors call such files.
    """
    found: dict[Path, Path] = {}
    empty: dict[str, str] = {}
    for pattern in patterns:
        try:
            for path in _expand(pattern, suffixes, noun, recursive):
                found.setdefault(path.resolve(), path)
        except (InputError, OSError, ValueError) as error:  # a name that is too long, or has a NUL
            empty[pattern] = str(error)
    return list(found.values()), empty


def _expand(pattern: str, suffixes: Collection[str], noun: str, recursive: bool) -> list[Path]:
    path, kinds = Path(pattern).expanduser(), " ".join(sorted(suffixes))
    # A file may have glob characters in its name, so what exists comes first.
    if not path.is_dir() and (path.exists() or not glob.has_magic(pattern)):
        return [path]
    if path.is_dir():
        inside = list(path.rglob("*") if recursive else path.iterdir())
        deeper = "" if recursive else "; --recursive looks into its folders too"
        problem = f"the folder {show(path)} holds no {noun} ({kinds}){deeper}"
    else:
        inside = [Path(match) for match in glob.glob(str(path), recursive=True)]
        others = f": it matches {len(inside)} other things" if inside else ""
        problem = f"no {noun} ({kinds}) match {show(pattern)!r}{others}"
    found = sorted(p for p in inside if p.suffix.lower() in suffixes and p.is_file())
    if not found:
        raise InputError(problem)
    return found


def find_volumes(patterns: Iterable[str]) -> list[Path]:
    """Those of the arguments that are volumes: NIfTI files, and folders with DICOM files."""
    found = []
    for path in (Path(pattern).expanduser() for pattern in patterns):
        dicom = path.is_dir() and any(p.suffix.lower() in DICOM for p in path.iterdir())
        if dicom or path.name.lower().endswith(NIFTI):
            found.append(path)
    return found


def name_inputs(paths: Iterable[Path]) -> list[Input]:
    """Each file with a folder for its results, called by its stem; equal ones are numbered.

    >>> [one.folder for one in name_inputs([Path("cat.jpg"), Path("b/Cat.png"), Path("cat-2.gif")])]
    ['cat', 'Cat-2', 'cat-2-2']
    """
    used = {REPORT}
    found = []
    for path in paths:
        # Windows cannot open names that end in a dot or a space.
        stem = path.stem.removesuffix(".nii").rstrip(". ") or "picture"
        name, again = stem, 2
        while name.casefold() in used:  # some file systems do not tell Cat from cat
            name, again = f"{stem}-{again}", again + 1
        used.add(name.casefold())
        found.append(Input(show(path), name, path))
    return found


def gather_pictures(
    patterns: Sequence[str],
    recursive: bool = False,
    demo_for: str | None = None,
    output: Path | None = None,
) -> tuple[list[Input], dict[str, str]]:
    """The pictures that arguments mean, and by argument why it means none; one must be readable.

    Results that an earlier run left in ``output`` are passed over, and ``demo_for`` names a model
    to add a shipped picture for.
    """
    paths, empty = find_files(patterns, PICTURES, "pictures", recursive)
    # What lies beside an explanation in a folder of the output was drawn, and is no input.
    drawn = [path for path in paths if (path.parent / EXPLANATION).exists()]
    own = [p for p in drawn if output and p.resolve().parents[1] == output.resolve()]
    if own:
        say(f"Passed over in {output}: {len(own)} results of an earlier run", console=err)
        paths = [path for path in paths if path not in own]
    if demo_for is not None:  # the network for clothes knows no cats
        paths = [ASSETS / ("boot.png" if demo_for == "fashion-cnn" else "cat.jpg"), *paths]
    if not paths and not empty:
        raise InputError(
            "there is nothing to explain: name pictures, folders or globs, or try --demo"
        )
    reasons = list(empty.values())
    for path in paths:
        try:
            read_picture(path, quiet=True)
            return name_inputs(paths), empty
        except InputError as error:
            reasons.append(str(error))
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    raise InputError("; ".join(reasons[:5]) + more)


def read_picture(path: Path, quiet: bool = False) -> "Image.Image":
    """Read a picture, and say what was assumed of it."""
    from sea_nn.vision.images import load_image

    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        image = load_image(path)
    for notice in [] if quiet else notices:
        say(f"{show(path)}: {notice.message}", "yellow", err)
    return image
