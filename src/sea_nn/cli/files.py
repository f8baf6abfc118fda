"""Which files an argument means: a file, a folder's content, or a glob."""

import glob
from collections.abc import Collection, Iterable
from pathlib import Path

from sea_nn.cli.terminal import show
from sea_nn.errors import InputError

NIFTI, DICOM = (".nii", ".nii.gz"), (".dcm", ".ima")


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
        except InputError as error:
            empty[pattern] = str(error)
    return list(found.values()), empty


def _expand(pattern: str, suffixes: Collection[str], noun: str, recursive: bool) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        inside = path.rglob("*") if recursive else path.iterdir()
        found = _select(inside, suffixes)
        if not found:
            deeper = "" if recursive else "; --recursive looks into its folders too"
            raise InputError(f"the folder {show(path)} holds no {noun} ({_list(suffixes)}){deeper}")
        return found
    # A file may have glob characters in its name, so what exists comes first.
    if path.exists() or not glob.has_magic(pattern):
        return [path]
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    found = _select(matches, suffixes)
    if not found:
        others = f": it matches {len(matches)} other things" if matches else ""
        raise InputError(f"no {noun} ({_list(suffixes)}) match {show(pattern)!r}{others}")
    return found


def _select(paths: Iterable[Path], suffixes: Collection[str]) -> list[Path]:
    return sorted(p for p in paths if p.suffix.lower() in suffixes and p.is_file())


def _list(suffixes: Collection[str]) -> str:
    return " ".join(sorted(suffixes))


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
