"""What the arguments of ``sea explain`` mean: pictures, volumes, texts, each with a folder."""

import glob
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sea_nn.cli.terminal import err, say, show
from sea_nn.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

EXPLANATION, REPORT = "explanation.safetensors", "report.html"
DRAWN = ("map.png", "strip.png", "top.png", "words.png")
PICTURES = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp"))
NIFTI, DICOM = (".nii", ".nii.gz"), (".dcm", ".ima")


@dataclass(frozen=True)
class Input:
    """An input to explain: what to call it, the folder for its results, how to read it."""

    name: str
    folder: str
    read: Callable[[], Any]


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
    if path.is_dir():
        inside = path.rglob("*") if recursive else path.iterdir()
        found = _select(inside, suffixes)
        if not found:
            deeper = "" if recursive else "; --recursive looks into its folders too"
            raise InputError(f"the folder {show(path)} holds no {noun} ({kinds}){deeper}")
        return found
    # A file may have glob characters in its name, so what exists comes first.
    if path.exists() or not glob.has_magic(pattern):
        return [path]
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    found = _select(matches, suffixes)
    if not found:
        others = f": it matches {len(matches)} other things" if matches else ""
        raise InputError(f"no {noun} ({kinds}) match {show(pattern)!r}{others}")
    return found


def _select(paths: Iterable[Path], suffixes: Collection[str]) -> list[Path]:
    return sorted(p for p in paths if p.suffix.lower() in suffixes and p.is_file())


def find_volumes(patterns: Iterable[str]) -> list[Path]:
    """Those of the arguments that are volumes: NIfTI files, and folders with DICOM files."""
    found = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        dicom = path.is_dir() and any(p.suffix.lower() in DICOM for p in path.iterdir())
        if dicom or path.name.lower().endswith(NIFTI):
            found.append(path)
    return found


def name_folders(paths: Iterable[Path], taken: Iterable[str] = ()) -> list[str]:
    """A folder name for each file, its stem; equal ones are numbered so that none is shared.

    >>> name_folders([Path("a/cat.jpg"), Path("b/Cat.png"), Path("cat-2.jpg")])
    ['cat', 'Cat-2', 'cat-2-2']
    """
    used = {name.casefold() for name in taken}  # some file systems do not tell Cat from cat
    names = []
    for path in paths:
        # Windows cannot open names that end in a dot or a space.
        stem = path.stem.removesuffix(".nii").rstrip(". ") or "picture"
        name, again = stem, 2
        while name.casefold() in used:
            name, again = f"{stem}-{again}", again + 1
        used.add(name.casefold())
        names.append(name)
    return names


def gather_volumes(paths: Sequence[Path]) -> list[Input]:
    """The volumes in files and folders."""

    def read(path: Path) -> Any:
        from sea_nn.vision.volumes import load_volume

        return load_volume(path)

    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file {show(path)}; check its name")
    folders = name_folders(paths, (REPORT,))
    return [
        Input(show(path), folder, partial(read, path))
        for path, folder in zip(paths, folders, strict=True)
    ]


def gather_texts(texts: Sequence[str]) -> list[Input]:
    """The texts, by number."""
    return [Input(f"text {k}", f"text-{k}", partial(str, t)) for k, t in enumerate(texts, 1)]


def gather_pictures(
    patterns: Sequence[str],
    recursive: bool = False,
    demo_for: str | None = None,
    output: Path | None = None,
) -> list[Input]:
    """The pictures that the arguments mean, each with a folder name of its own.

    An argument that means none is one that cannot be read; it is an error that none can. Results
    that an earlier run left in ``output`` are passed over, and ``demo_for`` names a model to add a
    shipped picture for.
    """
    shipped: list[tuple[Path, Callable[[], Image.Image]]] = []
    if demo_for == "fashion-cnn":  # which knows clothes
        shipped.append((Path("boot.png"), _read_boot))
    elif demo_for is not None:
        shipped.append((Path("cat.jpg"), _read_cat))
    paths, empty = find_files(patterns, PICTURES, "pictures", recursive)
    own = [path for path in paths if output is not None and _is_result(path, output)]
    if output is not None and own:
        say(f"Passed over in {show(output)}: {len(own)} results of an earlier run", console=err)
    found: list[tuple[Path, Callable[[], Any]]] = [*shipped]
    found += [(path, partial(_read, path)) for path in paths if path not in own]
    if not found and not empty:
        raise InputError(
            "there is nothing to explain: name pictures, folders or globs, or try --demo"
        )
    if not shipped:
        _check_some(empty, [path for path, _ in found])
    folders = name_folders([path for path, _ in found], (REPORT,))
    pictures = [
        Input(show(path), folder, read) for (path, read), folder in zip(found, folders, strict=True)
    ]
    # These fail when read, so they never need a folder.
    return pictures + [Input(show(p), "", partial(_refuse, why)) for p, why in empty.items()]


def _check_some(empty: dict[str, str], paths: Sequence[Path]) -> None:
    """Refuse arguments none of which can be read: the first that can ends the search."""
    reasons = list(empty.values())
    for path in paths:
        try:
            _read(path, quiet=True)
            return
        except InputError as error:
            reasons.append(str(error))
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    raise InputError("; ".join(reasons[:5]) + more)


def _is_result(path: Path, output: Path) -> bool:
    """Whether `sea explain` wrote this picture; one's own may lie in the output folder too."""
    folder = path.resolve().parent
    drawn = path.name in DRAWN and (folder / EXPLANATION).exists()
    return drawn and folder.parent == output.resolve()


def _refuse(reason: str) -> "Image.Image":
    raise InputError(reason)


def _read(path: Path, quiet: bool = False) -> "Image.Image":
    from sea_nn.vision.images import load_image

    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        image = load_image(path)
    for notice in [] if quiet else notices:
        say(f"{show(path)}: {notice.message}", "yellow", err)
    return image


def _read_cat() -> "Image.Image":
    with as_file(files("sea_nn.vision") / "assets" / "cat.jpg") as path:
        return _read(path)


def _read_boot() -> "Image.Image":
    from PIL import Image

    from sea_nn.vision.shipped import load_sample

    sample = load_sample()
    boots = sample.images[sample.labels == sample.names.index("Ankle boot")]
    return Image.fromarray((boots[0, 0] * 255).round().byte().numpy()).convert("RGB")
